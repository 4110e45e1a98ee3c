"""Demands that cannot be met are refused, and the best continuations equal those of sorting."""

import itertools
import random
import time
from typing import Any

import numpy as np
import pytest
import torch

from decode.toy_steppers import Toy
from ensue.decode.beam import beam_search, best_ids, continuations
from ensue.decode.candidates import select_best
from ensue.decode.frontier import Frontier, RequiredPhrases
from ensue.decode.search import BeamSearch, min_length
from ensue.errors import EnsueError


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ({"width": 0}, "width is 0; expected a whole number from 1"),
        ({"n_best": 6}, "n_best is 6; a beam of width 5 finds at most 5"),
        ({"length_penalty": -1.0}, "length_penalty is -1.0; expected a number from 0 to 10"),
        ({"coverage_penalty": float("nan")}, "coverage_penalty is nan"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens is 9; expected at most max_tokens = 8"),
        ({"required": ((1, 2, 3),), "max_tokens": 2}, "the required phrases need 3 tokens; max_tokens is 2"),
        ({"required": ((1, 2), (3, 3)), "max_tokens": 3}, "the required phrases need 4 tokens; max_tokens is 3"),
        ({"required": ((1, 2, 3),), "forbidden": ((2, 3),)}, r"\(1, 2, 3\) contains the forbidden phrase \(2, 3\)"),
        ({"required": ((1, 1),), "no_repeat_ngram": 1}, r"no_repeat_ngram = 1 forbids the required phrase \(1, 1\)"),
        ({"required": ((),)}, "a required or forbidden phrase is empty"),
        ({"forbidden": ((),)}, "a required or forbidden phrase is empty"),
    ],
)
def test_demands_that_cannot_be_met_are_refused(demands: dict[str, Any], expected: str) -> None:
    with pytest.raises(EnsueError, match=expected):
        BeamSearch(**demands)


@pytest.mark.parametrize(
    ("search", "of_input", "expected"),
    [
        ({"max_tokens": 3}, {"prefix": [1] * 4}, "the prefix has 4 tokens; expected at most max_tokens = 3"),
        ({"forbidden": ((1, 2),)}, {"prefix": [0, 1, 2]}, r"the prefix contains the forbidden phrase \(1, 2\)"),
        ({"min_tokens": 3}, {"max_tokens": 2}, "min_tokens is 3; expected at most max_tokens = 2"),
        ({"required": ((1, 2),)}, {"required": ((3, 4),), "max_tokens": 3}, "need 4 tokens; max_tokens is 3"),
        ({"forbidden": ((4,),)}, {"required": ((3, 4),)}, r"\(3, 4\) contains the forbidden phrase \(4,\)"),
        ({"required": ((3, 4),)}, {"forbidden": ((3,),)}, r"\(3, 4\) contains the forbidden phrase \(3,\)"),
    ],
)
def test_demands_of_an_input_that_cannot_be_met_are_refused(search: dict, of_input: dict, expected: str) -> None:
    with pytest.raises(EnsueError, match=expected):
        BeamSearch(**search).for_input(**of_input)


@pytest.mark.parametrize("demands", [{"required": ((9,),)}, {"forbidden": ((1, 9),)}, {"required": ((-1,),)}, {}])
def test_unknown_ids_and_the_end_symbol_in_demands_are_refused(demands: dict[str, Any]) -> None:
    model, search = Toy(4, 0), BeamSearch(**demands or {"forbidden": ((3,),)})
    unknown = "an id of a prefix or phrase is .*; expected a whole number from 0 to 3"
    with pytest.raises(EnsueError, match=unknown if demands else "the end symbol is in a prefix or phrase"):
        beam_search(model, model.init_state([1]), torch.tensor([0]), end_id=3, search=search)


def test_scores_with_the_largest_settings_are_finite() -> None:
    search = BeamSearch(1, length_penalty=10, max_tokens=1_000_000)
    model = Toy(2, 0)
    (results,) = beam_search(model, model.init_state([1]), torch.tensor([0]), end_id=1, search=search, max_tokens=[3])
    assert results[0].score <= 0
    assert Frontier(search, [search.for_input()], 1).penalties[0] > 0


