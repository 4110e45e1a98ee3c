"""Export of Transformers to C. Attention is a template, and the engine prints the layers between two attentions."""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.extensions.exporting.c.printing import Weights, print_step
from ensue.extensions.exporting.c.word_layers import iterate_layers
from ensue.nn import LearnedPositions, PostNormBlock, PreNormBlock, SequenceLayer, SinusoidalPositions
from ensue.types import leaves

MAX_ROWS = 16
"""The maximum number of tokens in a call. Weights are loaded from memory once per call."""
_POSITIONS = (LearnedPositions, SinusoidalPositions)


class BlockSegment(nn.Module):
    """The layers between two attentions, from the output of the first attention to the inputs of the second attention.

    The first segment reads vectors of tokens and positions; the last segment returns the scores of tokens. The state is
    the residual stream.
    """

    def __init__(self, below: Any, layers: list[SequenceLayer], above: Any, *, d_vector: int) -> None:
        super().__init__()
        self.below, self.layers, self.above = below, nn.ModuleList(layers), above
        self.d_vector, self.d_past = d_vector, (above if below is None else below).d_in
        self.d_position = sum(layer.d_in for layer in layers if isinstance(layer, _POSITIONS))
        self.d_in = d_vector + self.d_position
        self.d_out = 3 * above.d_in if isinstance(above, PostNormBlock) else above.vocabulary_size

    def init_state(self, batch_size: int) -> Tensor:
        return torch.zeros(batch_size, self.d_past)

    def step(self, x_t: Tensor, state: Any) -> tuple[Tensor, Tensor]:
        x = x_t[:, : self.d_vector]
        if self.below is not None:
            x = self.below.feed_forward(state, self.below.attention.project_out(x))
        for layer in self.layers:
            x = x + x_t[:, self.d_vector :] if isinstance(layer, _POSITIONS) else layer.step(x)[0]  # type: ignore[operator]
        if isinstance(self.above, PostNormBlock):
            return self.above.attention.project_in(self.above.normalize_input(x)), x
        return self.above(x), x


class TraceableRMSNorm(nn.Module):
    """A replacement of `nn.RMSNorm`, which changes a tensor in place, so the engine cannot trace it."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.eps or 0.0

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        return x * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight


def _replace_norms(layers: SequenceLayer) -> SequenceLayer:
    if not any(isinstance(module, nn.RMSNorm) for module in layers.modules()):
        return layers
    copy = deepcopy(layers)
    for module in list(copy.modules()):
        for name, norm in module.named_children():
            if isinstance(norm, nn.RMSNorm):
                setattr(module, name, TraceableRMSNorm(norm))
    return copy


def split_at_attention(model: Any) -> list[BlockSegment]:
    """Split a model at its attentions. Raises ValueError for unsupported layers."""
    blocks: list[Any] = [None]
    between: list[list[SequenceLayer]] = [[]]
    for layer in iterate_layers(_replace_norms(model.layers)):
        if type(layer) in (PreNormBlock, PostNormBlock):
            blocks.append(layer)
            between.append([])
        elif any(True for _ in leaves(layer.init_state(1))) and (len(blocks) > 1 or not isinstance(layer, _POSITIONS)):
            raise ValueError(f"{layer!r} has a separate state")
        else:
            between[-1].append(layer)
    if len(blocks) == 1:
        raise ValueError("it has no blocks of a Transformer")
    widths = [model.features.d_out, *(block.d_in for block in blocks[1:])]
    segments = zip(blocks, between, [*blocks[1:], model.head], widths, strict=True)
    return [BlockSegment(below, layers, above, d_vector=width) for below, layers, above, width in segments]


@torch.no_grad()
def transformer_source(model: Any, weights: Weights) -> list[str]:
    """Return the code of a Transformer. Raises `Untraceable` or ValueError for unsupported layers."""
    context = model.context
    assert context is not None
    texts: dict[str, int] = {}
    table, steps, segments = [], [], split_at_attention(model)
    for segment in segments:  # segments with equal code share their functions, with weights at different offsets
        segment_weights = Weights(precision=weights.precision)
        step = print_step(segment, segment_weights, rows=MAX_ROWS, number="_SEGMENT")
        number = texts.setdefault(step.text, len(texts))
        steps.append(step)
        begin = weights.add(np.concatenate(segment_weights.arrays))
        table.append(f"    {{hoist_{number}, advance_{number}, {begin}}}")
    attention = segments[0].above.attention
    positions = [layer for layer in segments[0].layers if isinstance(layer, _POSITIONS)]
    constants = weights.constants
    constants |= {
        "CONTEXT": context, "BLOCKS": len(segments) - 1, "HEADS": attention.num_heads, "D_HEAD": attention.d_head,
        "SCORE_SCALE": 1 / math.sqrt(attention.d_head), "D_POSITION": segments[0].d_position,
        "D_READ": max(segment.d_in for segment in segments), "ROWS": MAX_ROWS,
        "HOISTED": max(1, *(step.hoisted for step in steps)), "WORK": max(step.work for step in steps),
        "IS_ROTARY": int(attention.rotary is not None), "AT_POSITIONS": 0, "AT_ANGLES": 0,
    }  # fmt: skip
    for layer in positions:
        constants["AT_POSITIONS"] = weights.add_rows(layer(torch.zeros(1, context, layer.d_in))[0][0])
    if attention.rotary is not None:
        angles = attention.rotary.frequencies.angles(torch.arange(context))
        constants["AT_ANGLES"] = weights.add(torch.stack((angles.cos(), angles.sin()), -1).flatten(1))
    types = "int64_t, const real *"
    members = (
        f"void (*hoist)(const NAME_model *, {types}, int64_t, real *);\n    "
        f"void (*advance)(const NAME_model *, {types}, const real *, real *, real *, real *);\n    size_t weights;"
    )
    functions = [text.replace("_SEGMENT", f"_{number}") for text, number in texts.items()]
    structs = "static const struct {\n    " + members + "\n} SEGMENTS[] = {\n" + ",\n".join(table) + "};\n"
    return [*functions, structs, "mixing.h", "attention.h", "transformer.h"]
