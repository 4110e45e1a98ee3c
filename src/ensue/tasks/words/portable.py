"""Inputs of exported taggers and classifiers: word forms, their places in texts, windows of subwords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.word_features import EncodedForms
from ensue.tasks.contract.description import TensorForm, WordInput, mask_of, sample_lengths
from ensue.tasks.texts.portable_reading import PortableReading, SubwordReading
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.pipeline import WordPipeline
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.tokenizer import UNKNOWN, Tokenizer


class WithOrigins(nn.Module):
    """A model, and the models of the runs whose layers are features of words."""

    def __init__(self, model: nn.Module, contextual: ContextualFeatures) -> None:
        super().__init__()
        self.model: Any = model
        self.origins = nn.ModuleList(origin.pipeline.model for origin in contextual.origins)


class PortableOrigins:
    """The inputs and the features of other runs' layers. `before` readings of subwords have names already."""

    def __init__(self, contextual: ContextualFeatures, *, before: int = 0) -> None:
        self.contextual = contextual
        found = [origin.pipeline.portable_reading(origin.pooling) for origin in contextual.origins]
        self.readings: list[PortableReading] = [reading.named(before + number) for number, reading in enumerate(found)]

    def layers(self, both: WithOrigins, given: Mapping[str, Tensor], suffix: str = "") -> list[Tensor]:
        """The vectors (B, T, L, d) of words in the layers of each run."""
        found = []
        for reading, origin, model in zip(self.readings, self.contextual.origins, both.origins, strict=True):
            layers = reading.read(model, given)
            words = [reading.of_words(layers[layer], given, suffix) for layer in origin.layers]
            found.append(torch.stack(words, 2))
        return found


def reading_inputs(
    readings: Sequence[PortableReading], suffixes: Sequence[str], *, time: str = "time"
) -> dict[str, TensorForm]:
    """The inputs of all readings, for texts with these suffixes of names and this word for their length."""
    return {name: form for reading in readings for name, form in reading.inputs(suffixes, time=time).items()}


