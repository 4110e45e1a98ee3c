"""The learning curve of a run as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.runs.pictures import picture


def draw_curve(records: list[dict[str, Any]], path: Path, *, title: str, score: str) -> None:
    """Training loss and the validation's `score` over the steps, from the records of metrics.jsonl."""
    train = [(r["step"], r["loss"]) for r in records if r["kind"] == "train"]
    valid = [r for r in records if r["kind"] == "valid"]
    name, same_scale = score.replace("_", " ").replace("f1", "F1"), "nats" in score
    with picture(path, (7.2, 4.2)) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel="steps", ylabel=name if same_scale else "training loss in nats", title=title)
        axes.grid(alpha=0.25)
        if train:
            axes.plot(*zip(*train, strict=True), color="#9db4c8", linewidth=1.2, label="training (with dropout)")
        right = axes
        if valid and not same_scale:
            right = axes.twinx()
            right.set_ylabel(f"validation {name}")
        _draw_scores(right, [(r["step"], r["scores"][score], r["best"]) for r in valid if score in r["scores"]])
        for drawn in (axes, right):
            drawn.spines["top"].set_visible(False)
            drawn.spines["right"].set_visible(right is not axes)
        lines = [*axes.lines, *(right.lines if right is not axes else [])]
        if lines:
            labels = [str(line.get_label()) for line in lines]
            axes.legend(lines, labels, frameon=False, loc="best" if right is axes else "center right")


def _draw_scores(axes: Any, valid: list[tuple[int, float, bool]]) -> None:
    """Draws the validation scores, and writes the number of the best one beside it."""
    if not valid:
        return
    steps, scores, _ = zip(*valid, strict=True)
    axes.plot(steps, scores, color="#1f4e79", marker="o", markersize=4, label="validation")
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
