"""Outputs and their scores on the card of a run, and in its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

COLUMNS = ("nats_per_token", "bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match", "edit_rate")


def score_table(scores: dict[str, dict[str, Any]]) -> list[str]:
    """The scores by data as a table in Markdown, with the signatures of BLEU."""
    columns = [name for name in COLUMNS if any(name in found for found in scores.values())]
    lines = [
        f"| data | {' | '.join(name.replace('_', ' ') for name in columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for data, found in scores.items():
        values = (found.get(name) for name in columns)
        lines.append(f"| {data} | {' | '.join('-' if value is None else f'{value:.4g}' for value in values)} |")
    signatures = {found["signature"] for found in scores.values() if "signature" in found}
    return [*lines, *(f"\n{signature}" for signature in signatures)]


def sample_lines(outputs: Iterable[tuple[str, str, str]]) -> str:
    """Sources, their outputs and what is right, a line each."""
    return "\n".join(f"{_line(source)} → {_line(text)} ({_line(right)})" for source, text, right in outputs)


def _line(text: str) -> str:
    """The text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."