def reading_samples(readings: Sequence[PortableReading], batch: int, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """Such inputs, for texts of up to so many words by their suffixes."""
    return {name: tensor for reading in readings for name, tensor in reading.sample(batch, lengths).items()}


def programs_of(readings: Sequence[PortableReading]) -> list[str]:
    """The modules that make the inputs, each once."""
    return list(dict.fromkeys(name for reading in readings for name in reading.programs))


def tokenizers_of(readings: Sequence[PortableReading]) -> dict[str, Tokenizer]:
    """The tokenizers, by their files."""
    return {reading.file: reading.framing.tokenizer for reading in readings}


LONGEST, FORMS = 5, 9
"""The most letters of a word in a sample, and its distinct words."""
SUFFIXES = ("", "_2")
"""Of the names of what is of the first text, and of the second one of a pair."""
ORDER = ("words", "characters", "lengths_of_words", "affixes", "shapes", "vectors", "keys")
"""The inputs that describe distinct words, in the order of `EncodedForms`."""


class PortableWords:
    """The inputs of a tagger or classifier, and what it makes of them. `keys`: it tells words from each other."""

    def __init__(self, pipeline: WordPipeline, *, keys: bool) -> None:
        self.pipeline = pipeline
        self.suffixes = SUFFIXES[: pipeline.num_texts]
        self.model = WithOrigins(pipeline.model, pipeline.contextual)
        self.tuned = None if pipeline.subwords is None else _tuned(pipeline.subwords, pipeline.model.layers)
        self.origins = PortableOrigins(pipeline.contextual, before=self.tuned is not None)
        self.forms = _form_inputs(pipeline, keys=keys)

    @property
    def readings(self) -> list[PortableReading]:
        """The readings of the encoder, and of features."""
        return ([] if self.tuned is None else [self.tuned]) + self.origins.readings

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers of other runs, by their files."""
        return tokenizers_of(self.readings)

    @property
    def programs(self) -> tuple[str, ...]:
        """The modules that the program imports."""
        return ("words", *programs_of(self.readings))

    @property
    def inputs(self) -> dict[str, TensorForm]:
        """The distinct words that the model uses; for each text their places and their number; windows of subwords."""
        found = dict(self.forms)
        for suffix in self.suffixes:
            if self.forms:
                found[f"numbers{suffix}"] = TensorForm(("batch", f"time{suffix}"), torch.int64)
            found[f"lengths{suffix}"] = TensorForm(("batch",), torch.int64)
        if columns := len(self.pipeline.model.features.columns):
            found["columns"] = TensorForm(("batch", "time", columns), torch.int64)
        return found | reading_inputs(self.readings, self.suffixes)

    def sample(self, batch: int, length: int) -> dict[str, Tensor]:
        """Texts of up to `length` words, the first one of so many; the second ones of pairs are longer."""
        found = _sample_forms(self.pipeline, self.forms)
        lengths = dict(zip(self.suffixes, (length, length + 2), strict=False))
        for suffix, most in lengths.items():
            if self.forms:
                found[f"numbers{suffix}"] = torch.randint(FORMS, (batch, most))
            found[f"lengths{suffix}"] = sample_lengths(batch, most)
        if tables := list(self.pipeline.model.features.columns):
            columns = [torch.randint(table.vocabulary_size, (batch, length)) for table in tables]
            found["columns"] = torch.stack(columns, dim=-1)
        return found | reading_samples(self.readings, batch, lengths)

    def numbers(self, given: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """The numbers (B, T) of the words of texts; zeros if the model knows no words."""
        if self.forms:
            return given[f"numbers{suffix}"]
        return torch.zeros_like(given[f"{self.readings[0].prefix}places{suffix}"][..., 0])

    def mask(self, given: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """True at words (B, T)."""
        return mask_of(self.numbers(given, suffix), given[f"lengths{suffix}"])

    def keys(self, given: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """The key of each word (B, T)."""
        numbers = self.numbers(given, suffix)
        return given["keys"][numbers] if "keys" in given else torch.zeros_like(numbers)

    def features(self, both: WithOrigins, given: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """The features of words (B, T, d) as they enter the layers, or stand beside what these give."""
        features: Any = both.model.features
        numbers = self.numbers(given, suffix)
        columns = given.get("columns", numbers.unsqueeze(-1)[..., :0])
        contextual = self.origins.layers(both, given, suffix)
        x: Tensor = features.in_place(features.form_vectors(_forms_of(given)), numbers, columns, contextual)
        return x

    def slots(self, both: WithOrigins, given: Mapping[str, Tensor]) -> Tensor:
        """The vectors of words by tuned layers (B, T, d), and of the texts, if these have vectors of their own."""
        assert self.tuned is not None
        (h,) = self.tuned.read(both.model, given)
        words = self.tuned.of_words(h, given)
        return self.tuned.with_own(h, words, given, self.lengths(given)) if self.tuned.has_own else words

    def lengths(self, given: Mapping[str, Tensor]) -> Tensor:
        """The number of words of texts (B,), of pairs that of both."""
        first, *others = (given[f"lengths{suffix}"] for suffix in self.suffixes)
        return sum(others, first)

    def described(self, **limits: Any) -> WordInput:
        """Return what the model reads; `limits` are those of `WordInput`."""
        pipeline = self.pipeline
        has_other_layers = pipeline.subwords is not None or bool(pipeline.contextual.origins)
        return WordInput(pipeline.reader.lexicon, pipeline.splitter, pipeline.num_texts, has_other_layers, **limits)

    def settings(self) -> dict[str, Any]:
        """The settings with which the program turns texts into numbers."""
        lexicon, reader = self.pipeline.reader.lexicon.to_json(), self.pipeline.subwords
        if not {"words", "keys"} & self.forms.keys():
            lexicon["words"] = [UNKNOWN]
        return {
            "lexicon": lexicon,
            "splitter": self.pipeline.splitter,
            "blanks": None if reader is None else reader.blanks,
            "readers": [reading.settings for reading in self.readings],
        }


def _tuned(reader: SubwordReader, layers: SubwordEncoder) -> SubwordReading:
    """How the layers of another run are read that are the encoder."""

    def read(model: Any, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
        return [model.layers.vectors(ids, mask, segments)]

    return SubwordReading(
        layers=read,
        framing=reader.framing,
        pooling=reader.pooling,
        vocabulary_size=layers.features.vocabulary_size,
        num_segments=1 if layers.segments is None else layers.segments.vocabulary_size,
        is_joint=True,
        has_own=reader.whole,
    )


def _form_inputs(pipeline: WordPipeline, *, keys: bool) -> dict[str, TensorForm]:
    """The inputs that describe the distinct words; those that the model does not use are left out."""
    features = pipeline.model.features
    used = {
        "words": ("words",) if features.words is not None else None,
        "characters": ("words", "letters") if features.characters is not None else None,
        "lengths_of_words": ("words",) if features.characters is not None else None,
        "affixes": ("words", 2 * pipeline.reader.lexicon.longest_affix) if features.affixes is not None else None,
        "shapes": ("words",) if features.shapes is not None else None,
        "vectors": ("words",) if features.vectors is not None else None,
        "keys": ("words",) if keys else None,
    }
    return {name: TensorForm(sizes, torch.int64) for name, sizes in used.items() if sizes is not None}


def _forms_of(given: Mapping[str, Tensor]) -> EncodedForms:
    """The words of the inputs; zeros for what the model does not use, and one word if it uses none."""
    some = next((given[name] for name in ORDER if name in given), given["lengths"][:1])
    nothing = torch.zeros(some.shape[0], dtype=torch.int64, device=some.device)
    return EncodedForms(*(given.get(name, nothing) for name in ORDER))


def _sample_forms(pipeline: WordPipeline, inputs: Mapping[str, TensorForm]) -> dict[str, Tensor]:
    """Some words of the vocabularies."""
    lexicon = pipeline.reader.lexicon
    vocabularies = {
        "words": lexicon.words, "characters": lexicon.characters, "affixes": lexicon.affixes, "shapes": lexicon.shapes,
        "vectors": lexicon.vectors, "keys": lexicon.words,
    }  # fmt: skip
    sizes = {"words": FORMS, "letters": LONGEST}
    found = {}
    for name, form in inputs.items():
        shape = [sizes[size] if isinstance(size, str) else size for size in form.sizes]
        most = LONGEST + 1 if name == "lengths_of_words" else len(vocabularies[name] or ())
        found[name] = torch.randint(int(name == "lengths_of_words"), max(1, most), shape)
    return found
