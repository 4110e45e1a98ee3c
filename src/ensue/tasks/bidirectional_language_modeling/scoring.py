"""The objective of a bidirectional language model, and its score: the perplexity in each direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ensue.data.corpus.batches import Blocks, Segments
from ensue.metrics.comparison import ItemRows, ScoredItems, ratio
from ensue.metrics.language import LanguageScores
from ensue.metrics.scores import Scores, finite
from ensue.models.bidirectional import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    OneDirection,
)
from ensue.models.modules import evaluating
from ensue.models.word_specification import NoOutput, SoftmaxOutput
from ensue.nn import SoftmaxHead
from ensue.tasks.bidirectional_language_modeling.task import BidirectionalLanguageModeling, TwoWayRows
from ensue.tasks.bidirectional_language_modeling.words import LINE_END, Ids, WordReader, WordText, word_vectors
from ensue.tasks.contract.token_scores import NatsOfParts
from ensue.tasks.texts.drawn_words import notes_on_sampling, sampled_words
from ensue.tasks.texts.scoring import default_parts, read

Progress = Callable[[int], None]


@dataclass(frozen=True)
class TwoWayScores(Scores):
    """The scores of a text that is read from left to right, and from right to left."""

    forward: LanguageScores
    backward: LanguageScores

    @property
    def both(self) -> LanguageScores:
        """The scores of all predictions of both directions."""
        return self.forward + self.backward

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`; the means are those over both directions."""
        return {
            "nats_per_token": finite(self.both.nats_per_token),
            "perplexity": finite(self.both.perplexity),
            "perplexity_forward": finite(self.forward.perplexity),
            "perplexity_backward": finite(self.backward.perplexity),
            "tokens": self.forward.tokens,
            "characters": self.forward.characters,
            "unknown": self.forward.unknown,
        }

    def summary(self) -> str:
        return (
            f"{self.both.nats_per_token:.4f} nats per token, perplexity {self.both.perplexity:,.2f} "
            f"(forward {self.forward.perplexity:,.2f}, backward {self.backward.perplexity:,.2f})"
        )


@torch.inference_mode()
def score_both_ways(
    model: BidirectionalLanguageModel,
    head: SoftmaxHead,
    text: WordText,
    reader: WordReader,
    *,
    progress: Progress | None = None,
    heard: Callable[[Ids, Tensor], object] | None = None,
) -> TwoWayScores:
    """The perplexity of a text in each direction, read as those of language models are (`tasks.texts.scoring`).

    `heard` is given the nats of some positions at a time, those of each direction.
    """
    with evaluating(model):
        vectors = word_vectors(model, reader, text.words)
        found = []
        for layers, boundary, tokens in (
            (model.rightward, TEXT_BEGIN, text.tokens),
            (model.leftward, TEXT_END, text.tokens.reversed()),
        ):
            table = vectors[FIRST_WORD:].clone()
            table[LINE_END] = vectors[boundary]
            way = OneDirection(table, layers, head, torch.from_numpy(text.ids).to(table.device))
            places = heard if heard is None or tokens is text.tokens else from_the_end(heard, len(tokens))
            scores = read(way, tokens, start_id=LINE_END, progress=progress, heard=places)
            found.append(replace(scores, unknown=text.unknown))
    return TwoWayScores(*found)


def from_the_end(heard: Callable[[Ids, Tensor], object], size: int) -> Callable[[Ids, Tensor], object]:
    """The function `heard` for a text of `size` tokens that is read from its end."""
    return lambda positions, nats: heard(size - 1 - positions, nats)


class Perplexity:
    """The objective of a bidirectional language model: each word, from either side."""

    def __init__(self, head: SoftmaxOutput | NoOutput) -> None:
        self.head = head

    def task(
        self, batches: Segments | Blocks, rows: TwoWayRows, counts: Ids, **others: Any
    ) -> BidirectionalLanguageModeling:
        """The task, for the counts of the words in the vocabulary."""
        assert isinstance(self.head, SoftmaxOutput)
        sampled = sampled_words(self.head, counts, batches.seed)
        return BidirectionalLanguageModeling(batches, rows, sampled=sampled, **others)

    def notes(self, vocabulary_size: int) -> list[str]:
        """Remarks on the head."""
        return notes_on_sampling(self.head, vocabulary_size) if isinstance(self.head, SoftmaxOutput) else []

    def score(self, model: Any, text: WordText, reader: WordReader, **told: Any) -> TwoWayScores:
        """The scores of a text; see `score_both_ways`."""
        return score_both_ways(model, model.head, text, reader, **told)

    def items(self, model: Any, text: WordText, reader: WordReader) -> ScoredItems:
        """The nats per token, whose items are blocks of the text."""
        rows, nats = ItemRows(), NatsOfParts.of_blocks(len(text.tokens))
        self.score(model, text, reader, heard=nats)
        for total, words in zip(nats.totals, nats.tokens, strict=True):
            rows.append((total, 2 * words))
        return rows.scored("blocks", {"nats_per_token": ratio(0, 1)})

    def protocol(self, tokens: int) -> str:
        """A sentence that says how a text of so many tokens is scored."""
        return f"read once by each direction, state carried, in {default_parts(tokens)} parts with a warm-up each"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str] | None:
        """The table of scores on the card; None for the one of all tasks."""
        lines = [
            "| text | nats per token | perplexity | forward | backward | tokens | unknown |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, found in scores.items():
            numbers = [found[key] for key in ("perplexity", "perplexity_forward", "perplexity_backward")]
            shown = " | ".join("-" if number is None else f"{number:.2f}" for number in numbers)
            lines.append(
                f"| {name} | {found['nats_per_token']:.4f} | {shown} | {found['tokens']:,} | {found['unknown']:,} |"
            )
        return lines
