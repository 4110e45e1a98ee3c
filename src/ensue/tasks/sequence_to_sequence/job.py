"""The training of a sequence-to-sequence model."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np
import torch

from ensue.data.cached_columns import CachedColumns, cache_large_columns
from ensue.data.compact_texts import Columns, RaggedRows, Texts
from ensue.data.examples import Pair, PairSource
from ensue.data.examples.layout import Pairs, StoredPairs
from ensue.errors import DataError, RecipeError, pluralize
from ensue.metrics.generation import GenerationScores, check_scorable
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory, origins_for
from ensue.tasks.contract.data_set import Split, data_cache_key, data_files
from ensue.tasks.contract.job import Job, check_same_shape, copy_rows
from ensue.tasks.sequence_to_sequence import task as sequences
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline, references
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import PairCoder, with_other_stems
from ensue.tasks.sequence_to_sequence.writer import sample_lines, score_table
from ensue.tasks.words.pipeline import ContextualFeatures, WordLayers

TARGET_ROWS = ("target.weight", "head.weight", "head.bias", "head.head.weight", "head.head.bias")
"""The parameters with a row for each symbol of the target."""


def stored_pairs(columns: Columns) -> StoredPairs:
    """Return the texts of the pairs of a split."""
    return StoredPairs(columns.columns["pairs"].ragged())


class SequenceToSequenceJob(Job[TextModel]):
    """The job of a sequence-to-sequence model."""

    unit: ClassVar[str] = "tokens"
    recipe: SequenceToSequenceRecipe
    parts: EncoderDecoderParts
    task: sequences.SequenceToSequence

    def __init__(self, recipe: SequenceToSequenceRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of pairs, or two files, separated by a comma")
        self.origins = origins_for(recipe.origins, run)
        self.continued = next((origin for origin in self.origins if origin.path == recipe.decoder.origin), None)
        if self.continued is not None:
            check_same_shape(recipe, self.continued, ("tokens", "encoder", "directions", "decoder", "attention"))
        self.contextual = ContextualFeatures.of(recipe.features, self.origins, torch.device("cpu"))
        source = self._open_pairs(data.train, group=data.group)
        self.layout, self.fingerprint = source.layout, source.fingerprint()
        read = cache(lambda: self._read_split(source))
        coder = self._train_coder(read) if run is None else run.parts.coder
        self.parts = EncoderDecoderParts(coder, self.contextual.shapes) if run is None else run.parts
        check_scorable()
        sequences.search_of(recipe.search, coder.target)  # raises EnsueError for invalid settings before the encoding
        key = ["pairs", self.fingerprint, coder.to_json(), sequences.max_lengths(recipe), bool(self.contextual.origins)]
        self.split = split = Split.cached(Columns, data, key, lambda: self._encode_split(read()))
        train = self.encode(split.train)
        self.left_out, self.ratio = split.facts["left_out"], split.facts["ratio"]
        self.valid_pairs: Sequence[Pair] = Pairs() if split.valid is None else stored_pairs(split.valid)
        valid = None if split.valid is None else self.encode(split.valid)
        self.task = sequences.SequenceToSequence(
            train, valid, begin_id=coder.target.begin_id, sizes=recipe.train, sampler=self._sample_outputs
        )

    def _open_pairs(self, location: str, **options: Any) -> PairSource:
        data = self.recipe.data
        return PairSource(
            location, format="" if data.format == "auto" else data.format, sources=data.sources, targets=data.targets,
            encoding=data.encoding, incomplete=data.incomplete, **options,
        )  # fmt: skip

    def read(self, location: str) -> Pairs:
        """Return the pairs of validation or test data, in the format of the training data."""
        source = self._open_pairs(location, like=self.layout)
        return Pairs(references(source, source.layout))

    def _read_split(self, source: PairSource) -> Split[Pairs]:
        """Return training, validation and test pairs as texts."""
        pairs = Pairs(source)
        if not pairs:
            raise DataError("no pairs", source.location)
        split = Split.of(pairs, self.recipe.data, self.read, examples="pairs")
        if split.valid and self.recipe.data.division != "rows":
            split.valid = Pairs(references(split.valid, self.layout))
        split.train = Pairs(with_other_stems(split.train, self.recipe.data.other_stems))
        return split

    def _train_coder(self, read: Callable[[], Split[Pairs]]) -> PairCoder:
        """Train the tokenizers, or read them from the cache. Tokenizers of `decoder.from` get new symbols."""
        recipe, data, origin = self.recipe, self.recipe.data, self.continued
        new, extended = data.train, None
        if origin is not None:
            new, extended = origin.new_locations(data.train), origin.run.parts.coder
            if recipe.tokenizer.kind == "published":
                return cast("PairCoder", extended)
        tables = [recipe.tokenizer.model_dump(), recipe.target_tokenizer and recipe.target_tokenizer.model_dump()]

        def train_coder() -> CachedColumns:
            pairs: Sequence[Pair] = read().train
            if new != data.train:
                new_pairs = set(self._open_pairs(new, group=data.group))
                pairs = [pair for pair in pairs if pair in new_pairs]
            coder = PairCoder.train(
                pairs, recipe.tokenizer, recipe.target_tokenizer, names=data.names, source_tokens=data.source_tokens,
                copies=recipe.head.copying, extended=extended,
            )  # fmt: skip
            return CachedColumns({}, {"coder": coder.to_json()})

        key = ["coder", *data_cache_key(data), self.fingerprint, tables, recipe.head.copying]
        key += [] if extended is None else [new, extended.to_json()]
        return PairCoder.from_json(cache_large_columns(key, data_files(data), train_coder).metadata["coder"])

    def _encode_split(self, split: Split[Pairs]) -> Split[Columns]:
        """Return the ids of training and validation pairs, and the texts of validation and test pairs."""
        train = self._encode_pairs(split.train, self.recipe.data.target_tokens)
        pairs, valid, test = self._join_sides(train), None, None
        if not len(pairs):
            raise DataError("no training pair: all targets are longer than data.target_tokens", self.recipe.data.train)
        if split.valid:
            firsts = self._encode_pairs(pair._replace(targets=pair.targets[:1]) for pair in split.valid)
            valid = Columns({**firsts.columns, "pairs": StoredPairs.rows_of(split.valid)})
        if split.test:
            test = Columns({"pairs": StoredPairs.rows_of(split.test)})
        left_out = sum(len(pair.targets) for pair in split.train) - len(pairs)
        facts = {"left_out": left_out, "ratio": sequences.length_ratio(pairs)}
        return Split(train, valid, split.valid_from, test, split.notes, facts)

    def _encode_pairs(self, pairs: Iterable[Pair], max_tokens: int = 0) -> Columns:
        """Return the ids of pairs whose targets have at most `max_tokens` (0: no limit), and words for `contextual`."""
        sources, targets, words = RaggedRows(), RaggedRows(), Texts()
        for pair in pairs:
            source, outputs = self.parts.coder.encode(pair.sources, pair.targets)
            for target in outputs:
                if not 0 < max_tokens < len(target) - 1:
                    sequences.check_lengths(self.recipe, pair, len(source), len(target))
                    sources.append(source)
                    targets.append(target)
                    if self.contextual.origins:
                        words.append(self.parts.coder.words(pair.sources))
        columns = {"sources": sources, "targets": targets}
        return Columns({**columns, "words": words} if self.contextual.origins else columns)

    def encode(self, data: Columns) -> sequences.EncodedPairs:
        words = data.columns.get("words")
        layers = () if words is None else self.contextual.lazy_vectors(words.ragged, words.words.values)
        return self._join_sides(data, layers)

    def _join_sides(self, columns: Columns, layers: tuple[WordLayers, ...] = ()) -> sequences.EncodedPairs:
        sources, targets = (columns.columns[side].ragged() for side in ("sources", "targets"))
        return sequences.EncodedPairs(sources, targets, layers)

    def _sample_outputs(self, model: TextModel) -> str:
        """Return lines with the outputs for the first validation sources, by greedy search."""
        coder, pairs = self.parts.coder, self.valid_pairs[: self.recipe.train.samples]
        if not pairs:
            return ""
        ids, columns = [coder.encode(pair.sources)[0] for pair in pairs], [pair.sources for pair in pairs]
        sources = sequences.Sources.of(ids, columns, coder, [self.contextual])
        search = sequences.search_of(self.recipe.search, coder.target, width=1)
        limits = sequences.output_limits(sources, self.ratio, search, sequences.max_output_tokens(self.recipe.decoder))
        best = sequences.find_outputs([model], sources, search, target=coder.target, limits=limits)
        return sample_lines(
            (" | ".join(pair.sources), coder.decode(hypotheses[0].ids, pair.sources), pair.targets[0])
            for pair, hypotheses in zip(pairs, best, strict=True)
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
            pairs = pluralize(self.left_out, "pair is", "pairs are")
            notes.append(f"{pairs} left out: targets of over {data.target_tokens:,} tokens")
        if data.source_tokens and (num_cut := np.count_nonzero(self.task.train.sources.lengths > data.source_tokens)):
            have = pluralize(int(num_cut), "source has", "sources have")
            notes.append(f"{have} {data.source_tokens:,} tokens or more; the first {data.source_tokens:,} are read")
        if (origin := self.continued) is not None:
            old, new = (coder.target.vocabulary_size for coder in (origin.run.parts.coder, self.parts.coder))
            notes.append(f"begins from {origin.path}: {old:,} of {new:,} target symbols have vectors of that run")
        return [*notes, *self.split.notes]

    @torch.no_grad()
    def build_model(self) -> TextModel:
        model = super().build_model()
        if self.continued is not None:
            path, run, coder = self.continued.path, self.continued.run, self.parts.coder
            old, new = dict(run.model(torch.device("cpu")).named_parameters()), dict(model.named_parameters())
            rows = {"source.weight": torch.from_numpy(coder.source.rows_in(run.parts.coder.source))}
            rows |= dict.fromkeys(TARGET_ROWS, torch.from_numpy(coder.target.rows_in(run.parts.coder.target)))
            for name in sorted(new.keys() | old.keys()):
                start = int(name in rows)
                if name not in new or name not in old or new[name].shape[start:] != old[name].shape[start:]:
                    raise RecipeError(f"decoder.from: {path} has another {name}; expected the sizes in its recipe.toml")
            self.inherited = {name: copy_rows(new[name], old[name], rows.get(name)) for name in new}
        return model

    def prepare(self, model: TextModel) -> None:
        counts, size = np.zeros(model.vocabulary_size, np.int64), model.vocabulary_size
        for ids, _ in self.task.train.targets.chunks():
            counts += np.bincount(ids, minlength=size)[:size]  # ids above the vocabulary are copied words
        model.start_from_counts(torch.from_numpy(counts))

    def config(self) -> dict[str, Any]:
        coder = self.parts.coder
        return {
            "source_size": coder.source.vocabulary_size, "target_size": coder.target.vocabulary_size,
            "layout": self.layout.to_json(), "ratio": self.ratio, "contextual": self.contextual.shapes,
        }  # fmt: skip

    def test(self, model: TextModel) -> GenerationScores | None:
        if not self.split.test:
            return None
        options = {"recipe": self.recipe, "layout": self.layout, "ratio": self.ratio, "contextual": self.contextual}
        return SequencePipeline(model, self.parts.coder, **options).score_pairs(stored_pairs(self.split.test))

    def about(self) -> str:
        tables = filter(None, (self.recipe.tokenizer, self.recipe.target_tokenizer))
        return f"from {' to '.join('subwords' if table.kind == 'bpe' else table.kind for table in tables)}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores)

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        num_valid = f", {len(self.valid_pairs):,} sources" if self.valid_pairs else ""
        return [
            f"- training: `{data.train}` ({self.layout}), {len(self.task.train):,} pairs",
            f"- validation: {self.split.valid_from}{num_valid}",
            *([f"- test: `{data.test}`, {len(self.split.test):,} sources"] if self.split.test else []),
        ]
