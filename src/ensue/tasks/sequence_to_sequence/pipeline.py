"""A model from sequence to sequence in use: predicts, scores and evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import starmap
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ensue.arguments import check_path, check_texts
from ensue.data.compact_texts import Ragged
from ensue.data.lines import Lines
from ensue.data.pairs import Pair, PairLayout, PairSource, with_references
from ensue.decode.hypotheses import Hypothesis
from ensue.decode.record import Candidate
from ensue.errors import EnsueError
from ensue.inspection.inspection import Inspection
from ensue.metrics.comparison import ScoredItems
from ensue.metrics.generation import GenerationScores, compare_texts, score_texts, scored_items
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.tasks.layered_reader import LayeredPipeline, LayeredReader
from ensue.tasks.length import most_read
from ensue.tasks.pipeline import Predictor
from ensue.tasks.portable import Portable
from ensue.tasks.sequence_to_sequence.alignment import align
from ensue.tasks.sequence_to_sequence.console import output_lines, outputs_json, score_lines, surprisal_json
from ensue.tasks.sequence_to_sequence.decoding import mean_surprisals, most_tokens, outputs, search_of
from ensue.tasks.sequence_to_sequence.inspection import inspect_output
from ensue.tasks.sequence_to_sequence.length import MOST_READ, check_lengths, most_written
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.outputs import Output, TokenAlignment
from ensue.tasks.sequence_to_sequence.portable import portable
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.sources import Sources
from ensue.tasks.sequence_to_sequence.texts import Ids, PairCoder
from ensue.tasks.sequence_to_sequence.windows import in_windows
from ensue.tasks.shards import EVERY, WHOLE, Shard
from ensue.tasks.words.contextual import NO_CONTEXT, ContextualFeatures
from ensue.text.scripts import are_unsplit


class SequencePipeline(LayeredPipeline, Predictor):
    """An encoder–decoder with its tokenizers. Several runs with the same tokenizers can answer together."""

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
        self.models: tuple[TextModel, ...] = (model,)
        self.recipes: tuple[SequenceToSequenceRecipe, ...] = (recipe,)
        self.contextual: tuple[ContextualFeatures, ...] = (contextual,)
        self.coder, self.recipe, self.layout, self.ratio, self.run = coder, recipe, layout, ratio, run
        self.search = search_of(recipe.search, coder)

    @property
    def num_texts(self) -> int:
        return len(self.layout.sources) or 1

    @property
    def num_scored(self) -> int:
        return self.num_texts + 1

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """The trained model in a run directory."""
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
        return LayeredReader(
            features,
            layers,
            coder.tokenizer,
            after=(coder.end_id,),
            begins=coder.tokenizer.before,
            most=most_read(self.recipe.encoder or self.recipe.decoder, MOST_READ),
        )

    def with_search(self, **changes: Any) -> Self:
        """The same model with another search, by the names of `ensue.decode.search.BeamSearch`. Raises EnsueError for
        others.
        """
        names = [field.name for field in fields(self.search)]
        for name in changes.keys() - names:
            raise EnsueError(f'a search has no "{name}"; expected one of {", ".join(names)}')
        other = copy(self)
        other.search = replace(self.search, **changes)
        return other

    def with_others(self, *others: SequencePipeline) -> Self:
        """An ensemble of this model and others, with the search of this one. It reads and writes no more than each of
        them can. Raises EnsueError unless all have the same tokens.
        """
        for other in others:
            if other.coder.to_json() != self.coder.to_json():
                raise EnsueError(f"{other.run}: other tokens than {self.run}; runs of an ensemble have the same ones")
        together = copy(self)
        together.models = (*self.models, *(model for other in others for model in other.models))
        together.contextual = (*self.contextual, *(one for other in others for one in other.contextual))
        together.recipes = (*self.recipes, *(recipe for other in others for recipe in other.recipes))
        together.ratio = max(self.ratio, *(other.ratio for other in others))
        return together

    def predict(self, texts: Iterable[str | Sequence[str]]) -> list[Output]:
        """The output for each source: a text, or the texts of its columns."""
        check_texts(texts, "texts, or of the columns of each")
        pairs = [Pair((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        return [output for _, output in self.answers(pairs)]

    def predict_json(self, texts: Iterable[str | Sequence[str]]) -> list[Any]:
        pairs = [Pair((text,) if isinstance(text, str) else tuple(text)) for text in texts]
        return list(outputs_json(self, self.answers(pairs)))

    def score_json(self, texts: Sequence[str]) -> Any:
        """The surprisal of a target, the last of `texts`, after its sources, as JSON values."""
        *sources, target = texts
        (found,) = self.surprisal([Pair(tuple(sources), (target,))])
        return surprisal_json(*found)

    def answers(self, pairs: Iterable[Pair], chosen: range | None = None) -> Iterator[tuple[Pair, Output]]:
        """Each pair with the output for its source, in order, in constant memory; or those of some windows."""
        wanted = EVERY if chosen is None else chosen
        for place, window in enumerate(in_windows(pairs)):
            if place >= wanted.stop:
                return
            if place >= wanted.start:
                sources = self.sources(window)
                yield from zip(window, map(self._output, window, self.hypotheses(sources)), strict=True)

    def aligned(self, answers: Sequence[tuple[Pair, Output]]) -> list[TokenAlignment | None]:
        """The tokens of each source and its output, with what each token of the output looks at most."""
        return align(self.model, self.coder, answers, self.sources([pair for pair, _ in answers]))

    def sources(self, pairs: Sequence[Pair]) -> Sources:
        """The sources of pairs, as the models read them."""
        ids = [self._source_ids(pair) for pair in pairs]
        return Sources.of(ids, [pair.sources for pair in pairs], self.coder, self.contextual)

    def hypotheses(self, sources: Sources, *, record: list[Candidate] | None = None) -> list[list[Hypothesis]]:
        """What the search finds for each source. All that it considered is added to `record`, for one source."""
        limits = self.limits(sources)
        return outputs(self.models, sources, self.search, coder=self.coder, limits=limits, record=record)

    def limits(self, sources: Sources) -> list[int]:
        """The most tokens of the output for each source."""
        return most_tokens(sources, self.ratio, self.search, most_written(*self.recipes))

    def _output(self, pair: Pair, hypotheses: Sequence[Hypothesis]) -> Output:
        best, *others = (
            Output(
                self.coder.decode(found.ids, pair.sources),
                found.score,
                found.log_probability,
                found.is_complete,
                ids=found.ids,
            )
            for found in hypotheses
        )
        return replace(best, others=tuple(others))

    def inspect(self, source: str | Sequence[str], target: str | None = None) -> Inspection:
        """What happens in the model with a source: while it writes its output, or a given target."""
        return inspect_output(self, source, target)

    def score(self, source: str | Sequence[str], target: str) -> float:
        """The surprisal -ln P(target | source) in nats, the end included."""
        pair = Pair((source,) if isinstance(source, str) else tuple(source), (target,))
        ((_, _, nats, _),) = self.surprisal([pair])
        return nats

    def surprisal(self, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str, float, int]]:
        """Each pair and each of its targets with the surprisal in nats and the number of tokens; in order."""
        for window in in_windows((pair, target) for pair in pairs for target in pair.targets):
            ids, targets = zip(*starmap(self._encoded, window), strict=True)
            sources = Sources.of(ids, [pair.sources for pair, _ in window], self.coder, self.contextual)
            written, nats = Ragged.of(targets), np.zeros(len(window))
            for rows, found in mean_surprisals(self.models, sources, written, begin_id=self.coder.target.begin_id):
                nats[rows] = found.double().sum(1).cpu().numpy()
            for (pair, target), total, tokens in zip(window, nats, written.lengths, strict=True):
                yield pair, target, float(total), int(tokens)

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
        self, location: str | Path | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool
    ) -> PairSource:
        """The pairs of a file, read as the training data were."""
        return PairSource(location, format=format or "", like=self.layout, encoding=encoding, is_labeled=is_labeled)

    def prediction_lines(
        self,
        location: str,
        *,
        format: str | None,
        encoding: str,
        as_json: bool,
        color: bool,
        shard: Shard | None = None,
    ) -> Iterator[str]:
        """The lines of `ensue predict`: an output for each source ("-": stdin), in order."""
        return output_lines(self, location, format=format, encoding=encoding, as_json=as_json, shard=shard or WHOLE)

    def score_lines(
        self, location: str, *, encoding: str = "utf-8", as_json: bool = False, format: str | None = None
    ) -> Iterator[str]:
        """The lines of `ensue score`: one for each pair ("-": stdin)."""
        return score_lines(self, location, format=format, encoding=encoding, as_json=as_json)

    def evaluate(
        self,
        location: str | Path,
        *,
        format: str | None = None,
        encoding: str = "utf-8",
        compare: SequencePipeline | None = None,
    ) -> GenerationScores:
        """The scores of the outputs for a file of pairs. `compare` tests the difference to another model's outputs."""
        check_path("the pairs", location)
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        return self.score_pairs(references(source), compare=compare)

    def score_pairs(self, pairs: Sequence[Pair], *, compare: SequencePipeline | None = None) -> GenerationScores:
        """The scores of the outputs for these pairs, all of whose targets are references."""
        texts, wanted, found = self._answered(pairs)
        nats = sum(nats for nats, _ in found) / sum(tokens for _, tokens in found)
        tokenize = self._tokenization(wanted)
        scores = score_texts(texts, wanted, tokenize=tokenize, nats_per_token=nats)
        if compare is None:
            return scores
        theirs = [output.text for _, output in compare.answers(pairs)]
        return replace(scores, comparison=compare_texts(texts, theirs, wanted, tokenize=tokenize))

    def scored_items(self, location: str | Path, *, format: str | None = None, encoding: str = "utf-8") -> ScoredItems:
        check_path("the pairs", location)
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        texts, wanted, found = self._answered(references(source))
        return scored_items(texts, wanted, tokenize=self._tokenization(wanted), nats=found)

    def _answered(self, pairs: Sequence[Pair]) -> tuple[list[str], list[tuple[str, ...]], list[tuple[float, int]]]:
        """The outputs for pairs, all targets of each, and the surprisal of the first with its number of tokens."""
        if not pairs:
            raise EnsueError("there is nothing to score: no pair")
        texts = [output.text for _, output in self.answers(pairs)]
        firsts = [pair._replace(targets=pair.targets[:1]) for pair in pairs]
        found = [(nats, tokens) for _, _, nats, tokens in self.surprisal(firsts)]
        return texts, [pair.targets for pair in pairs], found

    def _tokenization(self, references: Sequence[Sequence[str]]) -> str:
        """How sacrebleu cuts texts: into characters if most have no blank, by blanks if the model does, else 13a."""
        texts = [reference for given in references for reference in given]
        if are_unsplit(texts) or 2 * sum(" " in text for text in texts) < len(texts):
            return "char"
        return "none" if self.coder.target.tokenizer.kind == "words" else "13a"

    def portable(self) -> Portable:
        return portable(self)

    def protocol_of_search(self) -> str:
        """How outputs are found."""
        search = self.search
        how = "greedy" if search.width == 1 else f"beam {search.width}, length penalty {search.length_penalty:g}"
        return how + (f", {len(self.models)} models together" if len(self.models) > 1 else "")

    def protocol(self, scores: GenerationScores) -> str:
        """How the outputs were found, and how they are compared."""
        how, cut = self.protocol_of_search(), ""
        if "tok:char" in scores.signature:
            cut = "; BLEU and edits of characters, since most references have no blanks"
        elif "tok:none" in scores.signature:
            cut = "; BLEU of the file's own tokens"
        return f"{how}{cut}"

    def __repr__(self) -> str:
        tokens = f"{self.coder.source.vocabulary_size:,} → {self.coder.target.vocabulary_size:,} symbols"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


def references(source: PairSource) -> list[Pair]:
    """The pairs to score; the pronunciations of a word are its references."""
    return with_references(source) if source.layout.format == "cmudict" else list(source)
