"""The learning curve of a run as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.training.pictures import picture

SCORES = {"nats_per_token": "nats per token", "f1": "F1", "micro_f1": "micro F1", "accuracy": "accuracy"}
"""What is drawn of a validation: the first of these that it has."""


def draw_curve(records: list[dict[str, Any]], path: Path, *, title: str) -> None:
    """Training loss and validation score over the steps, from the records of metrics.jsonl."""
    train = [(r["step"], r["loss"]) for r in records if r["kind"] == "train"]
    valid = [r for r in records if r["kind"] == "valid"]
    score = _drawn(valid[0]["scores"]) if valid else "nats_per_token"
    with picture(path, (7.2, 4.2)) as figure:
        axes = figure.add_subplot()
        axes.set(xlabel="steps", ylabel="nats per token", title=title)
        axes.grid(alpha=0.25)
        if train:
            axes.plot(*zip(*train, strict=True), color="#9db4c8", linewidth=1.2, label="training (with dropout)")
        right = axes
        if score != "nats_per_token":
            axes.set_ylabel("training loss in nats")
        if score not in ("nats_per_token", None):
            right = axes.twinx()
            right.set_ylabel(f"validation {SCORES[score]}")
        if score is not None:
            _draw_scores(right, [(r["step"], r["scores"][score], r["best"]) for r in valid])
        for drawn in (axes, right):
            drawn.spines["top"].set_visible(False)
            drawn.spines["right"].set_visible(right is not axes)
        lines = [*axes.lines, *(right.lines if right is not axes else [])]
        if lines:
            labels = [str(line.get_label()) for line in lines]
            axes.legend(lines, labels, frameon=False, loc="best" if right is axes else "center right")


def _drawn(scores: dict[str, Any]) -> str | None:
    """Which score a run is judged by: F1 of spans, of several labels a text the micro F1, else the accuracy.

    None if it has none of those that are known here: then the training loss is drawn alone.
    """
    plain = scores.get("f1") == scores.get("accuracy")  # of plain labels they are one number
    absent = {"f1"} if plain else set()
    if scores.get("confusion") is not None:
        absent.add("micro_f1")
    return next((name for name in SCORES if name in scores and name not in absent), None)


def _draw_scores(axes: Any, valid: list[tuple[int, float, bool]]) -> None:
    """The validation scores, the best one with its number."""
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
