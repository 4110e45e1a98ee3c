"""Inputs of exported taggers and classifiers: word forms, their indices in texts, windows of subwords."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.word_features import EncodedForms
from ensue.tasks.contract.description import TensorSpec, WordInput, mask_of, sample_lengths
from ensue.tasks.texts.export_encoder import ExportEncoder, SubwordExportEncoder
from ensue.tasks.words.pipeline import ContextualFeatures, WordPipeline
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.tokenizer import UNKNOWN, Tokenizer


class ModelWithOrigins(nn.Module):
    """A model and the models of the runs whose layers are features of words."""

    def __init__(self, model: nn.Module, contextual: ContextualFeatures) -> None:
        super().__init__()
        self.model: Any = model
        self.origins = nn.ModuleList(origin.pipeline.model for origin in contextual.origins)


class OriginExportInputs:
    """The encoders of the runs whose layers are features, for an export. The first encoder has the index `start`."""

    def __init__(self, contextual: ContextualFeatures, *, start: int = 0) -> None:
        self.contextual = contextual
        encoders = [origin.pipeline.export_encoder(origin.pooling) for origin in contextual.origins]
        self.encoders: list[ExportEncoder] = [e.with_number(number) for number, e in enumerate(encoders, start)]

    def layers(self, module: ModelWithOrigins, inputs: Mapping[str, Tensor], suffix: str = "") -> list[Tensor]:
        """Return the vectors (B, T, L, d) of words in the layers of each run."""
        layers_of_runs = []
        for encoder, origin, model in zip(self.encoders, self.contextual.origins, module.origins, strict=True):
            layers = encoder.read(model, inputs)
            words = [encoder.word_vectors(layers[layer], inputs, suffix) for layer in origin.layers]
            layers_of_runs.append(torch.stack(words, 2))
        return layers_of_runs


def encoder_inputs(
    encoders: Sequence[ExportEncoder], suffixes: Sequence[str], *, time: str = "time"
) -> dict[str, TensorSpec]:
    """Return the inputs of all encoders. Names of inputs end in `suffixes`; `time` is the name of the length."""
    return {name: spec for encoder in encoders for name, spec in encoder.inputs(suffixes, time=time).items()}


def encoder_samples(encoders: Sequence[ExportEncoder], batch: int, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """Return sample inputs of all encoders; `lengths` are maximum numbers of words by the suffix of the text."""
    return {name: tensor for encoder in encoders for name, tensor in encoder.sample(batch, lengths).items()}


def programs_of(encoders: Sequence[ExportEncoder]) -> list[str]:
    """Return the modules that compute the inputs of encoders, without duplicates."""
    return list(dict.fromkeys(name for encoder in encoders for name in encoder.programs))


def tokenizers_of(encoders: Sequence[ExportEncoder]) -> dict[str, Tokenizer]:
    """Return the tokenizers of encoders, by the names of their files."""
    return {encoder.file: encoder.framing.tokenizer for encoder in encoders}


MAX_SAMPLE_LETTERS, NUM_SAMPLE_FORMS = 5, 9
"""The maximum number of letters of a word, and the number of distinct words, in a sample."""
SUFFIXES = ("", "_2")
"""The ends of the names of inputs for the first and the second text."""
FORM_INPUTS = ("words", "characters", "lengths_of_words", "affixes", "shapes", "vectors", "keys")
"""The inputs that describe distinct words, in the order of the fields of `EncodedForms`."""


class WordExportInputs:
    """The inputs of an exported tagger or classifier. `keys` is whether the keys of words are an input."""

    def __init__(self, pipeline: WordPipeline, *, keys: bool) -> None:
        self.pipeline = pipeline
        self.suffixes = SUFFIXES[: pipeline.num_texts]
        self.model = ModelWithOrigins(pipeline.model, pipeline.contextual)
        self.tuned = None if pipeline.subwords is None else _make_encoder(pipeline.subwords, pipeline.model.layers)
        self.origins = OriginExportInputs(pipeline.contextual, start=self.tuned is not None)
        features, lexicon = pipeline.model.features, pipeline.reader.lexicon
        sizes: dict[str, tuple[int | str, ...]] = {
            "characters": ("words", "letters"), "affixes": ("words", 2 * lexicon.longest_affix),
            "keys": ("words", *lexicon.encode([]).keys.shape[1:]),
        }  # fmt: skip
        is_used = {
            "words": features.words is not None, "characters": features.characters is not None,
            "lengths_of_words": features.characters is not None, "affixes": features.affixes is not None,
            "shapes": features.shapes is not None, "vectors": features.vectors is not None, "keys": keys,
        }  # fmt: skip
        used = [name for name in FORM_INPUTS if is_used[name]]
        self.forms = {name: TensorSpec(sizes.get(name, ("words",)), torch.int64) for name in used}
        self.encoders = ([] if self.tuned is None else [self.tuned]) + self.origins.encoders
        """The encoders that read subwords: the fine-tuned layers, and the runs whose layers are features."""
        self.tokenizers, self.programs = tokenizers_of(self.encoders), ("words", *programs_of(self.encoders))

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The shapes of all inputs: distinct words; the words of each text and their number; windows of subwords."""
        forms = dict(self.forms)
        for suffix in self.suffixes:
            if self.forms:
                forms[f"numbers{suffix}"] = TensorSpec(("batch", f"time{suffix}"), torch.int64)
            forms[f"lengths{suffix}"] = TensorSpec(("batch",), torch.int64)
        if columns := len(self.pipeline.model.features.columns):
            forms["columns"] = TensorSpec(("batch", "time", columns), torch.int64)
        return forms | encoder_inputs(self.encoders, self.suffixes)

    def sample(self, batch: int, length: int) -> dict[str, Tensor]:
        """Return sample inputs for texts of up to `length` words; second texts of pairs are two words longer."""
        tensors = _sample_forms(self.pipeline, self.forms)
        lengths = dict(zip(self.suffixes, (length, length + 2), strict=False))
        for suffix, max_words in lengths.items():
            if self.forms:
                tensors[f"numbers{suffix}"] = torch.randint(NUM_SAMPLE_FORMS, (batch, max_words))
            tensors[f"lengths{suffix}"] = sample_lengths(batch, max_words)
        if tables := list(self.pipeline.model.features.columns):
            columns = [torch.randint(table.vocabulary_size, (batch, length)) for table in tables]
            tensors["columns"] = torch.stack(columns, dim=-1)
        return tensors | encoder_samples(self.encoders, batch, lengths)

    def numbers(self, inputs: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """Return the indices (B, T) of words among the distinct words; zeros for a model without features of words."""
        if self.forms:
            return inputs[f"numbers{suffix}"]
        return torch.zeros_like(inputs[f"{self.encoders[0].prefix}places{suffix}"][..., 0])

    def mask(self, inputs: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """Return a mask (B, T) that is True at words."""
        return mask_of(self.numbers(inputs, suffix), inputs[f"lengths{suffix}"])

    def keys(self, inputs: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """Return the key of each word (B, T)."""
        numbers = self.numbers(inputs, suffix)
        return inputs["keys"][numbers] if "keys" in inputs else torch.zeros_like(numbers)

    def features(self, module: ModelWithOrigins, inputs: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """Return the features (B, T, d) of words."""
        features: Any = module.model.features
        numbers = self.numbers(inputs, suffix)
        columns = inputs.get("columns", numbers.unsqueeze(-1)[..., :0])
        contextual = self.origins.layers(module, inputs, suffix)
        first = next((inputs[name] for name in FORM_INPUTS if name in inputs), inputs["lengths"][:1])
        zeros = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)  # for features that the model lacks
        forms = EncodedForms(*(inputs.get(name, zeros) for name in FORM_INPUTS))
        return features.assemble(features.form_vectors(forms), numbers, columns, contextual)

    def slots(self, module: ModelWithOrigins, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the outputs (B, T, d) of fine-tuned layers for words, with a vector for the text if texts have one."""
        assert self.tuned is not None
        (h,) = self.tuned.read(module.model, inputs)
        words = self.tuned.word_vectors(h, inputs)
        if not self.tuned.has_text_vector:
            return words
        return self.tuned.with_text_vector(h, words, inputs, self.lengths(inputs))

    def lengths(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the number of words of each text or pair (B,)."""
        first, *others = (inputs[f"lengths{suffix}"] for suffix in self.suffixes)
        return sum(others, first)

    def describe(self, **limits: Any) -> WordInput:
        """Return the description of the input; `limits` are further fields of `WordInput`."""
        pipeline = self.pipeline
        has_other_layers = pipeline.subwords is not None or bool(pipeline.contextual.origins)
        return WordInput(pipeline.reader.lexicon, pipeline.splitter, pipeline.num_texts, has_other_layers, **limits)

    def settings(self) -> dict[str, Any]:
        """Return the settings with which the program turns texts into inputs."""
        lexicon, reader = self.pipeline.reader.lexicon.to_json(), self.pipeline.subwords
        if not {"words", "keys"} & self.forms.keys():
            lexicon["words"] = [UNKNOWN]
        blanks, readers = None if reader is None else reader.blanks, [encoder.settings for encoder in self.encoders]
        return {"lexicon": lexicon, "splitter": self.pipeline.splitter, "blanks": blanks, "readers": readers}


def _make_encoder(reader: SubwordReader, layers: SubwordEncoder) -> SubwordExportEncoder:
    def read(model: Any, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
        return [model.layers.vectors(ids, mask, segments)]

    num_segments = 1 if layers.segments is None else layers.segments.vocabulary_size
    return SubwordExportEncoder(
        layers=read, framing=reader.framing, pooling=reader.pooling, vocabulary_size=layers.features.vocabulary_size,
        num_segments=num_segments, is_joint=True, has_text_vector=reader.has_text_vector,
    )  # fmt: skip


def _sample_forms(pipeline: WordPipeline, inputs: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    lexicon = pipeline.reader.lexicon
    vocabularies = {
        "words": lexicon.words, "characters": lexicon.characters, "affixes": lexicon.affixes, "shapes": lexicon.shapes,
        "vectors": lexicon.vectors, "keys": lexicon.words,
    }  # fmt: skip
    sizes = {"words": NUM_SAMPLE_FORMS, "letters": MAX_SAMPLE_LETTERS}
    tensors = {}
    for name, form in inputs.items():
        shape = [sizes[size] if isinstance(size, str) else size for size in form.sizes]
        bound = MAX_SAMPLE_LETTERS + 1 if name == "lengths_of_words" else len(vocabularies[name] or ())
        tensors[name] = torch.randint(int(name == "lengths_of_words"), max(1, bound), shape)
    return tensors
