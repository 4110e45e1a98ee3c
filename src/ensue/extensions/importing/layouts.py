"""How the parameters of a published model correspond to ours: one table for both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ensue.errors import DataError
from ensue.models.specification import TransformerEncoder


class Form(NamedTuple):
    """`read` makes our tensor of theirs, `write` theirs of ours, of which there are so many.

    Without `write`, it is a shape that is read alone, since several of theirs make the same.
    """

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, int], Sequence[Tensor]] = lambda *_: []


PLAIN = Form(lambda theirs: theirs[0], lambda ours, _: [ours])
TRANSPOSED = Form(lambda theirs: theirs[0].t().contiguous(), lambda ours, _: [ours.t().contiguous()])
"""A matrix that is stored [in, out]."""
JOINED = Form(lambda theirs: torch.cat(list(theirs)), torch.chunk)
"""Several tensors, one after another along their first dimension."""
TURNED = Form(lambda theirs: theirs[0].flip(0), lambda ours, _: [ours.flip(0)])
"""Rows in the other order: of theirs the first one says that a sentence follows, of ours the second."""
FROM_THE_THIRD = Form(
    lambda theirs: theirs[0][2:], lambda ours, _: [torch.cat([ours.new_zeros(2, ours.shape[1]), ours])]
)
"""Positions that are numbered from 2."""


class Part(NamedTuple):
    """A parameter of ours, and the tensors of theirs that it is made of."""

    ours: str
    theirs: tuple[str, ...]
    form: Form = PLAIN


class BlockNames(NamedTuple):
    """The names of a block's layers in a published model."""

    attention_in: tuple[str, ...]
    attention_out: str
    norm_attention: str
    first: str
    second: str
    norm_feedforward: str
    factor: str = ""
    """The map that multiplies the neurons of a gated feed-forward network."""


def layer(ours: str, *theirs: str, form: Form = PLAIN, has_bias: bool = True) -> list[Part]:
    """The weight and the bias of a layer; `form` is that of the weight. A bias that they have not is 0."""
    bias = JOINED if form is JOINED else PLAIN
    weights = tuple(f"{name}.weight" for name in theirs)
    zeros = Form(lambda tensors: (found := form.read(tensors)).view(len(found), -1)[:, 0] * 0)
    return [
        Part(f"{ours}.weight", weights, form),
        Part(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), bias)
        if has_bias
        else Part(f"{ours}.bias", weights, zeros),
    ]


def blocks(
    encoder: TransformerEncoder, prefix: str, names: BlockNames, *, form: Form = PLAIN, inside: str = "layers.layers",
    attention: Form | None = None, has_bias: bool = True,
) -> list[Part]:  # fmt: skip
    """The blocks of a Transformer, whose names in the published model begin with the prefix, in which a
    `{}` stands for its number. `attention` is the form of its queries, keys and values.
    """
    first, found = first_block(encoder), []
    attention = attention or (JOINED if len(names.attention_in) > 1 else form)
    norm = slice(1 if encoder.norm_kind == "rms" else 2)
    for number in range(encoder.num_layers):
        ours, theirs = f"{inside}.{first + number}", prefix.format(number)
        heads = (theirs + name for name in names.attention_in)
        factor = [("feedforward.factor", names.factor)] if encoder.gated else []
        linear = [("attention.project_out", names.attention_out), ("feedforward.0", names.first), *factor]
        found += layer(f"{ours}.attention.project_in", *heads, form=attention, has_bias=has_bias)
        norms = [("norm_attention", names.norm_attention)] if number or encoder.norm_first else []
        for own, name in [*linear, ("feedforward.3", names.second)]:
            found += layer(f"{ours}.{own}", theirs + name, form=form, has_bias=has_bias)
        for own, name in (*norms, ("norm_feedforward", names.norm_feedforward)):
            found += layer(f"{ours}.{own}", theirs + name, has_bias=has_bias)[norm]
    return found


def first_block(encoder: TransformerEncoder) -> int:
    """The place of the first block among the layers: behind positions, a normalization, dropout and a map."""
    return (encoder.positions in ("learned", "sinusoidal")) + encoder.norm_input + 1 + (encoder.d_input is not None)


def pairs(encoder: TransformerEncoder) -> Tensor:
    """The place of each of our features among those of their head: pairs of neighbors are halves of a rotation."""
    d = encoder.d_model // encoder.num_heads
    turned = int(d * encoder.rotary_share) // 2 * 2
    return torch.cat([torch.arange(turned).view(2, -1).t().flatten(), torch.arange(turned, d)])


def to_ours(parts: Iterable[Part], tensors: Mapping[str, Tensor], place: Path) -> dict[str, Tensor]:
    """Our parameters. Raises DataError for a tensor that is missing, and for one with another number of dimensions."""
    found = {}
    for part in parts:
        if missing := next((name for name in part.theirs if name not in tensors), None):
            raise DataError(f"no tensor {missing}", place)
        theirs = [tensors[name] for name in part.theirs]
        try:
            found[part.ours] = part.form.read(theirs)
        except (RuntimeError, IndexError):
            sizes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in zip(part.theirs, theirs, strict=True))
            raise DataError(f"tensors of other sizes than a model of this shape has: {sizes}", place) from None
    return found


def to_theirs(parts: Iterable[Part], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors."""
    found: dict[str, Tensor] = {}
    for part in parts:
        found |= zip(part.theirs, part.form.write(tensors[part.ours], len(part.theirs)), strict=True)
    return {name: tensor.contiguous() for name, tensor in found.items()}
