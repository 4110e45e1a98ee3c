"""Outputs of a model from sequence to sequence: with scores and others beside them, token by token, and on the card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ensue.inspection.notebook import Shown
from ensue.metrics.generation import GenerationScores
from ensue.runs import reporter
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.special_tokens import TokenizerWithSpecials


class TokenAlignment(NamedTuple):
    """The tokens of a source and an output, and for each output token the source token it attends to most."""

    source: tuple[str, ...]
    output: tuple[str, ...]
    places: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """The alignment as JSON values."""
        return {"source_tokens": list(self.source), "tokens": list(self.output), "alignment": list(self.places)}


@dataclass(frozen=True, repr=False)
class Output(Shown):
    """A text that a model wrote for a source.

    - `score` is what outputs are ranked by: Σ ln P / length^α.
    - `log_probability` is Σ ln P of its tokens and its end, in nats.
    - `is_complete` is False if the text was cut at the most tokens.
    - `others` are the next best outputs, of which each has no others.
    - `ids` are its tokens, without the end.
    - `lacks` are the targets of a glossary that should stand in it and do not; with a `!` those that should not.
    """

    text: str
    score: float
    log_probability: float
    is_complete: bool = True
    others: tuple[Output, ...] = field(default=(), repr=False)
    ids: tuple[int, ...] = field(default=(), repr=False)
    lacks: tuple[str, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """The output as JSON values, without `others`."""
        return {
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "is_complete": self.is_complete,
            **({"lacks": list(self.lacks)} if self.lacks else {}),
        }

    def _rows(self) -> list[dict[str, Any]]:
        ranked = enumerate((self, *self.others), start=1)
        return [{**({"rank": rank} if self.others else {}), **one.as_json()} for rank, one in ranked]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.text!r} ({self.score:.3f})"


class Symbols:
    """The texts of ids, also of words that can be copied: a subword inside a word begins with a dot, a blank is ␣."""

    def __init__(self, coder: PairCoder, columns: Sequence[str], *, is_source: bool = False) -> None:
        self.side = coder.source if is_source else coder.target
        self.words = {id: word for word, id in coder.unknown_words(columns).items()}

    def of(self, id: int) -> str:
        """The text of an id."""
        if id in self.words:
            return self.words[id]
        return shown(self.side, id)


def shown(tokenizer: TokenizerWithSpecials, id: int) -> str:
    """The text of an id of a tokenizer."""
    symbol = tokenizer.symbol(id)
    if tokenizer.tokenizer.kind in ("bpe", "numbered") and symbol[:1].isalnum():
        return f"·{symbol}"
    return symbol.strip() or {" ": "␣", "\n": "⏎"}.get(symbol, "␣")


def score_table(scores: dict[str, dict[str, Any]]) -> list[str]:
    """The scores by data as a table in Markdown, with the signatures of BLEU."""
    names = {name for found in scores.values() for name in found}
    columns = {name: column for name, column in GenerationScores.on_card.items() if name in names}
    lines = reporter.score_table(scores, columns)
    signatures = {found["signature"] for found in scores.values() if "signature" in found}
    return [*lines, *(f"\n{signature}" for signature in signatures)]


def sample_lines(outputs: Iterable[tuple[str, str, str]]) -> str:
    """Sources, their outputs and what is right, a line each."""
    return "\n".join(f"{_line(source)} → {_line(text)} ({_line(right)})" for source, text, right in outputs)


def _line(text: str) -> str:
    """The text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."
