"""The random numbers of a row do not depend on the slice of the batch, and have their distributions."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from ensue.engine import c_functions
from ensue.nn import draws
from ensue.nn.draws import RowSlice, apply_dropout, drawing_rows, normal, uniform

DRAWS: dict[str, Callable[[Sequence[int]], Tensor]] = {
    "uniform": uniform,
    "normal": normal,
    "normal in float64": lambda shape: normal(shape, dtype=torch.float64),
    "dropped": lambda shape: apply_dropout(torch.ones(shape), 0.3),
    "dropped in torch": lambda shape: apply_dropout(torch.ones(shape, dtype=torch.float64), 0.3),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("others", [(), (3,), (4, 5), (0,)])
def test_rows_draw_only_their_own_numbers(name: str, others: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    all_rows, words, counted = DRAWS[name]((7, *others)), draws._draw_words, list[int]()
    after = torch.rand(())
    monkeypatch.setattr(draws, "_draw_words", lambda rows, each: counted.append(rows) or words(rows, each))
    for rows in (slice(0, 2), slice(2, 7), slice(3, 3), torch.tensor([6, 1])):
        torch.manual_seed(1)
        expected = all_rows[rows]
        with drawing_rows(RowSlice(rows, 7)):
            assert torch.equal(DRAWS[name]((len(expected), *others)), expected)
        assert torch.rand(()) == after
    in_torch = [n for n in (2, 5, 0, 2) if name != "dropped" or c_functions(torch.ones(n, *others)) is None]
    assert counted == in_torch  # C draws the others


def test_numbers_have_their_distributions() -> None:
    torch.manual_seed(0)
    u, z = uniform((200, 999)), normal((200, 999), dtype=torch.float64)
    assert (u.min() >= 0, u.max() < 1) == (True, True)
    for power in (1, 2, 3, 4):
        assert (u**power).mean().item() == pytest.approx(1 / (power + 1), abs=3e-3)
        assert (z**power).mean().item() == pytest.approx([0, 1, 0, 3][power - 1], abs=0.05)
    neighbors = torch.stack((u[:, :-1].flatten(), u[:, 1:].flatten(), u[torch.arange(199, -1, -1), 1:].flatten()))
    assert torch.corrcoef(neighbors).sub(torch.eye(3)).abs().max() < 0.01
    for p in (0.0, 0.1, 0.75):
        y = apply_dropout(torch.ones(200, 1001), p)
        assert (y == 0).double().mean().item() == pytest.approx(p, abs=4e-3)
        assert y.max().item() == pytest.approx(1 / (1 - p), rel=1e-4)
    assert not apply_dropout(torch.ones(3, 3), 1.0).any()
    assert not torch.equal(uniform((3, 3)), uniform((3, 3)))
