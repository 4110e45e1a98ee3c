"""The learning curve of a run as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw_curve(records: list[dict[str, Any]], path: Path, *, title: str) -> None:
    """Training and validation nats per token over the steps, from the records of metrics.jsonl."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    train = [(r["step"], r["nats_per_token"]) for r in records if r["kind"] == "train"]
    valid = [(r["step"], r["scores"]["nats_per_token"], r["best"]) for r in records if r["kind"] == "valid"]
    figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if train:
        axes.plot(*zip(*train, strict=True), color="#9db4c8", linewidth=1.2, label="training (with dropout)")
    if valid:
        steps, nats, _ = zip(*valid, strict=True)
        axes.plot(steps, nats, color="#1f4e79", marker="o", markersize=4, label="validation")
        step, best, _ = next((entry for entry in reversed(valid) if entry[2]), valid[-1])
        axes.annotate(
            f"{best:.3f}",
            (step, best),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color="#1f4e79",
            fontweight="bold",
        )
    axes.set(xlabel="steps", ylabel="nats per token", title=title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if train or valid:
        axes.legend(frameon=False)
    figure.savefig(path)
