"""Trees of states are selected, held, detached and concatenated by row, and losses are added."""

from typing import NamedTuple

import torch
from torch import Tensor

from ensue.types import Loss, Shared, State, compacted, concatenate_rows, detach, hold, leaves, map_state, select_rows


class Pair(NamedTuple):
    h: Tensor
    inner: State


def nested(offset: float = 0.0) -> tuple[State, ...]:
    h = torch.arange(3.0) + offset
    return Pair(h, (None, h.view(3, 1, 1) * torch.ones(3, 2, 0))), None, (h.view(3, 1).repeat(1, 2),)


def test_map_state_keeps_the_tree() -> None:
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


def test_concatenate_rows_inverts_select_rows() -> None:
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


def texts(*lengths: int, max_length: int = 4) -> Shared:
    """Return a shared text of each length; a position has a unique number, and whether it is real."""
    number = torch.arange(1.0, len(lengths) * max_length + 1).view(len(lengths), max_length)
    real = torch.arange(max_length) < torch.tensor(lengths).unsqueeze(1)
    return Shared.of((number * real, real))


def read(state: State) -> list[list[float]]:
    """Return the numbers that each row reads of the shared texts."""
    number, real = state.content
    return [number[row][real[row]].tolist() for row in state.rows]


def test_selecting_rows_does_not_copy_shared_texts() -> None:
    state = texts(2, 3)
    (selected,) = select_rows((state,), torch.tensor([1, 0, 1]))
    assert selected.content is state.content
    assert read(selected) == [[5, 6, 7], [1, 2], [5, 6, 7]]
    assert read(select_rows(selected, torch.tensor([False, True, True]))) == [[1, 2], [5, 6, 7]]


def test_repeated_rows_of_a_beam_are_detected() -> None:
    state = texts(2, 3)
    cases = [([0, 0, 1, 1], 2), ([0, 1], 1), ([1, 0], None), ([0, 1, 1], None), ([0, 1, 0, 1], None), ([], None)]
    for rows, repeats in cases:
        assert select_rows(state, torch.tensor(rows, dtype=torch.long)).repeats == repeats
    assert Shared.of(torch.zeros(0, 3)).repeats == 1


def test_compacting_removes_texts_that_no_row_reads() -> None:
    state = select_rows(texts(1, 2, 3, 4), torch.tensor([3, 1, 1]))
    (compact,) = compacted((state,))
    assert read(compact) == read(state)
    assert compact.num_texts == 2
    assert compacted(compact) is compact


def test_shared_texts_of_different_lengths_are_concatenated() -> None:
    first, second = texts(2, 3), select_rows(texts(5, 1, max_length=6), torch.tensor([1, 0, 0]))
    joined = concatenate_rows([first, second])
    assert read(joined) == read(first) + read(second)
    assert joined.content[0].shape == (4, 6)


def test_concatenated_rows_of_one_batch_still_share_texts() -> None:
    state = texts(2, 3)
    pieces = [select_rows(state, torch.tensor(rows)) for rows in ([1], [0, 0])]
    assert concatenate_rows(pieces).content is state.content
    assert read(concatenate_rows(pieces)) == [[5, 6, 7], [1, 2], [1, 2]]


def test_hold_chooses_among_shared_texts() -> None:
    state, other = texts(2, 3), texts(1, 4, max_length=5)
    swapped = select_rows(state, torch.tensor([1, 0]))
    mask = torch.tensor([True, False])
    assert read(hold(mask, swapped, state)) == [[5, 6, 7], [5, 6, 7]]
    assert hold(mask, swapped, state).content is state.content
    assert read(hold(mask, other, state)) == [[1], [5, 6, 7]]


def test_shared_texts_are_detached() -> None:
    source = torch.ones(2, 3, requires_grad=True)
    assert not any(leaf.requires_grad for leaf in leaves(detach((Shared.of(source * 2),))))
