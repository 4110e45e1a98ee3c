"""The job of training a model from sequence to sequence: reads pairs, makes task and model, writes the card's part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ensue.data.compact_texts import Texts
from ensue.data.pairs import Pair, Pairs, PairSource
from ensue.errors import DataError
from ensue.metrics.generation import GenerationScores, check_scorable
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.contract.data_set import Split
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
    most_written,
    usual_ratio,
)
from ensue.tasks.sequence_to_sequence.texts import Ids, PairCoder
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import Told


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
        self.split = split = Split.of(self._whole(source), data, self.read, examples="pairs")
        pairs, split.train = split.train, Pairs()  # which are not needed once they are ids
        self.valid_pairs = split.valid or Pairs()
        if self.valid_pairs and data.division == "sources":
            self.valid_pairs = Pairs(references(self.valid_pairs, self.layout))
        self.parts = EncoderDecoderParts(self._coder(pairs), self.contextual.shapes) if run is None else run.parts
        check_scorable()
        search_of(recipe.search, self.parts.coder.target)  # what cannot be is said before anything is computed
        train = self._encoded(pairs, most=data.target_tokens)
        if not len(train):
            raise DataError("no pair is left to learn from: data.target_tokens leaves out all", data.train)
        self.left_out = sum(len(pair.targets) for pair in pairs) - len(train)
        self.ratio = usual_ratio(train)
        firsts = [pair._replace(targets=pair.targets[:1]) for pair in self.valid_pairs]
        valid = self._encoded(firsts) if firsts else None
        self.task = SequenceToSequence(
            train, valid, begin_id=self.parts.coder.target.begin_id, sizes=recipe.train, sampled=self._sampled
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

    def _whole(self, source: PairSource) -> Pairs:
        """The training data."""
        pairs = Pairs(source)
        if not pairs:
            raise DataError("no pair in it", source.location)
        if without := next((pair for pair in pairs if self.layout.group and not pair.group.strip()), None):
            raise DataError(f"no group in {self.layout.group}", without.path, without.line)
        return pairs

    def _coder(self, pairs: Sequence[Pair]) -> PairCoder:
        data = self.recipe.data
        return PairCoder.train(
            pairs, self.recipe.tokenizer, self.recipe.target_tokenizer, names=data.names,
            source_tokens=data.source_tokens, copies=self.recipe.head.copying,
        )  # fmt: skip

    def _encoded(self, pairs: Iterable[Pair], *, most: int = 0) -> EncodedPairs:
        """Each source with each of its targets that has at most `most` tokens (0: with each)."""
        texts = Texts()
        found = EncodedPairs.of(self._ids(pairs, texts, most))
        if not self.contextual.origins:
            return found
        return EncodedPairs(found.sources, found.targets, self.contextual.awaited(texts.ragged, texts.words.values))

    def _ids(self, pairs: Iterable[Pair], texts: Texts, most: int) -> Iterator[tuple[Ids, Ids]]:
        """The ids of pairs. The words of their sources are added to `texts`, if they are needed."""
        for pair in pairs:
            source, targets = self.parts.coder.encode(pair.sources, pair.targets)
            for target in targets:
                if not 0 < most < len(target) - 1:
                    check_lengths(self.recipe, pair, len(source), len(target))
                    if self.contextual.origins:
                        texts.append(self.parts.coder.words(pair.sources))
                    yield source, target

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
        counts = np.bincount(self.task.train.targets.values, minlength=model.vocabulary_size)
        model.start_from_counts(torch.from_numpy(counts[: model.vocabulary_size]))  # the others are copied

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
        return pipeline.score_pairs(self.split.test)

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
