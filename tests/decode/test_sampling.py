"""Filters give results computed by hand, draws follow the probabilities, and properties hold for random logits."""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ensue.decode.generation import draw, filter_logits, next_ids, penalize
from ensue.decode.sampling import Sampling, SamplingOptions
from ensue.decode.search import BeamSearch, SearchOptions
from ensue.errors import EnsueError

HALVES = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def support(logits: torch.Tensor) -> list[int]:
    return torch.isfinite(logits[0]).nonzero().flatten().tolist()


def test_a_random_number_of_zero_draws_no_impossible_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *size, **kwargs: torch.zeros(*size, dtype=torch.float64))
    assert draw(torch.tensor([[-math.inf, 0.0, 0.0]]), generator()).tolist() == [2]


def test_top_p_keeps_no_further_token_if_the_sum_equals_p() -> None:
    assert support(filter_logits(torch.zeros(1, 2), Sampling(top_p=0.5))) == [0]
    assert support(filter_logits(HALVES.flip(1), Sampling(top_p=0.7))) == [2, 3]


def test_top_k_keeps_exactly_k_even_among_equals() -> None:
    assert support(filter_logits(HALVES, Sampling(top_k=2))) == [0, 1]
    assert len(support(filter_logits(HALVES, Sampling(top_k=3)))) == 3
    assert support(filter_logits(HALVES, Sampling(top_k=9))) == [0, 1, 2, 3]


@pytest.mark.parametrize(("p", "num_kept"), [(0.1, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_tokens_that_reach_p(p: float, num_kept: int) -> None:
    assert support(filter_logits(HALVES, Sampling(top_p=p))) == list(range(num_kept))


@pytest.mark.parametrize(("p", "num_kept"), [(0.0, 4), (0.24, 4), (0.26, 2), (0.49, 2), (0.51, 1), (1.0, 1)])
def test_min_p_is_relative_to_the_most_probable(p: float, num_kept: int) -> None:
    assert support(filter_logits(HALVES, Sampling(min_p=p))) == list(range(num_kept))


def test_temperature_divides_the_logits() -> None:
    squared = filter_logits(HALVES, Sampling(temperature=0.5)).softmax(-1)
    expected = torch.tensor([[0.25, 0.0625, 1 / 64, 1 / 64]])
    torch.testing.assert_close(squared, expected / expected.sum())


def test_temperature_comes_before_top_p_and_top_k_before_top_p() -> None:
    # temperature 2 gives 0.37, 0.26, 0.18, 0.18; at temperature 1 two tokens reach p
    assert support(filter_logits(HALVES, Sampling(temperature=2.0, top_p=0.7))) == [0, 1, 2]
    # the first of the two top-k tokens has 2/3
    assert support(filter_logits(HALVES, Sampling(top_k=2, top_p=0.6))) == [0]


def test_a_penalty_lowers_logits_of_either_sign() -> None:
    logits, seen = torch.tensor([[2.0, -2.0, 2.0, -2.0]]), torch.tensor([[True, True, False, False]])
    assert penalize(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_a_penalty_can_change_the_greedy_choice() -> None:
    logits, seen = torch.tensor([[2.0, 1.5]]), torch.tensor([[True, False]])
    greedy = Sampling(temperature=0.0)
    assert next_ids(logits, greedy, generator(), seen=seen).tolist() == [0]
    assert next_ids(logits, Sampling(temperature=0.0, repetition_penalty=2.0), generator(), seen=seen).tolist() == [1]


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty"])
def test_a_setting_that_is_not_a_number_is_an_error_of_one_line(name: str) -> None:
    with pytest.raises((EnsueError, TypeError), match=rf"^{name} is '0.5'; expected a number$"):
        Sampling(**{name: "0.5"})  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-5])
def test_a_vanishing_temperature_is_greedy(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [80.0, -80.0, 79.0]])
    for seed in range(20):
        assert next_ids(logits, Sampling(temperature=temperature), generator(seed)).tolist() == [1, 0]


def test_frequencies_follow_the_softmax() -> None:
    rows = 40_000
    logits = torch.tensor([2.0, 0.0, -math.inf, 1.0, -3.0])
    counts = draw(logits.expand(rows, -1), generator(1)).bincount(minlength=5)
    p = logits.softmax(-1)
    sigma = (p * (1 - p) / rows).sqrt()
    assert counts[2] == 0
    assert ((counts / rows - p).abs() <= 4.5 * sigma).all()


def test_the_draw_depends_on_the_generator() -> None:
    logits = torch.randn(64, 50, generator=generator(3))
    first, same, other = (draw(logits, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@given(
    logits=st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=12),
    temperature=st.floats(1e-6, 50),
    top_k=st.none() | st.integers(1, 15),
    top_p=st.none() | st.floats(0, 1, exclude_min=True),
    min_p=st.none() | st.floats(0, 1),
    penalty=st.floats(0.1, 10),
    seed=st.integers(0, 2**31),
)
@example(  # a temperature makes two logits equal
    logits=[0.0, 1.401298464324817e-45], temperature=2.0, top_k=None, top_p=0.5, min_p=None, penalty=1.0, seed=0
)
def test_a_remaining_token_is_always_drawn(
    logits: list[float],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    penalty: float,
    seed: int,
) -> None:
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty)
    row = torch.tensor([logits])
    seen = torch.zeros_like(row, dtype=torch.bool)
    seen[0, ::2] = True
    left = filter_logits(penalize(row, seen, penalty), sampling)
    unfiltered = filter_logits(penalize(row, seen, penalty), Sampling(temperature))
    assert bool(((unfiltered == unfiltered.max()) & left.isfinite()).any()), "one of the most probable tokens"
    assert int(next_ids(row, sampling, generator(seed), seen=seen)) in support(left)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": -1.0}, r"temperature is -1\.0; expected 0 \(greedy\) or more"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0; expected 1 or more"),
        ({"top_p": 0.0}, r"top_p is 0\.0; expected more than 0 and at most 1"),
        ({"top_p": 1.5}, r"top_p is 1\.5"),
        ({"min_p": 2.0}, r"min_p is 2\.0"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty is 0\.0"),
    ],
)
def test_invalid_values_are_refused(setting: dict, message: str) -> None:
    with pytest.raises(EnsueError, match=message):
        Sampling(**setting)


@pytest.mark.parametrize(("declared", "options"), [(Sampling, SamplingOptions), (BeamSearch, SearchOptions)])
def test_signatures_name_all_settings(declared: type, options: type) -> None:
    assert [field.name for field in fields(declared)] == list(options.__annotations__)
