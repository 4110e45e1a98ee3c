"""What a model from sequence to sequence answers: an output with its score, and others beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class TokenAlignment(NamedTuple):
    """The tokens of a source, its end included, and of an output; for each token of the output the place, from 0, of
    the token of the source that it looks at most.
    """

    source: tuple[str, ...]
    output: tuple[str, ...]
    places: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """The alignment as JSON values."""
        return {"source_tokens": list(self.source), "tokens": list(self.output), "alignment": list(self.places)}


@dataclass(frozen=True, repr=False)
class Output:
    """A text that a model wrote for a source.

    - `score` is what outputs are ranked by: Σ ln P / length^α.
    - `log_probability` is Σ ln P of its tokens and its end, in nats.
    - `is_complete` is False if the text was cut at the most tokens.
    - `others` are the next best outputs, of which each has no others.
    - `ids` are its tokens, without the end.
    """

    text: str
    score: float
    log_probability: float
    is_complete: bool = True
    others: tuple[Output, ...] = field(default=(), repr=False)
    ids: tuple[int, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """The output as JSON values, without `others`."""
        return {
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "is_complete": self.is_complete,
        }

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.text!r} ({self.score:.3f})"
