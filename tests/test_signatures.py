"""What the check of signatures notices, also where it has seen arguments like these before."""

from typing import Any, NamedTuple

import beartype
import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor

from ensue.nn import MinGRU
from signatures import checked

check = checked(typechecker=beartype.beartype)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@check
def cut(x: Float[Tensor, "B d"], *, to: int, wrong: Any = None) -> Float[Tensor, "B {to}"]:
    return x[:, :to] if wrong is None else wrong


@check
def joined(parts: list[Tensor], pair: Pair | None = None) -> Float[Tensor, "B d"]:
    return torch.stack(parts)


@check
def twice(x: Float[Tensor, "B d"], ids: Int[Tensor, " B"], name: str = "") -> tuple[Float[Tensor, "B d"], str]:
    return x + x if name == "wrong" else (x + x, name)  # type: ignore[return-value]


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
    ("x", "ids", "more"),
    [
        (X[0], IDS, ()), (X, IDS[:2], ()), (X, IDS.float(), ()), (X.long(), IDS, ()), (X.numpy(), IDS, ()),
        (X, IDS, (1,)), (X, IDS, ("wrong",)), (X, None, ()),
    ],
)  # fmt: skip
def test_what_is_wrong_is_noticed_at_first_and_after_what_is_right(x: Any, ids: Any, more: Any) -> None:
    for _ in range(3):
        twice(X, IDS, "right")
        with pytest.raises(TypeCheckError):
            twice(x, ids, *more)


def test_a_wrong_result_of_arguments_that_were_right_before_is_noticed() -> None:
    answers = [X, X, X[:2], X[0], X]

    @check
    def answer(x: Float[Tensor, "B d"]) -> Float[Tensor, "B _"]:
        return answers.pop(0)

    for wanted in (X, X, None, None, X):
        if wanted is None:
            with pytest.raises(TypeCheckError):
                answer(X)
        else:
            assert answer(X) is wanted


def test_sizes_in_a_result_that_are_read_from_arguments() -> None:
    for _ in range(2):
        assert cut(X, to=1).shape == (3, 1)
        with pytest.raises(TypeCheckError):
            cut(X, to=1, wrong=X)


def test_what_was_right_in_other_sizes_is_right_and_sizes_that_are_the_same_stay_so() -> None:
    calls = []

    @check
    def product(x: Float[Tensor, "B d"], y: Float[Tensor, "d 2"], cut: int = 0) -> Float[Tensor, "B 2"]:
        calls.append(x.shape)
        return (x @ y)[cut:]

    for B, d in ((3, 2), (4, 3), (5, 3), (4, 4), (2, 2), (7, 2)):
        assert product(torch.zeros(B, d), torch.zeros(d, 2)).shape == (B, 2)
        with pytest.raises(TypeCheckError):
            product(torch.zeros(B, d), torch.zeros(d + 1, 2))
        with pytest.raises(TypeCheckError):
            product(torch.zeros(B, d), torch.zeros(d, 3))
        with pytest.raises(TypeCheckError):
            product(torch.zeros(B, d), torch.zeros(d, 2), 1)


def test_long_lists_are_checked_each_time() -> None:
    many = [X[0]] * 17
    for _ in range(2):
        joined(many, Pair(X, X))
        with pytest.raises(TypeCheckError):
            joined([None] * 17)  # type: ignore[list-item]


def test_methods_and_properties() -> None:
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
