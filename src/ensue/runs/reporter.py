"""What a run tells about itself while it goes on. The library prints nothing; a program passes a reporter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What is known before the first step."""

    data: str
    """How much there is to learn from."""
    unit: str
    """What is predicted: tokens, words or texts."""
    num_parameters: int
    model: str
    device: str
    threads: int
    precision: str
    protocol: str
    """How validation reads its text."""
    notes: tuple[str, ...] = ()
    """What a person should know: a batch that was cut down, unknown tokens."""
    resumed_from: str = ""


@dataclass(frozen=True)
class StepReport:
    """Where the run is; `share` is the used part of the budget."""

    step: int
    share: float
    seconds_left: float
    loss: float
    """Nats per prediction, of this step's batch."""
    speed: float
    """Predictions per second: tokens, words or texts, as `Facts.unit` says."""


@dataclass(frozen=True)
class Validation:
    """Scores on the validation data after `step` steps; `best` says that they are the best so far."""

    step: int
    seconds: float
    scores: dict[str, Any]
    summary: str
    """The scores in one line."""
    best: bool
    sample: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Path
    task: str
    step: int
    seconds: float
    reason: str
    """"finished", "stopped early" or "interrupted"."""
    best_step: int
    valid: dict[str, Any] | None
    test: dict[str, Any] | None
    valid_summary: str = ""
    test_summary: str = ""
    """The same in one line each."""


class Reporter:
    """Hears everything and says nothing; override what you want to show."""

    def started(self, facts: Facts) -> None: ...

    def noted(self, note: str) -> None: ...

    def stepped(self, report: StepReport) -> None: ...

    def validated(self, validation: Validation) -> None: ...

    def finished(self, outcome: Outcome) -> None: ...
