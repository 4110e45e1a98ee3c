"""The job of training a model from sequence to sequence: reads pairs, makes task and model, writes the card's part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from ensue.data.compact_texts import Columns, RaggedRows, Texts
from ensue.data.examples import Pair, PairSource
from ensue.data.examples.example import Pairs, StoredPairs
from ensue.data.kept_columns import Kept, kept
from ensue.errors import DataError
from ensue.metrics.generation import GenerationScores, check_scorable
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.contract.data_set import Split, files_named, key_of
from ensue.tasks.contract.job import Job
from ensue.tasks.sequence_to_sequence.decoding import most_tokens, outputs, search_of
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.outputs import sample_lines, score_table
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline, references
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.task import (
    EncodedPairs,
    SequenceToSequence,
    Sources,
    check_lengths,
    longest_read,
    most_written,
    usual_ratio,
)
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import LayersOfTexts, Told


def stored(columns: Columns) -> StoredPairs:
    """The pairs of a part of the data, as texts."""
    return StoredPairs(columns.columns["pairs"].ragged())


class SequenceToSequenceJob(Job[TextModel]):
    """Trains a model from sequence to sequence."""

    unit: ClassVar[str] = "tokens"
    recipe: SequenceToSequenceRecipe
    parts: EncoderDecoderParts
    task: SequenceToSequence

    def __init__(self, recipe: SequenceToSequenceRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of pairs, or two files with a comma between")
        self.origins = origins_for(recipe.origins, run)
        self.contextual = ContextualFeatures.of(recipe.features, self.origins, torch.device("cpu"))
        source = self._source(data.train, group=data.group)
        self.layout, self.fingerprint = source.layout, source.fingerprint()
        read = cache(lambda: self._read(source))
        coder = self._coder(read) if run is None else run.parts.coder
        self.parts = EncoderDecoderParts(coder, self.contextual.shapes) if run is None else run.parts
        check_scorable()
        search_of(recipe.search, coder.target)  # what cannot be is said before anything is computed
        key = ["pairs", self.fingerprint, coder.to_json(), longest_read(recipe), bool(self.origins)]
        self.split = split = Split.kept(Columns, data, key, lambda: self._columns(read()))
        train = self._encoded(split.train)
        self.left_out, self.ratio = split.facts["left_out"], split.facts["ratio"]
        self.valid_pairs: Sequence[Pair] = Pairs() if split.valid is None else stored(split.valid)
        valid = None if split.valid is None else self._encoded(split.valid)
        self.task = SequenceToSequence(
            train, valid, begin_id=coder.target.begin_id, sizes=recipe.train, sampled=self._sampled
        )

    def _source(self, location: str, **options: Any) -> PairSource:
        data = self.recipe.data
        return PairSource(
            location, format="" if data.format == "auto" else data.format, sources=data.sources, targets=data.targets,
            encoding=data.encoding, **options,
        )  # fmt: skip

    def read(self, location: str) -> Pairs:
        """Validation or test data, in the format of the training data."""
        source = self._source(location, like=self.layout)
        return Pairs(references(source, source.layout))

    def _read(self, source: PairSource) -> Split[Pairs]:
        """All pairs, read from files."""
        pairs = Pairs(source)
        if not pairs:
            raise DataError("no pair in it", source.location)
        split = Split.of(pairs, self.recipe.data, self.read, examples="pairs")
        if split.valid and self.recipe.data.division != "rows":
            split.valid = Pairs(references(split.valid, self.layout))
        return split

    def _coder(self, read: Callable[[], Split[Pairs]]) -> PairCoder:
        """The tokenizers of the training data, which are in the cache if they are large."""
        recipe, data = self.recipe, self.recipe.data
        tables = [recipe.tokenizer.model_dump(), recipe.target_tokenizer and recipe.target_tokenizer.model_dump()]

        def trained() -> Kept:
            coder = PairCoder.train(
                read().train, recipe.tokenizer, recipe.target_tokenizer, names=data.names,
                source_tokens=data.source_tokens, copies=recipe.head.copying,
            )  # fmt: skip
            return Kept({}, {"coder": coder.to_json()})

        key = ["coder", *key_of(data), self.fingerprint, tables, recipe.head.copying]
        return PairCoder.from_json(kept(key, files_named(data), trained).facts["coder"])

    def _columns(self, split: Split[Pairs]) -> Split[Columns]:
        """The ids of all pairs, and validation and test data as texts, too."""
        train = self._ids(split.train, self.recipe.data.target_tokens)
        found, valid, test = self._pairs(train), None, None
        if not len(found):
            raise DataError("no pair is left to learn from: data.target_tokens leaves out all", self.recipe.data.train)
        if split.valid:
            firsts = self._ids(pair._replace(targets=pair.targets[:1]) for pair in split.valid)
            valid = Columns({**firsts.columns, "pairs": StoredPairs.rows_of(split.valid)})
        if split.test:
            test = Columns({"pairs": StoredPairs.rows_of(split.test)})
        left_out = sum(len(pair.targets) for pair in split.train) - len(found)
        facts = {"left_out": left_out, "ratio": usual_ratio(found)}
        return Split(train, valid, split.valid_from, test, split.notes, facts)

    def _ids(self, pairs: Iterable[Pair], most: int = 0) -> Columns:
        """The ids of each source and target of at most `most` tokens (0: any), and sources' words if needed."""
        sources, targets, words = RaggedRows(), RaggedRows(), Texts()
        for pair in pairs:
            source, outputs = self.parts.coder.encode(pair.sources, pair.targets)
            for target in outputs:
                if not 0 < most < len(target) - 1:
                    check_lengths(self.recipe, pair, len(source), len(target))
                    sources.append(source)
                    targets.append(target)
                    if self.contextual.origins:
                        words.append(self.parts.coder.words(pair.sources))
        own = {"words": words} if self.contextual.origins else {}
        return Columns({"sources": sources, "targets": targets, **own})

    def _encoded(self, columns: Columns) -> EncodedPairs:
        """Pairs as the model reads them."""
        words = columns.columns.get("words")
        layers = () if words is None else self.contextual.awaited(words.ragged, words.words.values)
        return self._pairs(columns, layers)

    def _pairs(self, columns: Columns, layers: tuple[LayersOfTexts, ...] = ()) -> EncodedPairs:
        sources, targets = (columns.columns[side].ragged() for side in ("sources", "targets"))
        return EncodedPairs(sources, targets, layers)

    def _sampled(self, model: TextModel) -> str:
        """The outputs for some validation sources, with their references, a line each."""
        coder, pairs = self.parts.coder, self.valid_pairs[: self.recipe.train.samples]
        if not pairs:
            return ""
        ids, columns = [coder.encode(pair.sources)[0] for pair in pairs], [pair.sources for pair in pairs]
        sources = Sources.of(ids, columns, coder, [self.contextual])
        search = search_of(self.recipe.search, coder.target, width=1)
        limits = most_tokens(sources, self.ratio, search, most_written(self.recipe.decoder))
        found = outputs([model], sources, search, target=coder.target, limits=limits)
        return sample_lines(
            (" | ".join(pair.sources), coder.decode(hypotheses[0].ids, pair.sources), pair.targets[0])
            for pair, hypotheses in zip(pairs, found, strict=True)
        )

    @property
    def data(self) -> str:
        train, valid, coder = self.task.train, self.task.valid, self.parts.coder
        size = coder.source.vocabulary_size
        sizes = f"{size:,} symbols of both sides"
        if not coder.is_joint:
            sizes = f"{size:,} symbols of the source, {coder.target.vocabulary_size:,} of the target"
        return (
            f"{len(train):,} training pairs of {int(train.sources.lengths.sum()):,} and "
            f"{int(train.targets.lengths.sum()):,} tokens, {len(valid) if valid else 0:,} for validation; {sizes} "
            f"({self.layout})"
        )

    @property
    def notes(self) -> list[str]:
        data, notes = self.recipe.data, []
        if self.left_out:
            notes.append(f"{self.left_out:,} pairs are left out: their targets have over {data.target_tokens:,} tokens")
        if data.source_tokens and (cut := np.count_nonzero(self.task.train.sources.lengths > data.source_tokens)):
            notes.append(f"{cut:,} sources are cut to their first {data.source_tokens:,} tokens")
        return [*notes, *self.split.notes]

    def work_out(self, device: torch.device, told: Told) -> None:
        self.contextual.work_out(device, told)

    def prepare(self, model: TextModel) -> None:
        counts, size = np.zeros(model.vocabulary_size, np.int64), model.vocabulary_size
        for ids, _ in self.task.train.targets.parts():
            counts += np.bincount(ids, minlength=size)[:size]  # the others are copied
        model.start_from_counts(torch.from_numpy(counts))

    def config(self) -> dict[str, Any]:
        coder = self.parts.coder
        return {
            "source_size": coder.source.vocabulary_size,
            "target_size": coder.target.vocabulary_size,
            "layout": self.layout.to_json(),
            "ratio": self.ratio,
            "contextual": self.contextual.shapes,
        }

    def test(self, model: TextModel) -> GenerationScores | None:
        if not self.split.test:
            return None
        pipeline = SequencePipeline(
            model, self.parts.coder, recipe=self.recipe, layout=self.layout, ratio=self.ratio,
            contextual=self.contextual,
        )  # fmt: skip
        return pipeline.score_pairs(stored(self.split.test))

    def about(self) -> str:
        kinds = [
            self.recipe.tokenizer.kind,
            *([self.recipe.target_tokenizer.kind] if self.recipe.target_tokenizer else []),
        ]
        return f"from {' to '.join('subwords' if kind == 'bpe' else kind for kind in kinds)}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores)

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}` ({self.layout}), {len(self.task.train):,} pairs"]
        lines.append(
            f"- validation: {self.split.valid_from}"
            + (f", {len(self.valid_pairs):,} sources" if self.valid_pairs else "")
        )
        return [*lines, *([f"- test: `{data.test}`, {len(self.split.test):,} sources"] if self.split.test else [])]
