"""The layers of other runs as features of words, for export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ensue.tasks.contract.portable import TensorForm
from ensue.tasks.texts.portable_reading import PortableReading
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.text.tokenizer import Tokenizer


class WithOrigins(nn.Module):
    """A model, and the models of the runs whose layers are features of words."""

    def __init__(self, model: nn.Module, contextual: ContextualFeatures) -> None:
        super().__init__()
        self.model: Any = model
        self.origins = nn.ModuleList(origin.pipeline.model for origin in contextual.origins)


class PortableOrigins:
    """The inputs of a graph for the layers of other runs, and the features that it makes of them. `before` readings of
    subwords have names already.
    """

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
