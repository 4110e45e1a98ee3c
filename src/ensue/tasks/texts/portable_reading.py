"""Texts of words as windows, for export: the inputs of a graph, and the vectors of words that it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ensue.tasks.contract.description import TensorForm, mask_of, sample_lengths
from ensue.tasks.texts.framing import Framing

PIECES, MORE_WINDOWS = 2, 1
"""The pieces of a word in a sample, and how many more windows than texts it has."""


@dataclass(frozen=True, kw_only=True)
class PortableReading(ABC):
    """How texts of words are read in windows of pieces, and the layers that read these.

    A graph is given the windows with `lengths_of_windows` (W,), and for each text the `places` (B, T, P) of the pieces
    of its words, counted over the windows, with `weights` (B, T, P). `own` (B,) are the places of the vectors of the
    texts themselves. The names begin with `prefix`.
    """

    framing: Framing
    pooling: str
    """From the vectors of pieces to that of a word: first, last, mean or max."""
    is_joint: bool = False
    """Whether a pair is read as one text."""
    has_own: bool = False
    """Whether a text has a vector of its own: of the last position if it is causal, else of the first."""
    prefix: str = ""

    @property
    @abstractmethod
    def programs(self) -> tuple[str, ...]:
        """The modules that a program imports to make the inputs."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings that these modules read."""

    @abstractmethod
    def window_inputs(self) -> dict[str, TensorForm]:
        """The windows, by names without the prefix."""

    @abstractmethod
    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        """Windows of these lengths (W,), padded to this width."""

    @abstractmethod
    def read(self, model: Any, given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """The vectors (W, S, d) of pieces in each layer."""

    def named(self, number: int) -> Self:
        """This reading as the one of this number, from 0 on, in a graph."""
        return replace(self, prefix=f"{number + 1}." if number else "")

    @property
    def file(self) -> str:
        """The file of the tokenizer."""
        return f"{self.prefix}tokenizer.json"

    def inputs(self, suffixes: Sequence[str], *, time: str = "time") -> dict[str, TensorForm]:
        """The inputs of a graph for texts with these suffixes; `time` is the word for their number of words."""
        found = self.window_inputs()
        for suffix, length in self._texts(suffixes, time):
            sizes = ("batch", length, f"{self.prefix}pieces{suffix}")
            found |= {f"places{suffix}": TensorForm(sizes, torch.int64), f"weights{suffix}": TensorForm(sizes)}
        if self.has_own:
            found["own"] = TensorForm(("batch",), torch.int64)
        return {f"{self.prefix}{name}": form for name, form in found.items()}

    def sample(self, batch: int, lengths: Mapping[str, int]) -> dict[str, Tensor]:
        """Such inputs, for texts of up to so many words by their suffixes."""
        size = max(lengths.values())
        width = min(size, self.framing.most or size)
        real = sample_lengths(batch + MORE_WINDOWS, width)

        def places(*sizes: int) -> Tensor:
            windows = torch.randint(len(real), sizes)
            return windows * width + (torch.rand(sizes) * real[windows]).long()

        found = {**self.sample_windows(real, width), "lengths_of_windows": real}
        for suffix, _ in self._texts(tuple(lengths), "time"):
            sizes = (batch, sum(lengths.values()) if self.is_joint else lengths[suffix], PIECES)
            found |= {f"places{suffix}": places(*sizes), f"weights{suffix}": torch.rand(sizes)}
        if self.has_own:
            found["own"] = places(batch)
        return {f"{self.prefix}{name}": tensor for name, tensor in found.items()}

    def _texts(self, suffixes: Sequence[str], time: str) -> list[tuple[str, str]]:
        """The suffix of each text that is read, and the word for its length."""
        if self.is_joint and len(suffixes) > 1:
            return [("", f"{time}_of_both")]
        return [(suffix, f"{time}{suffix}") for suffix in suffixes]

    def of_words(self, h: Tensor, given: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """The vectors (B, T, d) of words, from those of pieces; zeros for a word without any."""
        weights = given[f"{self.prefix}weights{suffix}"].unsqueeze(-1)
        found = h.flatten(0, 1)[given[f"{self.prefix}places{suffix}"]].float()
        if self.pooling != "max":
            return (found * weights).sum(2)
        most = found.masked_fill(weights <= 0, torch.finfo(found.dtype).min).amax(2)
        return most.masked_fill(weights.amax(2) <= 0, 0.0)

    def with_own(self, h: Tensor, words: Tensor, given: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """The vectors (B, T + 1, d) of words and, before them or behind the last, that of the text."""
        own = h.flatten(0, 1)[given[f"{self.prefix}own"]].float().unsqueeze(1)
        if not self.framing.is_causal:
            return torch.cat((own, words), 1)
        slots = torch.arange(words.shape[1] + 1, device=words.device)
        last = (slots == lengths.unsqueeze(1)).unsqueeze(2)
        return torch.where(last, own, torch.nn.functional.pad(words, (0, 0, 0, 1)))


@dataclass(frozen=True, kw_only=True)
class SubwordReading(PortableReading):
    """Windows of subwords: `ids` (W, S), and perhaps `segments` (W, S)."""

    layers: Callable[[Any, Tensor, Tensor, Tensor | None], Sequence[Tensor]]
    """(model, ids, mask, segments) to the vectors (W, S, d) of subwords in each layer."""
    vocabulary_size: int
    num_segments: int = 1

    @property
    def programs(self) -> tuple[str, ...]:
        return ("subwords",)

    def window_inputs(self) -> dict[str, TensorForm]:
        windows = (f"{self.prefix}windows", f"{self.prefix}subwords")
        found = {"ids": TensorForm(windows, torch.int64), "lengths_of_windows": TensorForm(windows[:1], torch.int64)}
        return found | ({"segments": TensorForm(windows, torch.int64)} if self.num_segments > 1 else {})

    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        shape = (len(lengths), width)
        found = {"ids": torch.randint(self.vocabulary_size, shape)}
        return found | ({"segments": torch.randint(self.num_segments, shape)} if self.num_segments > 1 else {})

    def read(self, model: Any, given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        ids = given[f"{self.prefix}ids"]
        mask = mask_of(ids, given[f"{self.prefix}lengths_of_windows"])
        return self.layers(model, ids, mask, given.get(f"{self.prefix}segments"))

    @property
    def settings(self) -> dict[str, Any]:
        names = ("begin", "between", "end", "first", "blank", "gap", "most", "is_causal")
        return {
            "prefix": self.prefix,
            "tokenizer": self.file,
            "framing": {name: getattr(self.framing, name) for name in names},
            "pooling": self.pooling,
            "joint": self.is_joint,
        }
