"""The scores of each label as a table."""

from __future__ import annotations

from typing import Any


def label_table(per_label: dict[str, dict[str, Any]]) -> list[str]:
    """In Markdown, the label with the lowest F1 first."""
    return [
        "| label | precision | recall | F1 | in the data |",
        "|---|---|---|---|---|",
        *(
            f"| {_cell(label)} | {100 * score['precision']:.1f} | {100 * score['recall']:.1f} | {100 * score['f1']:.1f} "
            f"| {score['support']:,} |"
            for label, score in sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0]))
        ),
    ]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
