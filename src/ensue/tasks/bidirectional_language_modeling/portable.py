"""A model that reads in both directions, for export: the layers of words, and what each direction expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ensue.models.bidirectional import FIRST_WORD, TEXT_BEGIN, TEXT_END, BothDirections
from ensue.nn.combinators import reverse_rows
from ensue.tasks.bidirectional_language_modeling.words import UNKNOWN, WordReader
from ensue.tasks.contract.portable import Portable, PortableFunction, TensorForm, mask_of, sample_lengths
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.portable_reading import PortableReading
from ensue.text.character_ngrams import PADDING

SAMPLED = ("a", "be", "sea", "é", "words")
"""The distinct words of a sample."""


@dataclass(frozen=True, kw_only=True)
class WaysReading(PortableReading):
    """A window is a whole text, and its pieces are the words themselves.

    A graph is given the distinct words behind both boundaries, `distinct` (U, longest) or (U,), their numbers in the
    order of each direction, `rightward` and `leftward` (W, S), and for a model of contexts also the `ids` (W, S)
    of words in its vocabulary.
    """

    words: WordReader
    is_context: bool

    @property
    def programs(self) -> tuple[str, ...]:
        return ("subwords", "both_ways")

    def window_inputs(self) -> dict[str, TensorForm]:
        letters = () if self.words.longest is None else (self.words.longest,)
        windows = f"{self.prefix}windows"
        ways = (windows, f"{self.prefix}words_of_windows")
        sizes: dict[str, tuple[str | int, ...]] = {"distinct": (f"{self.prefix}distinct", *letters)}
        sizes |= {"rightward": ways, "leftward": ways, "lengths_of_windows": (windows,)}
        if self.is_context:
            sizes["ids"] = ways
        return {name: TensorForm(some, torch.int64) for name, some in sizes.items()}

    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        numbers = torch.randint(FIRST_WORD, FIRST_WORD + len(SAMPLED), (len(lengths), width))
        mask = mask_of(numbers, lengths)
        numbers = numbers.masked_fill(~mask, 0)
        leftward = reverse_rows(numbers.unsqueeze(-1), mask).squeeze(-1)
        found = {"distinct": self._distinct(), "rightward": numbers, "leftward": leftward}
        if self.is_context:
            found["ids"] = torch.randint(self.framing.tokenizer.vocabulary_size, numbers.shape)
        return found

    def _distinct(self) -> Tensor:
        """The words of a sample behind both boundaries."""
        rows = torch.from_numpy(self.words.rows(SAMPLED))
        longest = self.words.longest
        return rows if longest is None else functional.pad(rows, (0, longest - rows.shape[1]), value=PADDING)

    def read(self, model: Any, given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        return self.layers(model, given, *self.features(model, given))

    def features(self, model: Any, given: Mapping[str, Tensor]) -> tuple[list[BothDirections], Tensor]:
        """The features of each layer in both directions, and the mask (W, S) of the words."""
        rightward, leftward = (
            functional.pad(given[f"{self.prefix}{name}"], (1, 0), value=boundary)
            for name, boundary in (("rightward", TEXT_BEGIN), ("leftward", TEXT_END))
        )
        lengths = given[f"{self.prefix}lengths_of_windows"]
        real = mask_of(rightward, lengths + 1)
        features, _ = model.read(given[f"{self.prefix}distinct"], rightward, leftward, mask=real)
        return features, mask_of(given[f"{self.prefix}rightward"], lengths)

    def layers(
        self, model: Any, given: Mapping[str, Tensor], features: Sequence[BothDirections], inside: Tensor
    ) -> list[Tensor]:
        """The vectors (W, S, d) of words in each layer, from these features."""
        found: list[Tensor] = model.layers_of_words(features, inside, given.get(f"{self.prefix}ids"))
        return found

    @property
    def settings(self) -> dict[str, Any]:
        tokenizer: Any = self.framing.tokenizer
        return {
            "prefix": self.prefix,
            "tokenizer": self.file,
            "longest": self.words.longest,
            "lowercase": tokenizer.lowercase,
            "unknown": UNKNOWN,
        }


def reading_of(reader: WordReader, model: Any) -> WaysReading:
    """How texts are read. A word is read whole, so that all poolings of its pieces are the same."""
    framing, is_context = Framing(tokenizer=reader.tokenizer), model.fitting is not None
    return WaysReading(framing=framing, pooling="mean", words=reader, is_context=is_context)


def portable(reader: WordReader, model: Any) -> Portable:
    """The model as one function of texts, each a window."""
    reading, has_head = reading_of(reader, model), getattr(model, "head", None) is not None

    def read(model: Any, **given: Any) -> dict[str, Tensor]:
        features, inside = reading.features(model, given)
        layers = torch.stack(reading.layers(model, given, features, inside), 1)
        found = {"layers": layers.masked_fill(~inside[:, None, :, None], 0.0)}
        if has_head:
            for name, h in zip(("rightward", "leftward"), model.beside(features[-1], inside), strict=True):
                found[f"{name}_logits"] = model.head(h).masked_fill(~inside.unsqueeze(-1), 0.0)
        return found

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = sample_lengths(batch, length)
        return {**reading.sample_windows(lengths, length), "lengths_of_windows": lengths}

    function = PortableFunction("model", read, reading.window_inputs(), sample)
    settings = {**reading.settings, "scores": has_head}
    programs = ("bidirectional", *reading.programs)
    return Portable(model, (function,), programs, settings, {reading.file: reader.tokenizer})
