"""A Transformer as C: the steps from one attention to the next, which the engine prints, and the sizes of attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.extensions.exporting.c.printing import Weights, printed_step
from ensue.nn import LearnedPositions, PostNormBlock, PreNormBlock, SequenceLayer, SinusoidalPositions, Stack
from ensue.types import leaves

ROWS = 16
"""Tokens that are read at once, so that the weights pass by less often."""
_POSITIONS = (LearnedPositions, SinusoidalPositions)


class Part(nn.Module):
    """The layers between two attentions, as one: from the heads of one to queries, keys and values of the next.

    The first part reads the vector of a token, with that of its position behind it; the last one gives scores. The
    state is what goes past the attention.
    """

    def __init__(self, below: Any, layers: list[SequenceLayer], above: Any, *, d_vector: int) -> None:
        super().__init__()
        self.below, self.layers, self.above = below, nn.ModuleList(layers), above
        self.d_vector, self.d_past = d_vector, (above if below is None else below).d_in
        self.d_position = sum(layer.d_in for layer in layers if isinstance(layer, _POSITIONS))
        self.d_in = d_vector + self.d_position
        self.d_out = 3 * above.d_in if isinstance(above, PostNormBlock) else above.vocabulary_size

    def init_state(self, batch_size: int) -> Tensor:
        """Zeros."""
        return torch.zeros(batch_size, self.d_past)

    def step(self, x_t: Tensor, state: Any) -> tuple[Tensor, Tensor]:
        """One token."""
        x = x_t[:, : self.d_vector]
        if self.below is not None:
            x = self.below.fed(state, self.below.attention.project_out(x))
        for layer in self.layers:
            x = x + x_t[:, self.d_vector :] if isinstance(layer, _POSITIONS) else layer.step(x)[0]  # type: ignore[operator]
        if isinstance(self.above, PostNormBlock):
            return self.above.attention.project_in(self.above.attended(x)), x
        return self.above(x), x


class WrittenNorm(nn.Module):
    """`nn.RMSNorm` in operations that the engine reads; torch's own changes a tensor in place."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.eps or 0.0

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Normalizes, with the same numbers but for rounding."""
        return x * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight


def _traceable(layers: SequenceLayer) -> SequenceLayer:
    if not any(isinstance(module, nn.RMSNorm) for module in layers.modules()):
        return layers
    found = deepcopy(layers)
    for module in list(found.modules()):
        for name, norm in module.named_children():
            if isinstance(norm, nn.RMSNorm):
                setattr(module, name, WrittenNorm(norm))
    return found


def parts_of(model: Any) -> list[Part]:
    """The parts of a model, one more than it has blocks. Raises ValueError for layers that C does not have."""
    blocks: list[Any] = [None]
    between: list[list[SequenceLayer]] = [[]]
    for layer in _flat(_traceable(model.layers)):
        if type(layer) in (PreNormBlock, PostNormBlock):
            blocks.append(layer)
            between.append([])
        elif any(True for _ in leaves(layer.init_state(1))) and (len(blocks) > 1 or not isinstance(layer, _POSITIONS)):
            raise ValueError(f"{layer!r} has a state of its own")
        else:
            between[-1].append(layer)
    if len(blocks) == 1:
        raise ValueError("it has no blocks of a Transformer")
    widths = [model.features.d_out, *(block.d_in for block in blocks[1:])]
    given = zip(blocks, between, [*blocks[1:], model.head], widths, strict=True)
    return [Part(below, layers, above, d_vector=width) for below, layers, above, width in given]


def _flat(layer: SequenceLayer) -> Iterator[SequenceLayer]:
    if isinstance(layer, Stack):
        for part in layer:
            yield from _flat(part)
    else:
        yield layer


@torch.no_grad()
def transformer_parts(model: Any, weights: Weights) -> tuple[dict[str, Any], list[str]]:
    """The constants and pieces of a Transformer. Raises `Untraceable` or ValueError for unsupported layers."""
    context = model.context
    assert context is not None
    texts: dict[str, int] = {}
    table, printed, parts = [], [], parts_of(model)
    for part in parts:
        own = Weights(precision=weights.precision)
        step = printed_step(part, own, rows=ROWS, number="_PART")
        number = texts.setdefault(step.text, len(texts))
        printed.append(step)
        begin = weights.add(np.concatenate(own.parts))
        table.append(f"    {{hoist_{number}, advance_{number}, {begin}}}")
    attention = parts[0].above.attention
    positions = [layer for layer in parts[0].layers if isinstance(layer, _POSITIONS)]
    constants: dict[str, Any] = {
        "CONTEXT": context,
        "BLOCKS": len(parts) - 1,
        "HEADS": attention.num_heads,
        "D_HEAD": attention.d_head,
        "SCORE_SCALE": 1 / math.sqrt(attention.d_head),
        "D_POSITION": parts[0].d_position,
        "D_READ": max(part.d_in for part in parts),
        "ROWS": ROWS,
        "HOISTED": max(1, *(step.hoisted for step in printed)),
        "WORK": max(step.work for step in printed),
        "IS_ROTARY": int(attention.rotary is not None),
        "AT_POSITIONS": 0,
        "AT_TURNS": 0,
    }
    for layer in positions:
        constants["AT_POSITIONS"] = weights.add_rows(layer(torch.zeros(1, context, layer.d_in))[0][0])
    if attention.rotary is not None:
        angles = attention.rotary.frequencies.angles(torch.arange(context))
        constants["AT_TURNS"] = weights.add(torch.stack((angles.cos(), angles.sin()), -1).flatten(1))
    kinds = "int64_t, const real *"
    members = (
        f"void (*hoist)(const NAME_model *, {kinds}, int64_t, real *);\n    "
        f"void (*advance)(const NAME_model *, {kinds}, const real *, real *, real *, real *);\n    size_t weights;"
    )
    steps = [text.replace("_PART", f"_{number}") for text, number in texts.items()]
    listed = "static const struct {\n    " + members + "\n} PARTS[] = {\n" + ",\n".join(table) + "};\n"
    return constants, [*steps, listed, "mixing.h", "attention.h", "transformer.h"]
