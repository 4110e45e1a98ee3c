"""The scores of each label as a table."""

from __future__ import annotations

from typing import Any


def label_table(per_label: dict[str, dict[str, Any]]) -> list[str]:
    """A table in Markdown; the label with the lowest F1 comes first."""
    lines = ["| label | precision | recall | F1 | in the data |", "|---|---|---|---|---|"]
    for label, score in sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0])):
        shares = " | ".join(f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        lines.append(f"| {_cell(label)} | {shares} | {score['support']:,} |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
