"""Beam search equals enumeration and a naive search; width 1, batches, ties, ends, demands that fail."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from decode.naive_beam import exact_best, naive_beam_search
from decode.toy_steppers import Read, Toy
from ensue.decode import beam
from ensue.decode.beam import beam_search, best_ids
from ensue.decode.frontier import Frontier
from ensue.decode.search import BeamSearch, Hypothesis, InputConstraints
from ensue.engine import executing
from ensue.engine.execution import Execution
from ensue.errors import EnsueError
from ensue.types import State
from training.tiny import some_slow

START = 0


class Case(NamedTuple):
    """A random search."""

    model: Toy
    end_id: int | None
    search: BeamSearch
    searches: list[InputConstraints]
    inputs: list[int]
    demands: dict[str, Any]

    def only(self, numbers: list[int]) -> Case:
        """Return the case with only some of its inputs."""
        demands = {name: [of_inputs[number] for number in numbers] for name, of_inputs in self.demands.items()}
        return self._replace(inputs=[self.inputs[number] for number in numbers], demands=demands)

    def results(self, search: BeamSearch | None = None) -> list[list[Hypothesis]]:
        starts = torch.full((len(self.inputs),), START)
        state = self.model.init_state(self.inputs)
        return beam_search(self.model, state, starts, end_id=self.end_id, search=search or self.search, **self.demands)


def drawn_phrases(rng: random.Random, tokens: list[int], *lengths: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(rng.choices(tokens, k=length)) for length in lengths if length)


def drawn(seed: int) -> Case:
    """Return a random search that is possible. Impossible searches are drawn again."""
    rng = random.Random(seed)
    while True:
        size, max_tokens = rng.randint(2, 5), rng.randint(1, 5)
        end_id = rng.choice([None, 0, size - 1, size - 1])
        tokens = [token for token in range(size) if token != end_id]

        phrases = partial(drawn_phrases, rng, tokens)
        width, inputs = rng.randint(1, 8), rng.randint(1, 4)
        search: dict[str, Any] = {
            "width": width, "n_best": rng.randint(1, width), "length_penalty": rng.choice([0, 0.5, 1.0, 2.0]),
            "min_tokens": rng.choice([0, 0, 1, max_tokens]), "max_tokens": max_tokens,
            "no_repeat_ngram": rng.choice([0, 0, 0, 1, 2, 3]),
            "forbidden": phrases(rng.choice([0, 0, 0, 1, 2, 3]), rng.choice([0, 0, 2])),
            "required": phrases(rng.choice([0, 0, 0, 1, 2, 3]), rng.choice([0, 0, 2])),
        }  # fmt: skip
        demands = {
            "prefixes": [sum(phrases(rng.choice([0, 0, 1, 2])), ()) for _ in range(inputs)],
            "max_tokens": [rng.randint(max(1, search["min_tokens"]), max_tokens) for _ in range(inputs)],
            "required": [phrases(rng.choice([0, 0, 0, 1])) for _ in range(inputs)],
            "forbidden": [phrases(rng.choice([0, 0, 1, 2, 3])) for _ in range(inputs)],
        }
        try:
            beam_search_settings = BeamSearch(**search)
            searches = [beam_search_settings.for_input(*of_input) for of_input in zip(*demands.values(), strict=True)]
        except EnsueError:
            continue
        model = Toy(size, seed, levels=rng.choice([0, 0, 2]))
        return Case(model, end_id, beam_search_settings, searches, rng.sample(range(900), inputs), demands)


def assert_same(results: list[Hypothesis], expected: list[Hypothesis], about: object = None) -> None:
    assert [result.ids for result in results] == [result.ids for result in expected], about
    for result, expected_result in zip(results, expected, strict=True):
        assert abs(result.score - expected_result.score) < 1e-5, about
        assert abs(result.log_probability - expected_result.log_probability) < 1e-5
        assert result[3:] == expected_result[3:], about


def check_against_the_naive_search(seed: int) -> None:
    case = drawn(seed)
    for results, constraints, input in zip(case.results(), case.searches, case.inputs, strict=True):
        expected = naive_beam_search(case.model.log_p(START, input), constraints, case.search, case.end_id)
        assert_same(results, expected, seed)


def check_all(seeds: range) -> None:
    for seed in seeds:
        check_against_the_naive_search(seed)


def check_against_enumeration(seed: int) -> None:
    case = drawn(seed)
    search = replace(case.search, width=2000)
    complete = [[hypothesis for hypothesis in results if hypothesis.is_complete] for results in case.results(search)]
    for results, constraints, input in zip(complete, case.searches, case.inputs, strict=True):
        log_p = case.model.log_p(START, input)
        all_best = replace(search, n_best=search.width)
        expected = exact_best(log_p, case.model.vocabulary_size, constraints, all_best, case.end_id)
        by_ids = {hypothesis.ids: hypothesis for hypothesis in expected}
        # another order of addition rounds differently, so the order of equal scores is unspecified
        assert_same(results, [by_ids[hypothesis.ids] for hypothesis in results], seed)
        assert len({hypothesis.ids for hypothesis in results}) == len(results) == min(len(expected), search.n_best), (
            seed
        )
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in expected[: len(results)]], abs=1e-5
        ), seed


@pytest.mark.parametrize("first", some_slow([0, *range(20, 300, 20), *range(1000, 3000, 20)], 0))
def test_results_equal_those_of_a_naive_search(first: int) -> None:
    check_all(range(first, first + 20))


@pytest.mark.parametrize("first", some_slow([0, *range(4, 20, 4), *range(1000, 1300, 4)], 0))
def test_a_search_of_full_width_is_exact(first: int) -> None:
    for seed in range(first, first + 4):
        check_against_enumeration(seed)


@pytest.mark.parametrize("leaf", [0, 1, 2])
def test_a_leaf_that_is_not_reordered_is_detected(leaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_a_bug(state: State, rows: Tensor) -> State:
        read, attention = state
        selected = [value[rows.sort().values if position == leaf else rows] for position, value in enumerate(read)]
        return Read(*selected), attention

    monkeypatch.setattr(beam, "select_rows", with_a_bug)
    with pytest.raises(AssertionError):
        check_all(range(300))


def without_early_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search never stop early."""
    go_on = Frontier._continue

    def never_stop(self: Frontier, *chosen: Any) -> Any:
        self.penalties = np.full_like(self.penalties, 1e300)
        return go_on(self, *chosen)

    monkeypatch.setattr(Frontier, "_continue", never_stop)


