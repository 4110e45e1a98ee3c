"""States as values: trees that are selected from, held, detached and joined; and losses, which add."""

from typing import NamedTuple

import torch
from torch import Tensor

from ensue.types import Loss, State, concatenate_rows, detach, hold, leaves, map_state, select_rows


class Pair(NamedTuple):
    h: Tensor
    inner: State


def nested(offset: float = 0.0) -> tuple[State, ...]:
    h = torch.arange(3.0) + offset
    return Pair(h, (None, h.view(3, 1, 1) * torch.ones(3, 2, 0))), None, (h.view(3, 1).repeat(1, 2),)


def test_map_keeps_the_tree() -> None:
    first, nothing, (last,) = map_state(lambda a, b: a + b, nested(), nested(10.0))
    assert nothing is None
    assert isinstance(first, Pair)
    assert first.inner[0] is None
    assert first.h.tolist() == [10, 12, 14]
    assert last.tolist() == [[10, 10], [12, 12], [14, 14]]


def test_leaves_come_in_order() -> None:
    assert [leaf.shape for leaf in leaves(nested())] == [(3,), (3, 2, 0), (3, 2)]
    assert list(leaves(None)) == []


def test_select_rows_reorders_repeats_and_drops() -> None:
    selected = select_rows(nested(), torch.tensor([2, 0, 0, 1]))
    assert selected[0].h.tolist() == [2, 0, 0, 1]
    assert selected[2][0].tolist() == [[2, 2], [0, 0], [0, 0], [1, 1]]
    assert select_rows(nested(), torch.tensor([False, True, False]))[0].h.tolist() == [1]


def test_concatenate_rows_puts_together_what_select_rows_took_apart() -> None:
    state = nested()
    parts = [select_rows(state, torch.tensor(rows)) for rows in ([0], [1, 2])]
    torch.testing.assert_close(list(leaves(concatenate_rows(parts))), list(leaves(state)))


def test_detach_ends_the_history() -> None:
    source = torch.ones(2, requires_grad=True)
    state = Pair(source * 2, (source * 3,))
    assert all(leaf.requires_grad for leaf in leaves(state))
    assert not any(leaf.requires_grad for leaf in leaves(detach(state)))


def test_hold_chooses_by_row() -> None:
    held = hold(torch.tensor([True, False, True]), nested(10.0), nested())
    assert held[0].h.tolist() == [10, 1, 12]
    assert held[2][0].tolist() == [[10, 10], [1, 1], [12, 12]]


def test_losses_add_and_are_divided_last() -> None:
    """The mean of a sum of losses is not the mean of their means."""
    total = Loss(torch.tensor(6.0), 3) + Loss(torch.tensor(2.0), 1)
    assert isinstance(total, Loss)
    assert (total.total.item(), total.count, total.mean.item()) == (8, 4, 2)
    assert Loss(torch.tensor(0.0), 0).mean.item() == 0
