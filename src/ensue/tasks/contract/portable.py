"""A model as functions of tensors, for programs that have neither ensue nor torch: what a pipeline says of itself.

Exporters write it. Whatever a function is given and gives is a tensor with a name; a state is a tensor for each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ensue.text.tokenizer import Tokenizer
from ensue.types import Shared, State, map_state


@dataclass(frozen=True)
class TensorForm:
    """The sizes of a tensor, where a word stands for any number, and its type."""

    sizes: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class PortableFunction:
    """A function of a model and its inputs. `sample` makes inputs of some rows and positions, to compare with."""

    name: str
    function: Callable[..., dict[str, Tensor]]
    """(model, **inputs) to the outputs by name; what they are at padding is defined."""
    inputs: Mapping[str, TensorForm]
    sample: Callable[[int, int], dict[str, Tensor]]


@dataclass(frozen=True)
class Portable:
    """The parts of an exported model."""

    model: nn.Module
    """The model that the functions are given, or one that has more inside."""
    functions: tuple[PortableFunction, ...]
    programs: tuple[str, ...]
    """The program that uses it, and those beside it that it imports. They bring their modules of ensue."""
    settings: Mapping[str, Any]
    """The settings that this program reads, as JSON values."""
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)
    """The tokenizers, by the names of their files."""


def mask_of(numbers: Tensor, lengths: Tensor) -> Tensor:
    """(B, T), True at the first `lengths` positions of each row."""
    return torch.arange(numbers.shape[1], device=numbers.device) < lengths.unsqueeze(1)


def sample_lengths(batch: int, length: int) -> Tensor:
    """The lengths of some rows, 1 at least; the first one has them all."""
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    return lengths


def state_forms(state: State, longer: State = None) -> dict[str, TensorForm]:
    """The names and sizes of the leaves of an initial state of several rows.

    A size is free if it is 0 and grows, or differs from that in `longer`, the state after a longer source. It is "past"
    where attention grows, and "source" elsewhere. Of what rows share there are "texts"; each is read by as many rows.
    """
    others = _leaves(state if longer is None else longer, "state", None)
    found = {}
    for (name, leaf, word), (_, other, _) in zip(_leaves(state, "state", None), others, strict=True):
        pairs = zip(leaf.shape[1:], other.shape[1:], strict=True)
        sizes = [word or "source" if a != b or (a == 0 and word) else a for a, b in pairs]
        found[name] = TensorForm(("texts" if word == "source" else "batch", *sizes), leaf.dtype)
    return found


def state_tensors(state: State, prefix: str = "state") -> dict[str, Tensor]:
    """The leaves of a state by their names."""
    return {name: leaf for name, leaf, _ in _leaves(state, prefix, None)}


def state_from(like: State, tensors: Mapping[str, Tensor], count: int | None = None) -> State:
    """The state of the form `like` with these leaves. With `count` rows, equally many read each text, in order."""
    names = iter([name for name, _, _ in _leaves(like, "state", None)])

    def given(leaf: Tensor) -> Tensor:
        return tensors[next(names)]

    def shared(part: Shared) -> Shared:
        found = Shared.of(map_state(given, part.content))
        rows = torch.arange(count or found.texts, device=found.rows.device)
        return found if count is None else Shared(found.content, rows // max(1, count // max(1, found.texts)))

    return map_state(given, like, shared=shared)


def _leaves(state: State, path: str, more: str | None) -> Iterator[tuple[str, Tensor, str | None]]:
    """The name of each leaf, the leaf, and the word for a size of it that is 0 in the beginning."""
    if isinstance(state, Tensor):
        yield path, state, more
    elif isinstance(state, Shared):
        yield from _leaves(state.content, path, "source")
    elif state is not None:
        more = "past" if hasattr(state, "grows") else more
        names = getattr(state, "_fields", None) or range(len(state))
        for name, part in zip(names, state, strict=True):
            yield from _leaves(part, f"{path}.{name}", more)