@pytest.mark.slow
def test_an_early_stop_changes_no_result_and_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [drawn(seed) for seed in range(60)]
    steps: list[int] = []
    step = Toy.step

    def counted(self: Toy, ids_t: Tensor, state: Read) -> Any:
        steps.append(len(ids_t))
        return step(self, ids_t, state)

    monkeypatch.setattr(Toy, "step", counted)
    early, rows = [case.results() for case in cases], sum(steps)
    without_early_stop(monkeypatch)
    steps.clear()
    assert [case.results() for case in cases] == early
    assert sum(steps) > rows


@pytest.mark.slow
def test_a_stop_that_comes_too_early_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound lacks the length penalty."""
    go_on = Frontier._continue

    def stop_early(self: Frontier, *chosen: Any) -> Any:
        self.penalties = np.full_like(self.penalties, self.length_penalty(self.length))
        return go_on(self, *chosen)

    monkeypatch.setattr(Frontier, "_continue", stop_early)
    with pytest.raises(AssertionError):
        check_all(range(300))


@pytest.mark.parametrize("seeds", some_slow([range(60), range(60, 3_000)], range(60)))
def test_a_search_in_c_equals_that_in_numpy_bit_for_bit(seeds: range) -> None:
    for seed in seeds:
        case = drawn(seed)
        always = tuple(phrase for phrase in case.search.forbidden if len(phrase) == 1)
        search = replace(case.search, no_repeat_ngram=0, required=(), forbidden=always)
        case = case._replace(search=search, demands={"max_tokens": case.demands["max_tokens"]})
        with executing("plain"):
            expected = case.results()
        assert case.results() == expected, seed


def test_other_inputs_and_their_order_change_no_result() -> None:
    for seed in range(12):
        case = drawn(seed)
        together = case.results()
        order = random.Random(seed).sample(range(len(case.inputs)), len(case.inputs))
        turned = case.only(order).results()
        for position, number in enumerate(order):
            assert_same(turned[position], together[number])
            assert_same(case.only([number]).results()[0], together[number])


def greedy(case: Case, number: int) -> tuple[int, ...]:
    ids: tuple[int, ...] = ()
    log_p = case.model.log_p(START, case.inputs[number])
    while len(ids) < case.searches[number].max_tokens:
        scores = log_p(ids)
        best = scores.index(max(scores))
        if best == case.end_id:
            break
        ids += (best,)
    return ids


def test_width_1_is_greedy() -> None:
    for seed in range(40):
        case = drawn(seed)._replace(search=BeamSearch(1), demands={})
        case = case._replace(demands={"max_tokens": [constraints.max_tokens for constraints in case.searches]})
        for number, (results,) in enumerate(case.results()):
            assert results.ids == greedy(case, number)


def test_a_beam_wider_than_the_vocabulary_gives_sorted_distinct_results() -> None:
    model = Toy(4, 1)
    search = BeamSearch(200, 50, max_tokens=5)
    (results,) = beam_search(model, model.init_state([5]), torch.tensor([0]), end_id=3, search=search)
    assert len({hypothesis.ids for hypothesis in results}) == 50
    scores = [hypothesis.score for hypothesis in results]
    assert scores == sorted(scores, reverse=True)


class Fixed:
    """A model with the same scores after any tokens."""

    def __init__(self, *scores: float | list[float]) -> None:
        self.scores = torch.tensor(scores)

    def step(self, ids_t: Tensor, state: None) -> tuple[Tensor, None]:
        return self.scores.expand(len(ids_t), -1), None

    def results(self, end_id: int | None, **search: Any) -> list[Hypothesis]:
        return beam_search(self, None, torch.tensor([0]), end_id=end_id, search=BeamSearch(**search))[0]


class AfterLast(Fixed):
    """Scores that depend on the last token: (V, V)."""

    def step(self, ids_t: Tensor, state: None) -> tuple[Tensor, None]:
        return self.scores[ids_t], None


def test_the_early_stop_counts_the_end_symbol() -> None:
    """After one more token, a certain end has a smaller sum, but a larger mean."""
    model = AfterLast([-50.0, -1.0, -0.8], [-50.0, -50.0, 0.0], [0.0, 0.0, 0.0])
    (results,) = model.results(2, width=2, max_tokens=1, length_penalty=1.0)
    assert (results.ids, results.is_complete) == ((1,), True)


def test_ties_go_to_the_smaller_parent_then_id_then_the_first_to_end() -> None:
    model = Fixed(0.0, 0.0, 0.0)
    results = model.results(None, width=4, n_best=4, max_tokens=2)
    assert [hypothesis.ids for hypothesis in results] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    results = model.results(2, width=9, n_best=9, max_tokens=1, length_penalty=0)
    assert [hypothesis.ids for hypothesis in results] == [(), (0,), (1,)]
    assert [hypothesis.ids for hypothesis in model.results(2, width=3, n_best=3, max_tokens=9)] == [(), (0,), (0, 0)]


def test_an_output_without_an_end_is_marked_incomplete() -> None:
    (results,) = Fixed(0.0, 1.0, -50.0).results(2, width=2, max_tokens=7)
    assert results.ids == (1,) * 7
    assert not results.is_complete
    assert results.score == pytest.approx(results.log_probability / 7)
    assert Fixed(0.0, 1.0, -50.0).results(None, width=2, max_tokens=7)[0].is_complete


def test_a_search_whose_tokens_are_all_blocked_ends_incomplete() -> None:
    (results,) = Fixed(0.0, 1.0, 0.0).results(2, width=2, min_tokens=5, max_tokens=9, no_repeat_ngram=1)
    assert results.ids == (1, 0)
    assert not results.is_complete
    (results,) = Fixed(0.0, 1.0, 0.0).results(2, min_tokens=1, forbidden=((0,), (1,)))
    assert results == Hypothesis((), 0.0, 0.0, is_complete=False)


def test_a_missing_required_phrase_is_reported() -> None:
    model = Fixed(0.0, 1.0, float("-inf"), 0.0)
    (results,) = model.results(3, max_tokens=4, required=((2,), (1, 0)))
    assert not results.is_complete
    assert results.lacks == ((2,),)
    assert len(results.ids) == 4


@pytest.mark.parametrize(
    "scores", [[0.0, float("nan")], [0.0, float("inf")], [float("-inf")] * 2, [float("nan")] * 900]
)
@pytest.mark.parametrize("execution", ["compiled", "plain"])
def test_scores_that_are_not_finite_are_an_error(scores: list[float], execution: Execution) -> None:
    with pytest.raises(EnsueError, match="not finite: its training has diverged"), executing(execution):
        Fixed(*scores).results(0, width=3)


def test_a_record_is_the_tree_of_all_candidates() -> None:
    """The best of each length are chosen, only they are continued, and those that end are the results."""
    model, record = Toy(4, 3), []
    inputs, search = [5, 70], BeamSearch(3, 3, max_tokens=4)
    starts = torch.full((2,), START)
    results = beam_search(model, model.init_state(inputs), starts, end_id=3, search=search, record=record)
    for number, input in enumerate(inputs):
        tree = {entry.ids: entry for entry in record if entry.input == number}
        assert {ids[:-1] for ids in tree} == {()} | {ids for ids, entry in tree.items() if entry.fate == "goes on"}
        assert {entry.ids for entry in results[number] if entry.is_complete} <= {
            ids[:-1] for ids, entry in tree.items() if entry.fate == "ends"
        }
        log_p = model.log_p(START, input)
        for ids, entry in tree.items():
            steps = [log_p(ids[:position])[id] for position, id in enumerate(ids)]
            assert entry.log_probability == pytest.approx(sum(steps), abs=1e-5)
        for length in {len(ids) for ids in tree}:
            level = [entry for ids, entry in tree.items() if len(ids) == length]
            left_out = [entry.log_probability for entry in level if entry.fate == "is left out"]
            chosen = [entry.log_probability for entry in level if entry.fate != "is left out"]
            assert len(chosen) == 3
            assert min(chosen) >= max(left_out, default=float("-inf"))
    assert {entry.fate for entry in record} >= {"goes on", "ends", "is left out"}


def test_no_inputs_give_no_results() -> None:
    assert beam_search(Toy(3, 0), None, torch.empty(0, dtype=torch.long), end_id=0, search=BeamSearch()) == []


def test_the_best_token_is_the_first_of_equal_ones() -> None:
    scores = torch.tensor([[-3.0, -1.0, -1.0], [-0.5, -2.0, -0.5], [-np.inf, -np.inf, -2.0]])
    ids, values = best_ids(scores, 1)
    assert ids.tolist() == [[1], [0], [2]]
    assert values.tolist() == [[-1.0], [-0.5], [-2.0]]
    assert np.isnan(best_ids(torch.tensor([[0.0, np.nan]]), 1)[1]).all()
