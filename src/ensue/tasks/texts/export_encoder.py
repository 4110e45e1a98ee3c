"""Encoders of exported graphs: inputs with texts in windows, and outputs with vectors of words."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ensue.tasks.contract.description import TensorSpec, mask_of, sample_lengths
from ensue.tasks.texts.framing import Framing

NUM_SAMPLE_PIECES, NUM_EXTRA_WINDOWS = 2, 1
"""In a sample, the number of pieces of a word, and the difference of the numbers of windows and texts."""


@dataclass(frozen=True, kw_only=True)
class ExportEncoder(ABC):
    """The encoder of an exported graph: layers that read windows over the pieces of words, such as subwords. The inputs
    of the graph are the windows with their lengths `lengths_of_windows` (W,). For each text, `places` (B, T, P) are the
    indices of the pieces of its words among the positions of all windows, with `weights` (B, T, P). `own` (B,) are the
    indices of the vectors of texts among these positions.
    """

    framing: Framing
    pooling: str
    """The pooling of the vectors of pieces to the vector of a word: "first", "last", "mean" or "max"."""
    is_joint: bool = False
    """Whether a pair is read as one text."""
    has_text_vector: bool = False
    """Whether a text has a vector: the vector of its last position for a causal encoder, else of its first position."""
    prefix: str = ""
    """The beginning of the names of inputs, which differs between the encoders of a graph."""

    programs: ClassVar[tuple[str, ...]]
    """The names of modules that compute the inputs in an exported program."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings of the modules, as JSON values."""

    @abstractmethod
    def window_inputs(self) -> dict[str, TensorSpec]:
        """Return the shapes and types of the windows, by names without the prefix."""

    @abstractmethod
    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        """Return sample windows with `lengths` (W,), padded to `width`."""

    @abstractmethod
    def read(self, model: Any, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """Return the vectors (W, S, d) of pieces in each layer."""

    def with_number(self, number: int) -> Self:
        """Return the encoder with the prefix for its index in a graph, from 0."""
        return replace(self, prefix=f"{number + 1}." if number else "")

    @property
    def file(self) -> str:
        """The name of the file of the tokenizer."""
        return f"{self.prefix}tokenizer.json"

    def inputs(self, suffixes: Sequence[str], *, time: str = "time") -> dict[str, TensorSpec]:
        """Return the inputs of a graph. Their names end in `suffixes` of texts; `time` is the name of the length."""
        forms = self.window_inputs()
        for suffix, length in self._list_texts(suffixes, time):
            sizes = ("batch", length, f"{self.prefix}pieces{suffix}")
            forms |= {f"places{suffix}": TensorSpec(sizes, torch.int64), f"weights{suffix}": TensorSpec(sizes)}
        if self.has_text_vector:
            forms["own"] = TensorSpec(("batch",), torch.int64)
        return {f"{self.prefix}{name}": form for name, form in forms.items()}

    def sample(self, batch: int, lengths: Mapping[str, int]) -> dict[str, Tensor]:
        """Return sample inputs; `lengths` are maximum numbers of words by the suffix of the text."""
        size = max(lengths.values())
        width = min(size, self.framing.max_positions or size)
        window_lengths = sample_lengths(batch + NUM_EXTRA_WINDOWS, width)

        def places(*sizes: int) -> Tensor:
            windows = torch.randint(len(window_lengths), sizes)
            return windows * width + (torch.rand(sizes) * window_lengths[windows]).long()

        tensors = {**self.sample_windows(window_lengths, width), "lengths_of_windows": window_lengths}
        for suffix, _ in self._list_texts(tuple(lengths), "time"):
            sizes = (batch, sum(lengths.values()) if self.is_joint else lengths[suffix], NUM_SAMPLE_PIECES)
            tensors |= {f"places{suffix}": places(*sizes), f"weights{suffix}": torch.rand(sizes)}
        if self.has_text_vector:
            tensors["own"] = places(batch)
        return {f"{self.prefix}{name}": tensor for name, tensor in tensors.items()}

    def _list_texts(self, suffixes: Sequence[str], time: str) -> list[tuple[str, str]]:
        """Return the suffix of each text that is read, and the name of its length."""
        if self.is_joint and len(suffixes) > 1:
            return [("", f"{time}_of_both")]
        return [(suffix, f"{time}{suffix}") for suffix in suffixes]

    def word_vectors(self, h: Tensor, inputs: Mapping[str, Tensor], suffix: str = "") -> Tensor:
        """Return the vectors (B, T, d) of words, pooled from vectors of pieces; zeros for a word without pieces."""
        weights = inputs[f"{self.prefix}weights{suffix}"].unsqueeze(-1)
        pieces = h.flatten(0, 1)[inputs[f"{self.prefix}places{suffix}"]].float()
        if self.pooling != "max":
            return (pieces * weights).sum(2)
        maxima = pieces.masked_fill(weights <= 0, torch.finfo(pieces.dtype).min).amax(2)
        return maxima.masked_fill(weights.amax(2) <= 0, 0.0)

    def with_text_vector(self, h: Tensor, words: Tensor, inputs: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the vectors (B, T + 1, d) of words and the text. The text is last for a causal model, else first."""
        text_vectors = h.flatten(0, 1)[inputs[f"{self.prefix}own"]].float().unsqueeze(1)
        if not self.framing.is_causal:
            return torch.cat((text_vectors, words), 1)
        last = (torch.arange(words.shape[1] + 1, device=words.device) == lengths.unsqueeze(1)).unsqueeze(2)
        return torch.where(last, text_vectors, torch.nn.functional.pad(words, (0, 0, 0, 1)))


@dataclass(frozen=True, kw_only=True)
class SubwordExportEncoder(ExportEncoder):
    """An encoder that reads windows of subwords: the inputs `ids` (W, S), and optionally `segments` (W, S)."""

    layers: Callable[[Any, Tensor, Tensor, Tensor | None], Sequence[Tensor]]
    """Maps (model, ids, mask, segments) to the vectors (W, S, d) of subwords in each layer."""
    vocabulary_size: int
    num_segments: int = 1
    programs: ClassVar[tuple[str, ...]] = ("subwords",)

    def window_inputs(self) -> dict[str, TensorSpec]:
        windows = (f"{self.prefix}windows", f"{self.prefix}subwords")
        forms = {"ids": TensorSpec(windows, torch.int64), "lengths_of_windows": TensorSpec(windows[:1], torch.int64)}
        return forms | ({"segments": TensorSpec(windows, torch.int64)} if self.num_segments > 1 else {})

    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        shape = (len(lengths), width)
        tensors = {"ids": torch.randint(self.vocabulary_size, shape)}
        return tensors | ({"segments": torch.randint(self.num_segments, shape)} if self.num_segments > 1 else {})

    def read(self, model: Any, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
        ids = inputs[f"{self.prefix}ids"]
        mask = mask_of(ids, inputs[f"{self.prefix}lengths_of_windows"])
        return self.layers(model, ids, mask, inputs.get(f"{self.prefix}segments"))

    @property
    def settings(self) -> dict[str, Any]:
        names = ("begin", "between", "end", "first_blank", "blank", "gap", "max_positions", "is_causal")
        framing = {name: getattr(self.framing, name) for name in names}
        settings = {"prefix": self.prefix, "tokenizer": self.file, "framing": framing}
        return settings | {"pooling": self.pooling, "joint": self.is_joint}
