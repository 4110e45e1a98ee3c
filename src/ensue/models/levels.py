"""The levels of a model: its parameters from the input to the head, as far as they are from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from ensue.nn import Bidirectional, LearnedPositions, Pointwise, SequenceLayer, Stack
from ensue.nn.attention.blocks import PostNormDecoderBlock

Level = dict[str, nn.Parameter]


def levels_of(model: nn.Module) -> list[Level]:
    """The parameters by name, from the lowest level to the highest.

    Level 0 has what comes before the first layer: the vectors of tokens or words, positions, a projection of the input.
    Then comes a level for each layer, and at last one for the head and all else behind the layers. A normalization
    belongs to the layer before it, and a parameter that two levels share to the lower one. Layers that are one module,
    such as a grid, are one level. The parts of a model are its `passed_parts`, else its modules in their order.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    levels: list[list[nn.Parameter]] = [[]]
    for part in _passed(model):
        if isinstance(part, SequenceLayer) and not isinstance(part, Pointwise | LearnedPositions):
            levels.append([])
        levels[-1].extend(part.parameters())
    return [_named(level, names) for level in [*levels, list(model.parameters())]]


def _passed(model: nn.Module) -> Iterator[nn.Module]:
    """The parts of a model up to its last layer: what is not a layer, then layer by layer."""
    declared: Callable[[], Iterator[nn.Module]] = getattr(model, "passed_parts", model.children)
    parts = list(declared())
    layered = [any(isinstance(part, SequenceLayer) for part in child.modules()) for child in parts]
    below = len(parts) - layered[::-1].index(True) if any(layered) else 0
    yield from (part for part, has in zip(parts[:below], layered, strict=False) if not has)
    for part, has in zip(parts, layered, strict=True):
        if has:
            yield from _layers(part)


def called_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of stacks whose parameters nothing needs but their `forward`. Of a block that attends to a memory, for
    which some are needed before, these are its other parts.
    """
    if isinstance(module, Stack):
        for layer in module:
            yield from called_layers(layer) if isinstance(layer, Stack) else _called(layer)
    elif isinstance(module, Bidirectional) or not isinstance(module, SequenceLayer):
        for child in module.children():
            yield from called_layers(child)


def _called(layer: SequenceLayer) -> Iterator[nn.Module]:
    if isinstance(layer, PostNormDecoderBlock):
        yield from (layer.attention, layer.feedforward)
    elif layer.d_memory is None and any(parameter.dim() > 1 for parameter in layer.parameters()):
        yield layer


def _layers(part: nn.Module) -> Iterator[nn.Module]:
    if isinstance(part, Stack):
        for layer in part:
            yield from _layers(layer)
    elif isinstance(part, SequenceLayer):
        yield part
    else:
        yield from _passed(part)


def _named(level: list[nn.Parameter], names: dict[nn.Parameter, str]) -> Level:
    """The parameters of a level that no lower one has, which are then taken."""
    found = {names.pop(parameter): parameter for parameter in level if parameter in names}
    return {name: parameter for name, parameter in found.items() if parameter.requires_grad}
