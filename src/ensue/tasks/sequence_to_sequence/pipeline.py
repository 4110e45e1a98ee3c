"""A model from sequence to sequence in use: predicts, scores and evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, Self

import torch

from ensue.arguments import check_texts
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair, PairLayout, PairSource, with_references
from ensue.data.files import Location, one_location
from ensue.data.lines import Lines
from ensue.data.sources import is_typed
from ensue.errors import EnsueError
from ensue.extension import with_options
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.generation import GenerationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import WHOLE, Shard, most_read
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.sequence_to_sequence.description import describe
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.outputs import Output, TokenAlignment
from ensue.tasks.sequence_to_sequence.page import inspect_output
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.task import MOST_READ, Sources, check_lengths
from ensue.tasks.sequence_to_sequence.texts import Ids, PairCoder
from ensue.tasks.sequence_to_sequence.view import align
from ensue.tasks.sequence_to_sequence.writer import Writer, output_lines, outputs_json, score_lines, surprisal_json
from ensue.tasks.texts.framing import Framing
from ensue.tasks.vectors.contextual import LayeredPipeline, LayeredReader
from ensue.tasks.words.contextual import NO_CONTEXT, ContextualFeatures


class SequencePipeline(LayeredPipeline, Writer[Pair]):
    """An encoder–decoder with its tokenizers. Several runs with the same tokenizers can answer together."""

    unit = "pair"

    def __init__(
        self,
        model: TextModel,
        coder: PairCoder,
        *,
        recipe: SequenceToSequenceRecipe,
        layout: PairLayout,
        ratio: float,
        contextual: ContextualFeatures = NO_CONTEXT,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model.eval())
        self.recipe, self.run = recipe, run
        self.begin_writing(coder.target, ratio)
        self.contextual: tuple[ContextualFeatures, ...] = (contextual,)
        self.coder, self.layout = coder, layout

    @property
    def alike(self) -> Any:
        return self.coder.to_json()

    @property
    def num_texts(self) -> int:
        return len(self.layout.sources) or 1

    @property
    def num_scored(self) -> int:
        return self.num_texts + 1

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe, parts, config = directory.recipe, directory.parts, directory.config
        assert isinstance(recipe, SequenceToSequenceRecipe)
        assert isinstance(parts, EncoderDecoderParts)
        return cls(
            directory.model(device), parts.coder, recipe=recipe, layout=PairLayout.from_json(config["layout"]),
            ratio=config["ratio"], contextual=ContextualFeatures.within(directory, device), run=directory.path,
        )  # fmt: skip

    @property
    def layered_reader(self) -> LayeredReader:
        if self.contextual[0].origins:
            raise EnsueError(f"{self.run}: it reads features.contextual itself, and gives no vectors to others")
        features, layers = self.model.readers
        coder = self.coder.source
        framing = Framing.apart(
            coder.tokenizer,
            end=(coder.end_id,),
            first=coder.tokenizer.before,
            most=most_read(self.recipe.encoder or self.recipe.decoder, MOST_READ),
            is_causal=layers.is_causal,
        )
        return LayeredReader(features, layers, framing)

    def with_others(self, *others: Self) -> Self:
        together = super().with_others(*others)
        together.contextual = (*self.contextual, *(one for other in others for one in other.contextual))
        return together

    def predict(self, texts: Iterable[str | Sequence[str]], **options: Any) -> list[Output]:
        """Return the output for each source: a text, or the texts of its columns.

        `options` are those that extensions add to `ensue predict`.
        """
        if options:
            changed: Self = with_options(self, "predict", options)
            return changed.predict(texts)
        check_texts(texts, "texts, or of the columns of each")
        pairs = [Pair((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        return Answers(output for _, output in self.answers(pairs))

    def predict_json(self, texts: Iterable[str | Sequence[str]]) -> list[Any]:
        pairs = [Pair((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        return list(outputs_json(self.answers(pairs), self.aligned, n_best=self.search.n_best))

    def score_json(self, texts: Sequence[str]) -> Any:
        """The surprisal of a target, the last of `texts`, after its sources, as JSON values."""
        *sources, target = texts
        (found,) = self.surprisal([Pair(tuple(sources), (target,))])
        return surprisal_json(*found)

    def aligned(self, answers: Sequence[tuple[Pair, Output]]) -> list[TokenAlignment | None]:
        """Return the tokens of each source and its output, with the source token of each output token's attention."""
        for adapter in reversed(self.adapters):
            answers = [(adapter.adapted(pair), output) for pair, output in answers]
        return align(self.model, self.coder, answers, self.sources([pair for pair, _ in answers]))

    def sources(self, pairs: Sequence[Pair]) -> Sources:
        ids = [self._source_ids(pair) for pair in pairs]
        return Sources.of(ids, [pair.sources for pair in pairs], self.coder, self.contextual)

    def encoded(self, pairs: Sequence[tuple[Pair, str]]) -> tuple[Sources, Ragged]:
        ids, targets = zip(*starmap(self._encoded, pairs), strict=True)
        return Sources.of(ids, [pair.sources for pair, _ in pairs], self.coder, self.contextual), Ragged.of(targets)

    def texts_of(self, pair: Pair) -> Sequence[str]:
        return pair.sources

    def decoded(self, ids: Sequence[int], item: Pair) -> str:
        return self.coder.decode(ids, item.sources)

    def inspect(self, source: str | Sequence[str], target: str | None = None) -> Inspection:
        """The page about a source in this model, while it writes its output or a given target."""
        return inspect_output(self, self.coder, source, target)

    def score(self, source: str | Sequence[str], target: str) -> float:
        """The surprisal -ln P(target | source) in nats, the end included."""
        pair = Pair((source,) if isinstance(source, str) else tuple(source), (target,))
        ((_, _, nats, _),) = self.surprisal([pair])
        return nats

    def _encoded(self, pair: Pair, target: str) -> tuple[Ids, Ids]:
        source, (ids,) = self.coder.encode(pair.sources, [target])
        self.check_lengths(pair, len(source), len(ids))
        return source, ids

    def _source_ids(self, pair: Pair) -> Ids:
        ids, _ = self.coder.encode(pair.sources)
        self.check_lengths(pair, len(ids))
        return ids

    def check_lengths(self, pair: Pair, source: int, target: int = 0) -> None:
        """Raises DataError if a model does not read so many tokens of the source or the target."""
        for recipe in self.recipes:
            check_lengths(recipe, pair, source, target)

    def source(
        self, location: Location | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool
    ) -> PairSource:
        """The pairs of a file, read as the training data were."""
        return PairSource(location, format=format or "", like=self.layout, encoding=encoding, is_labeled=is_labeled)

    def prediction_lines(
        self, location: str, *, format: str | None, encoding: str, as_json: bool, color: bool, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        """The lines of `ensue predict`: an output for each source ("-": stdin), in order."""
        source = self._opened(location, format=format, encoding=encoding, is_labeled=False)
        aligner = self.aligned if as_json else None
        return output_lines(self, source, typed=is_typed(location), aligner=aligner, shard=shard)

    def score_lines(
        self, location: str, *, encoding: str = "utf-8", as_json: bool = False, format: str | None = None
    ) -> Iterator[str]:
        """The lines of `ensue score`: one for each pair ("-": stdin)."""
        source = self._opened(location, format=format, encoding=encoding, is_labeled=True)
        return score_lines(self, source, as_json=as_json)

    def evaluate(
        self,
        location: Location,
        *,
        format: str | None = None,
        encoding: str = "utf-8",
        compare: SequencePipeline | None = None,
    ) -> GenerationScores:
        """The scores of the outputs for a file of pairs. `compare` tests the difference to another model's outputs."""
        location = one_location(location, "the pairs")
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        return self.score_pairs(references(source, source.layout), compare=compare)

    def scored_items(self, location: Location, *, format: str | None = None, encoding: str = "utf-8") -> ScoredItems:
        location = one_location(location, "the pairs")
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        return self.items_scored(references(source, source.layout))

    def describe(self) -> ModelDescription:
        if self.adapters:
            names = " and ".join(f"no {adapter.name}" for adapter in self.adapters)
            raise EnsueError(f"{self.run}: the program of an export has {names}; `ensue predict` has")
        return describe(self, self.coder, self.contextual[0])

    def __repr__(self) -> str:
        tokens = f"{self.coder.source.vocabulary_size:,} → {self.coder.target.vocabulary_size:,} symbols"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


def references(pairs: Iterable[Pair], layout: PairLayout) -> list[Pair]:
    """The pairs to score; the pronunciations of a word are its references."""
    return with_references(pairs) if layout.format == "cmudict" else list(pairs)
