"""The conditions of a trace beside tensors: the parts of a layer, their modes, and the numbers in their attributes.

Tensors are read by name at each call. All else was read once, when the step was traced, so whoever runs a trace asks
first whether it is still so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Snapshot:
    """A layer as it is now. It keeps no module alive.

    Of an attribute that is a list, tuple or dict, what it holds counts too; any other object counts as one thing,
    whatever happens inside of it. Tensors count by their names. Hooks on parts, which want to see each position, count
    as a change.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._parts = [_Part(part, () if part is layer else _HOOKS) for part in layer.modules()]
        names = defaultdict(list)
        for name, tensor in tensors_of(layer):
            names[id(tensor)].append(attrgetter(name))
        self._ties = [same for same in names.values() if len(same) > 1]

    def holds(self, layer: nn.Module) -> bool:
        """Whether the layer is still as it was."""
        for part in self._parts:
            if not part.holds():
                return False
        return all(get(layer) is first(layer) for first, *others in self._ties for get in others)


class Copy:
    """A module as it is now, with each number of its tensors: for modules so small that these are quickly compared."""

    def __init__(self, module: nn.Module) -> None:
        self._snapshot = Snapshot(module)
        self._tensors = [tensor.detach().clone() for _, tensor in tensors_of(module)]

    def equals(self, module: nn.Module) -> bool:
        """Whether the module is still as it was, to the bit."""
        return (not has_hooks(module) and self._snapshot.holds(module)) and all(
            now.dtype == was.dtype and now.device == was.device and torch.equal(now, was)
            for (_, now), was in zip(tensors_of(module), self._tensors, strict=True)
        )


class _Part:
    """A module with its attributes, the names of its tensors, and its own parts."""

    def __init__(self, module: nn.Module, hooks: tuple[str, ...]) -> None:
        own = vars(module)
        names = [name for name in own if name not in _OF_TORCH]
        plain = [name for name in names if type(own[name]) in _PLAIN]
        self.module, self.size = ref(module), len(own)
        self.plain = itemgetter(*plain, *hooks)
        self.values = (*(own[name] for name in plain), *[{}] * len(hooks)) if hooks else self.plain(own)
        self.others = [(name, _token(own[name])) for name in names if name not in plain]
        self.children = [ref(child) for child in _children(module)]
        self.tensors = [(kind, _names(own[kind])) for kind in ("_parameters", "_buffers") if own[kind]]

    def holds(self) -> bool:
        module = self.module()
        if module is None:
            return False
        own = module.__dict__
        try:
            if len(own) != self.size or self.plain(own) != self.values:
                return False
        except (KeyError, RuntimeError, ValueError):  # it is not there, or is a tensor or an array now
            return False
        for name, token in self.others:
            if _token(own.get(name)) != token:
                return False
        for kind, names in self.tensors:
            if _names(own[kind]) != names:
                return False
        return not self.children or [was() for was in self.children] == _children(module)


class _Object:
    """An object that is equal to itself alone, as long as it is alive."""

    def __init__(self, value: Any) -> None:
        self.value = ref(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self.value() is other.value() is not None

    __hash__ = None  # type: ignore[assignment]


def _token(value: Any) -> Any:
    """A value that is equal as long as an attribute is as it was."""
    if isinstance(value, (list, tuple)):
        return type(value), [_token(part) for part in value]
    if isinstance(value, dict):
        return type(value), {name: _token(part) for name, part in value.items()}
    if isinstance(value, Tensor):
        return Tensor
    try:
        return type(value), value if type(value) in _PLAIN else _Object(value)
    except TypeError:  # it cannot be referred to weakly, as a type of numbers cannot
        return type(value), value


def tensors_of(layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters, buffers and other tensors in attributes of a layer's parts, by name, whatever is one tensor.

    Hooks that make a weight of others, as those for pruning do, leave it in an attribute.
    """
    yield from layer.named_parameters(remove_duplicate=False)
    yield from layer.named_buffers(remove_duplicate=False)
    for prefix, part in layer.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                yield f"{prefix}.{name}".removeprefix("."), value


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks that its calls go through."""
    return any(vars(module)[name] for name in _HOOKS)


def _children(module: nn.Module) -> list[nn.Module]:
    return [child for child in module._modules.values() if child is not None]


def _names(tensors: dict[str, Tensor | None]) -> list[str]:
    return [name for name, tensor in tensors.items() if tensor is not None]
