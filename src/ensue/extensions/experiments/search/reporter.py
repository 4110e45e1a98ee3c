"""Notes and trials of a search, line by line."""

from __future__ import annotations

import sys

from ensue.extensions.experiments.search.search import TrialResult
from ensue.runs.reporter import Reporter


class SearchReporter(Reporter):
    """Says the notes of the runs, each once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def noted(self, note: str) -> None:
        if note not in self.said:
            self.said.add(note)
            print(f"note: {note}", file=sys.stderr)


def trial_line(result: TrialResult) -> str:
    """A trial in one line."""
    values = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in
                      result.values.items())  # fmt: skip
    score = "" if result.score is None else f" {result.score:.4f}"
    return f"trial {result.number}: {result.state}{score}  {values}"
