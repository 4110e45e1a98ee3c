"""The pipeline of sequence-to-sequence models."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair, PairLayout, PairSource, with_references
from ensue.data.examples.layout import PairChoice
from ensue.data.files import Data
from ensue.data.in_memory import are_unnamed
from ensue.data.lines import Lines
from ensue.data.sources import is_typed
from ensue.decode.search import BeamSearch
from ensue.errors import DataError, EnsueError, check_text_list, fields_by_option, pluralize
from ensue.extension import with_options
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.generation import GenerationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.contract import description
from ensue.tasks.contract.chunks import UNSHARDED, Shard, max_positions
from ensue.tasks.sequence_to_sequence import task as sequences
from ensue.tasks.sequence_to_sequence import writer as writing
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.page import inspect_output
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import BETWEEN_NAMES, Ids, PairCoder
from ensue.tasks.sequence_to_sequence.view import align
from ensue.tasks.sequence_to_sequence.writer import Output, TokenAlignment, Writer
from ensue.tasks.texts.framing import Framing
from ensue.tasks.vectors.contextual import LayeredPipeline, LayeredReader
from ensue.tasks.words import export_inputs
from ensue.tasks.words.pipeline import NO_CONTEXT, ContextualFeatures
from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.text.tokenizer import WordTokenizer
from ensue.types import select_rows


class SequencePipeline(LayeredPipeline, Writer[Pair]):
    """A trained sequence-to-sequence model. Runs with equal tokenizers can form an ensemble (`with_others`)."""

    unit = "pair"
    column_options: ClassVar[tuple[str, ...]] = ("sources", "targets")

    def __init__(
        self, model: TextModel, coder: PairCoder, *, recipe: SequenceToSequenceRecipe, layout: PairLayout, ratio: float,
        contextual: ContextualFeatures = NO_CONTEXT, run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model.eval())
        self.recipe, self.run = recipe, run
        self.init_generation(coder.target, ratio)
        self.contextual: tuple[ContextualFeatures, ...] = (contextual,)
        self.coder, self.layout = coder, layout

    @property
    def ensemble_key(self) -> Any:
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
            raise EnsueError(f"{self.run}: models with features.contextual cannot be contextual features")
        features, layers = self.model.readers
        coder = self.coder.source
        limit = max_positions(self.recipe.encoder or self.recipe.decoder, sequences.MAX_SOURCE_TOKENS)
        framing = Framing.with_separate_words(
            coder.tokenizer, end=(coder.end_id,), first_blank=coder.tokenizer.before, max_positions=limit,
            is_causal=layers.is_causal,
        )  # fmt: skip
        return LayeredReader(features, layers, framing)

    def with_others(self, *others: Self) -> Self:
        ensemble = super().with_others(*others)
        ensemble.contextual = (*self.contextual, *(features for other in others for features in other.contextual))
        return ensemble

    def predict(
        self, texts: Iterable[str | Sequence[str]], *, progress: bool | Reporter | None = None, **options: Any
    ) -> Answers[Output]:
        """Return the output for each source, which is a text, or the texts of its columns. `progress=True` shows a bar
        on stderr, and the method `working` of a `Reporter` receives the completed share. `options` are options that
        extensions add to `ensue predict`.
        """
        if options:
            changed: Self = with_options(self, "predict", options)
            return changed.predict(texts)
        texts = check_text_list(texts, "texts, or of the columns of each")
        return Answers(output for _, output in self.answers(map(_make_pair, texts)))

    def predict_json(self, texts: Iterable[str | Sequence[str]]) -> list[Any]:
        return list(writing.outputs_json(self.answers(map(_make_pair, texts)), self.aligned, n_best=self.search.n_best))

    def score_json(self, texts: Sequence[str]) -> Any:
        """Return the surprisal of a target as JSON values. `texts` are the texts of the source, then the target."""
        *sources, target = texts
        (row,) = self.surprisal([Pair(tuple(sources), (target,))])
        return writing.surprisal_json(*row)

    def aligned(self, answers: Sequence[tuple[Pair, Output]]) -> list[TokenAlignment | None]:
        """Return the alignment of each source with its output; None for a model without attention."""
        for adapter in reversed(self.adapters):
            answers = [(adapter.adapt(pair), output) for pair, output in answers]
        return align(self.model, self.coder, answers, self.sources([pair for pair, _ in answers]))

    def sources(self, pairs: Sequence[Pair]) -> sequences.Sources:
        return self._encode([(pair, []) for pair in pairs])[0]

    def encode(self, pairs: Sequence[tuple[Pair, str]]) -> tuple[sequences.Sources, Ragged]:
        sources, targets = self._encode([(pair, [target]) for pair, target in pairs])
        return sources, Ragged.of(targets)

    def _encode(self, pairs: Sequence[tuple[Pair, list[str]]]) -> tuple[sequences.Sources, list[Ids]]:
        ids, targets = list[Ids](), list[Ids]()
        for pair, texts in pairs:
            source, encoded = self.coder.encode(pair.sources, texts)
            for recipe in self.recipes:
                sequences.check_lengths(recipe, pair, len(source), *map(len, encoded))
            ids.append(source)
            targets += encoded
        return sequences.Sources.of(ids, [pair.sources for pair, _ in pairs], self.coder, self.contextual), targets

    def texts_of(self, pair: Pair) -> Sequence[str]:
        return pair.sources

    def decode(self, ids: Sequence[int], item: Pair) -> str:
        return self.coder.decode(ids, item.sources)

    def inspect(self, source: str | Sequence[str], target: str | None = None) -> Inspection:
        """Return a page about a source (a text, or the texts of its columns) and its output, or a target."""
        return inspect_output(self, self.coder, source, target)

    def score(self, source: str | Sequence[str], target: str) -> float:
        """Return the surprisal -ln P(target | source) in nats, including the end symbol."""
        ((_, _, nats, _),) = self.surprisal([_make_pair(source)._replace(targets=(target,))])
        return nats

    def source(
        self, location: Data | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool
    ) -> PairSource:
        """Return the pairs of a file in the layout of the training data."""
        columns: dict[str, Any] = {name: names.split(",") for name, names in self.chosen_columns.items()}
        if columns and self.layout.names:
            trained = self.layout.with_columns(PairChoice())
            columns = {"sources": trained.sources, "targets": trained.targets} | columns
        if (number := len(columns.get("sources", ()))) not in (0, self.num_texts):
            raise EnsueError(f"the model reads {pluralize(self.num_texts, 'source column')}; found {number:,}")
        source = PairSource(
            location, format=format or "", like=None if are_unnamed(self.recipe.data.train) else self.layout,
            encoding=encoding, is_labeled=is_labeled,
            incomplete=self.recipe.data.incomplete if is_labeled else "refuse", **columns,
        )  # fmt: skip
        for name, layout in source.layouts.items():
            if (number := len(layout.sources)) not in (0, self.num_texts):
                message = f"the model reads {pluralize(self.num_texts, 'source column')}; found {number:,}"
                raise DataError(f"{message}: {layout}; --sources names others", name)
        return source

    def prediction_lines(
        self, location: str, *, format: str | None, encoding: str, as_json: bool, color: bool, shard: Shard = UNSHARDED
    ) -> Iterator[str]:
        """Yield the lines of `ensue predict`: an output for each source, in order. The location "-" is stdin."""
        source = self._open_source(location, format=format, encoding=encoding, is_labeled=False)
        aligner = self.aligned if as_json else None
        return writing.output_lines(self, source, is_interactive=is_typed(location), aligner=aligner, shard=shard)

    def score_lines(
        self, location: str, *, encoding: str = "utf-8", as_json: bool = False, format: str | None = None
    ) -> Iterator[str]:
        """Yield the lines of `ensue score`: a line for each pair. The location "-" is stdin."""
        source = self._open_source(location, format=format, encoding=encoding, is_labeled=True)
        return writing.score_lines(self, source, as_json=as_json)

    def evaluate(
        self, location: Data, *, format: str | None = None, encoding: str = "utf-8",
        compare: "SequencePipeline | None" = None, progress: bool | Reporter | None = None,
    ) -> GenerationScores:  # fmt: skip
        """Return the scores on a file of pairs, with a test against `compare`. `progress` is as for `predict`."""
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        return self.score_pairs(references(source, source.layout), compare=compare)

    def scored_items(self, location: Data, *, format: str | None = None, encoding: str = "utf-8") -> ScoredItems:
        source = self.source(location, format=format, encoding=encoding, is_labeled=True)
        return self.score_items(references(source, source.layout))

    def describe(self) -> description.ModelDescription:
        if self.adapters:
            names = " and ".join(f"no {adapter.name}" for adapter in self.adapters)
            raise EnsueError(f"{self.run}: exported programs have {names}; use `ensue predict`")
        return describe(self, self.coder, self.contextual[0])

    def __repr__(self) -> str:
        tokens = f"{self.coder.source.vocabulary_size:,} → {self.coder.target.vocabulary_size:,} symbols"
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


def _make_pair(source: str | Sequence[str]) -> Pair:
    return Pair((source,) if isinstance(source, str) else tuple(source))


def references(pairs: Iterable[Pair], layout: PairLayout) -> list[Pair]:
    """Return the pairs to score. In CMUdict, the references of a word are all its pronunciations."""
    return with_references(pairs) if layout.format == "cmudict" else list(pairs)


@torch.random.fork_rng(devices=[])  # the sample inputs are random
def describe(writer: Writer[Any], coder: PairCoder, contextual: ContextualFeatures) -> description.ModelDescription:
    """Return the description for exporters: a function of the encoder, and a function of a step of the decoder. The
    output of the encoder is an input of each step of the decoder, and not an output of the step.
    """
    module = export_inputs.ModelWithOrigins(writer.model, contextual)
    origins = export_inputs.OriginExportInputs(contextual, start=1)  # number 0 is the tokenizer of the source
    tokenizers = {"source.json": coder.source.tokenizer, "target.json": coder.target.tokenizer}
    tokenizers |= export_inputs.tokenizers_of(origins.encoders)
    programs = tuple(dict.fromkeys(("translator", "subwords", *export_inputs.programs_of(origins.encoders))))
    functions = _describe_functions(module, origins, coder.source.vocabulary_size)
    source = description.SourceInput(
        coder.source, writer.num_texts, coder.names, BETWEEN_NAMES.pattern, coder.source_tokens,
        sequences.max_lengths(writer.recipe)[0],
    )  # fmt: skip
    search = description.settings_of(writer.search)
    output = description.TextOutput(coder.target, writer.ratio, sequences.EXTRA_TOKENS, search)
    settings = _settings(writer, coder, origins)
    return description.ModelDescription(source, output, writer.model, functions, module, programs, settings, tokenizers)


def _describe_functions(
    module: export_inputs.ModelWithOrigins, origins: export_inputs.OriginExportInputs, source_size: int
) -> tuple[description.TensorFunction, ...]:
    def sample_sources(batch: int, length: int) -> dict[str, Tensor]:
        ids = torch.randint(source_size, (batch, length))
        words = export_inputs.encoder_samples(origins.encoders, batch, {"": length})
        return {"ids": ids, "lengths": description.sample_lengths(batch, length), **words}

    def first_state(module: export_inputs.ModelWithOrigins, inputs: Mapping[str, Tensor]) -> Any:
        mask = description.mask_of(inputs["ids"], inputs["lengths"])
        return module.model.begin(inputs["ids"], mask, origins.layers(module, inputs))

    def encode(module: export_inputs.ModelWithOrigins, **inputs: Tensor) -> dict[str, Tensor]:
        return description.state_tensors(first_state(module, inputs))

    with torch.inference_mode():
        like, longer = (first_state(module, sample_sources(2, length)) for length in (3, 4))

    def sample_steps(batch: int, length: int) -> dict[str, Tensor]:
        beams = torch.arange(batch).repeat_interleave(2)
        ids = torch.randint(module.model.vocabulary_size, (2, len(beams)))
        _, state = module.model.step(ids[0], select_rows(first_state(module, sample_sources(batch, length)), beams))
        return {"ids": ids[1], **description.state_tensors(state)}

    def step(module: export_inputs.ModelWithOrigins, ids: Tensor, **state: Tensor) -> dict[str, Tensor]:
        scores, after = module.model.step(ids, description.state_from(like, state, len(ids)))
        tensors = description.state_tensors(after, "state")
        changed = {name: tensor for name, tensor in tensors.items() if tensor is not state[name]}
        next_state = {name.replace("state", "next", 1): tensor for name, tensor in changed.items()}
        return {"scores": scores.log_softmax(-1), **next_state}

    source = {
        "ids": description.TensorSpec(("batch", "source"), torch.int64),
        "lengths": description.TensorSpec(("batch",), torch.int64),
    }
    source |= export_inputs.encoder_inputs(origins.encoders, ("",), time="source")
    inputs = {"ids": description.TensorSpec(("batch",), torch.int64), **description.state_specs(like, longer)}
    encoder = description.TensorFunction("encoder", encode, source, sample_sources)
    return encoder, description.TensorFunction("decoder", step, inputs, sample_steps)


def _settings(writer: Writer[Any], coder: PairCoder, origins: export_inputs.OriginExportInputs) -> dict[str, Any]:
    """Return the settings of the exported program."""
    search = writer.search
    if any(len(phrase) != 1 for phrase in search.forbidden):
        raise EnsueError(f"{writer.run}: a search that forbids phrases of several tokens cannot be exported")
    return {
        "source": _describe_side(coder.source), "target": _describe_side(coder.target), "names": sorted(coder.names),
        "between_names": BETWEEN_NAMES.pattern, "source_tokens": coder.source_tokens, "copies": coder.copies,
        "ratio": writer.ratio, "more": sequences.EXTRA_TOKENS + search.min_tokens,
        "most": min(search.max_tokens, sequences.max_output_tokens(writer.recipe.decoder) or search.max_tokens),
        **{name: getattr(search, field) for name, field in fields_by_option(BeamSearch).items()},
        "forbidden": [phrase[0] for phrase in search.forbidden], "window": sequences.CHUNK_SOURCES,
        "rows": sequences.max_rows(search), "tokens": sequences.MAX_SEARCH_TOKENS,
        "readers": [reading.settings for reading in origins.encoders],
    }  # fmt: skip


def _describe_side(coder: TokenizerWithSpecials) -> dict[str, Any]:
    tokenizer = coder.tokenizer
    return {
        "before": tokenizer.before, "size": coder.vocabulary_size, "unknown": tokenizer.unknown_id,
        "names": dict(zip(coder.names.symbols, coder.encode_names(coder.names.symbols).tolist(), strict=True)),
        "special": dict(zip(SPECIAL, range(tokenizer.vocabulary_size, coder.vocabulary_size), strict=False)),
        "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
    }  # fmt: skip
