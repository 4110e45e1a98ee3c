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
    """`read` makes our tensor of theirs, `write` theirs of ours, of which there are so many."""

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, int], Sequence[Tensor]]


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


def layer(ours: str, *theirs: str, form: Form = PLAIN) -> list[Part]:
    """The weight and the bias of a layer; `form` is that of the weight."""
    bias = JOINED if form is JOINED else PLAIN
    return [
        Part(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), form),
        Part(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), bias),
    ]


def blocks(
    encoder: TransformerEncoder, prefix: str, names: BlockNames, *, form: Form = PLAIN, inside: str = "layers.layers"
) -> list[Part]:
    """The blocks of a Transformer, whose names in the published model begin with the prefix and a number."""
    first, found = first_block(encoder), []
    attention = JOINED if len(names.attention_in) > 1 else form
    for number in range(encoder.num_layers):
        ours, theirs = f"{inside}.{first + number}", f"{prefix}{number}."
        found += [
            *layer(f"{ours}.attention.project_in", *(theirs + name for name in names.attention_in), form=attention),
            *layer(f"{ours}.attention.project_out", theirs + names.attention_out, form=form),
            *layer(f"{ours}.norm_attention", theirs + names.norm_attention),
            *layer(f"{ours}.feedforward.0", theirs + names.first, form=form),
            *layer(f"{ours}.feedforward.3", theirs + names.second, form=form),
            *layer(f"{ours}.norm_feedforward", theirs + names.norm_feedforward),
        ]
    return found


def first_block(encoder: TransformerEncoder) -> int:
    """The place of the first block among the layers: behind positions, a normalization and dropout."""
    return (encoder.positions != "rotary") + encoder.norm_input + 1


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
