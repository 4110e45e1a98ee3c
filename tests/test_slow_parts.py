"""Each slow test is in a part of the slow tests, and each part has a case of every test."""

from dataclasses import dataclass, field
from typing import Any

from conftest import leave_to_other_parts


@dataclass(frozen=True)
class Item:
    nodeid: str
    mark: str = "slow"

    def get_closest_marker(self, name: str) -> bool:
        return name == self.mark


@dataclass
class Config:
    """A configuration of pytest that records deselected items."""

    deselected: list[Item] = field(default_factory=list)

    @property
    def hook(self) -> "Config":
        return self

    def pytest_deselected(self, items: list[Item]) -> None:
        self.deselected += items


def selected(items: list[Item], number: int, count: int) -> list[Item]:
    config, rest = Config(), list(items)
    leave_to_other_parts(config, rest, number, count)  # type: ignore[arg-type]
    assert {*items} - {*rest} == {*config.deselected}
    return rest


def test_parts_cover_all_tests_and_each_has_some_of_every_file_and_test() -> None:
    names = ["a.py::alone", *(f"b.py::one{n}" for n in range(4)), *(f"b.py::many[{n}]" for n in range(7))]
    items: list[Any] = [*map(Item, names), Item("b.py::many[fast]", "sampled")]
    parts = [selected(items, number, 3) for number in (1, 2, 3)]
    assert {item for part in parts for item in part} == {*items}
    for part in parts:
        assert part == [item for item in items if item in part]
        assert part[0] == items[0]
        assert part[-1] == items[-1]
        assert 1 <= sum(item.nodeid.startswith("b.py::one") for item in part) <= 2
        assert 2 <= sum(item.nodeid.startswith("b.py::many[") for item in part) - 1 <= 3