def test_phrases_that_overlap_need_fewer_tokens() -> None:
    assert min_length([(1, 2, 3), (2, 3, 4)]) == 4
    assert min_length([(1, 1), (1,), (2,)]) == 3
    BeamSearch(required=((1, 2, 3), (2, 3, 4)), max_tokens=4)


def test_the_state_of_a_phrase_is_its_longest_prefix_at_the_end() -> None:
    rng = np.random.default_rng(0)
    for phrase in (tuple(rng.integers(0, 3, length).tolist()) for length in range(1, 9) for _ in range(9)):
        table = RequiredPhrases([(phrase,)])
        for state, (symbol, token) in itertools.product(range(len(phrase)), enumerate(table.alphabet[0].tolist())):
            read = (*phrase[:state], token)
            fitting = (length for length in range(len(read) + 1) if read[len(read) - length :] == phrase[:length])
            assert table.next[0, 0, state, symbol] == max(fitting)
        assert (table.next[0, 0, len(phrase)] == len(phrase)).all()


def test_the_states_of_a_long_phrase_take_little_time() -> None:
    start = time.process_time()
    RequiredPhrases([(tuple(range(500)),)])
    assert time.process_time() - start < 2


@pytest.mark.parametrize("size", [1, 5, 63, 64, 200, 1000, 1003])
@pytest.mark.parametrize("levels", [3, 1000])
def test_the_best_ids_of_a_row_equal_those_of_sorting(size: int, levels: int) -> None:
    rng = np.random.default_rng(size)
    scores = rng.integers(0, levels, (6, size)).astype(np.float32)
    scores[0] = -np.inf
    scores[1, : size // 2] = -np.inf
    for k in (1, 3, 7):
        ids, values = best_ids(torch.from_numpy(scores.copy()), k)
        expected = (-scores).argsort(1, kind="stable")[:, : min(k, size)]
        for row in range(1, 6):
            real = expected[row][scores[row, expected[row]] > -np.inf]
            assert set(real) <= set(ids[row].tolist())
            assert sorted(ids[row].tolist()) == ids[row].tolist()
            assert values[row].tolist() == scores[row, ids[row]].tolist()


def test_ties_of_topk_are_resolved_by_the_smaller_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def topk_with_last_of_equal_ones(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        values, ids = scores.flip(1).sort(dim=1, descending=True, stable=True)
        return values[:, :k], scores.shape[1] - 1 - ids[:, :k]

    monkeypatch.setattr(torch.Tensor, "topk", topk_with_last_of_equal_ones)
    assert best_ids(torch.tensor([[1.0, 2.0, 1.0, 1.0, 0.0]]), 3)[0].tolist() == [[0, 1, 2]]


def test_continuations_have_the_required_ids_and_the_k_best_others() -> None:
    log_p = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    ids, values = continuations(log_p, 2, np.array([[4, 0], [3, -1]]))
    scores_by_id = [
        {int(id): float(value) for id, value in zip(*row, strict=True) if value > -np.inf}
        for row in zip(ids, values, strict=True)
    ]
    assert scores_by_id == [{0: 5.0, 4: 1.0, 1: 4.0, 2: 3.0}, {3: 4.0, 4: 5.0, 2: 3.0}]


def test_banks_take_turns() -> None:
    rng = random.Random(0)
    for _ in range(50):
        totals = np.array([[rng.choice([-np.inf, -1.0, -2.0, -3.0, -4.5]) for _ in range(9)]])
        banks = np.array([[rng.randint(0, 3) for _ in range(9)]])
        rows: dict[int, list[int]] = {}
        for index in sorted(range(9), key=lambda index: (-totals[0, index], index)):
            if totals[0, index] > -np.inf:
                rows.setdefault(int(banks[0, index]), []).append(index)
        expected = []
        while any(rows.values()):
            expected += [rows[bank].pop(0) for bank in sorted(rows, reverse=True) if rows[bank]]
        assert select_best(totals, len(expected), banks)[0].tolist() == expected
