"""The check of signatures notices wrong types and shapes at each call."""

from typing import Any

import beartype
import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor

from ensue.nn import MinGRU
from signatures import checked

check = checked(typechecker=beartype.beartype)


@check
def cut(x: Float[Tensor, "B d"], ids: Int[Tensor, " B"], to: int = 2) -> Float[Tensor, "B {to}"]:
    return x[:, : to % 3]


class Layer:
    @check
    def __init__(self, width: int) -> None:
        self.width = width

    @property
    @check
    def half(self) -> int:
        return self.width / 2 if self.width % 2 else self.width // 2  # type: ignore[return-value]

    @staticmethod
    @check
    def of(width: int) -> Float[Tensor, "2 2"]:
        return torch.zeros(width, width)


X, IDS = torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)


@pytest.mark.parametrize(
    ("x", "ids", "to"),
    [
        (X[0], IDS, 2), (X, IDS[:2], 2), (X, IDS.float(), 2), (X.long(), IDS, 2), (X.numpy(), IDS, 2), (X, IDS, "2"),
        (X, IDS, 3), (X, None, 2),
    ],
)  # fmt: skip
def test_wrong_types_and_shapes_are_detected_at_each_call(x: Any, ids: Any, to: Any) -> None:
    """With `to` = 3, the result is wrong. Sizes may differ between calls."""
    for rows in (3, 4, 3):
        assert cut(torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.long), 1).shape == (rows, 1)
        with pytest.raises(TypeCheckError):
            cut(x, ids, to)


def test_methods_and_properties_are_checked() -> None:
    assert (Layer(4).half, Layer.of(2).shape) == (2, (2, 2))
    with pytest.raises(TypeCheckError):
        Layer("4")  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        Layer(3).half  # noqa: B018
    with pytest.raises(TypeCheckError):
        Layer.of(3)


@pytest.mark.slow
def test_signatures_of_layers_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        MinGRU(4, 4).coefficients(torch.zeros(3, 4).long())
