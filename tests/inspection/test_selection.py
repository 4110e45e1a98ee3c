"""Units of a range, and matching ranges, equal those of a search over all ranges."""

from itertools import combinations

import numpy as np
import pytest

from ensue.errors import EnsueError
from ensue.inspection.unit_page import Match, find_runs, select
from ensue.inspection.units import Units
from training.tiny import some_slow

T = 30


def random_units(seed: int) -> list[Units]:
    draw = np.random.default_rng(seed)
    smooth = np.cumsum(draw.normal(size=(T, 9)), axis=0).astype(np.float32)
    return [Units(1, "hidden", smooth[:, :6] / 2), Units(2, "cell", smooth[:, 6:])]


def is_exactly_on(values: np.ndarray, start: int, end: int, threshold: float) -> bool:  # type: ignore[type-arg]
    on = [value >= threshold for value in values.tolist()]
    return all(on[start:end]) and not any(on[max(0, start - 1) : start]) and not any(on[end : end + 1])


@pytest.mark.parametrize("seed", some_slow(range(6), 0, 1))
def test_units_and_matches_equal_those_of_a_search_over_all_ranges(seed: int) -> None:
    units, threshold = random_units(seed), 0.2
    ranges = [(start, end) for start, end in combinations(range(T + 1), 2)]
    start, end = max(
        ranges, key=lambda pair: sum(is_exactly_on(row, *pair, threshold) for u in units for row in u.values.T)
    )
    selection = select(units, start, end, threshold=threshold, max_matches=100)
    chosen = {
        (group, number)
        for group, units_of_group in enumerate(units)
        for number, row in enumerate(units_of_group.values.T)
        if is_exactly_on(row, start, end, threshold)
    }
    assert {(unit.group, unit.number) for unit in selection.units} == chosen
    assert [unit.margin for unit in selection.units] == sorted((unit.margin for unit in selection.units), reverse=True)
    for unit in selection.units:
        row = units[unit.group].values[:, unit.number]
        assert unit.least == row[start:end].min()
        assert unit.beside == max([*row[max(0, start - 1) : start], *row[end : end + 1]], default=-np.inf)
    counts = {
        pair: sum(is_exactly_on(units[group].values[:, number], *pair, threshold) for group, number in chosen)
        for pair in ranges
    }
    taken, expected = [(start, end)], []
    for pair in sorted(counts, key=lambda pair: (-counts[pair], pair)):
        if counts[pair] and all(pair[1] <= a or b <= pair[0] for a, b in taken):
            taken.append(pair)
            expected.append(Match(*pair, counts[pair]))
    assert selection.matches == expected
    assert select(units, start, end, threshold=threshold, max_matches=2).matches == expected[:2]


def test_runs_of_true_values_are_found() -> None:
    assert find_runs(np.array([1, 1, 0, 1], bool)) == [(0, 2), (3, 4)]
    assert find_runs(np.array([0], bool)) == []


def test_a_range_of_the_full_text_has_no_values_beside_it() -> None:
    values = np.array([[1, 1, 0], [1, 2, 1]], np.float32)
    selection = select([Units(1, "hidden", values)], 0, 2, threshold=1)
    assert [(unit.number, unit.least, unit.beside) for unit in selection.units] == [(0, 1, -np.inf), (1, 1, -np.inf)]
    assert selection.matches == []


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (-1, 2, "start is -1; expected a whole number from 0 to 29"),
        (30, 31, "start is 30; expected a whole number from 0 to 29"),
        (4, 4, "end is 4; expected a whole number from 5 to 30"),
        (4, 31, "end is 31; expected a whole number from 5 to 30"),
    ],
)
def test_ranges_outside_the_text_are_refused(start: int, end: int, message: str) -> None:
    with pytest.raises(EnsueError, match=f"^{message}$"):
        select(random_units(0), start, end)


def test_a_text_without_units_is_refused() -> None:
    with pytest.raises(EnsueError, match=r"^the model has no units$"):
        select([], 0, 1)
