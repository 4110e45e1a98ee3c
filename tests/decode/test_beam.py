"""Beam search against enumeration and against a naive search; width 1, batches, ties, ends, demands that fail."""

import random
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

from decode.naive_beam import exact_best, naive_beam_search
from decode.toy_steppers import Toy
from ensue.decode.beam import beam_search
from ensue.decode.hypotheses import Hypothesis
from ensue.decode.search import BeamSearch, Task
from ensue.errors import EnsueError

START = 0


class Case(NamedTuple):
    """A search that is drawn."""

    model: Toy
    end_id: int | None
    search: BeamSearch
    tasks: list[Task]
    inputs: list[int]
    demands: dict[str, Any]

    def found(self, search: BeamSearch | None = None) -> list[list[Hypothesis]]:
        starts = torch.full((len(self.inputs),), START)
        state = self.model.init_state(self.inputs)
        return beam_search(self.model, state, starts, end_id=self.end_id, search=search or self.search, **self.demands)


def drawn_phrases(rng: random.Random, tokens: list[int], *lengths: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(rng.choices(tokens, k=length)) for length in lengths if length)


def drawn(seed: int) -> Case:
    """Any search that is possible; others are drawn again."""
    rng = random.Random(seed)
    while True:
        size, most = rng.randint(2, 5), rng.randint(1, 5)
        end_id = rng.choice([None, 0, size - 1, size - 1])
        tokens = [token for token in range(size) if token != end_id]

        phrases = partial(drawn_phrases, rng, tokens)
        width, inputs = rng.randint(1, 8), rng.randint(1, 4)
        search: dict[str, Any] = {
            "width": width,
            "n_best": rng.randint(1, width),
            "length_penalty": rng.choice([0, 0.5, 1.0, 2.0]),
            "min_tokens": rng.choice([0, 0, 1, most]),
            "max_tokens": most,
            "no_repeat_ngram": rng.choice([0, 0, 0, 1, 2, 3]),
            "forbidden": phrases(rng.choice([0, 0, 0, 1, 2, 3]), rng.choice([0, 0, 2])),
            "required": phrases(rng.choice([0, 0, 0, 1, 2, 3]), rng.choice([0, 0, 2])),
        }
        demands = {
            "prefixes": [sum(phrases(rng.choice([0, 0, 1, 2])), ()) for _ in range(inputs)],
            "max_tokens": [rng.randint(max(1, search["min_tokens"]), most) for _ in range(inputs)],
            "required": [phrases(rng.choice([0, 0, 0, 1])) for _ in range(inputs)],
        }
        try:
            made = BeamSearch(**search)
            tasks = [made.for_input(*of_input) for of_input in zip(*demands.values(), strict=True)]
        except EnsueError:
            continue
        model = Toy(size, seed, levels=rng.choice([0, 0, 2]))
        return Case(model, end_id, made, tasks, rng.sample(range(900), inputs), demands)


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis], about: object = None) -> None:
    assert [one.ids for one in found] == [one.ids for one in wanted], about
    for one, other in zip(found, wanted, strict=True):
        assert abs(one.score - other.score) < 1e-5, about
        assert abs(one.log_probability - other.log_probability) < 1e-5
        assert one[3:] == other[3:], about


def check_against_the_naive_search(seed: int) -> None:
    case = drawn(seed)
    for found, task, input in zip(case.found(), case.tasks, case.inputs, strict=True):
        assert_same(found, naive_beam_search(case.model.log_p(START, input), task, case.search, case.end_id), seed)


def check_against_enumeration(seed: int) -> None:
    case = drawn(seed)
    search = replace(case.search, width=2000)
    complete = [[one for one in found if one.is_complete] for found in case.found(search)]
    for found, task, input in zip(complete, case.tasks, case.inputs, strict=True):
        log_p = case.model.log_p(START, input)
        assert_same(found, exact_best(log_p, case.model.vocabulary_size, task, search, case.end_id), seed)


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_it_finds_what_a_naive_search_finds(first: int) -> None:
    for seed in range(first, first + 50):
        check_against_the_naive_search(seed)


def test_full_width_is_exact() -> None:
    for seed in range(20):
        check_against_enumeration(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 11_000, 500))
def test_it_finds_what_a_naive_search_finds_in_ten_thousand_cases(first: int) -> None:
    for seed in range(first, first + 500):
        check_against_the_naive_search(seed)
