"""JSON: an object for each pair, with keys for its sources and targets, on lines or in one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ensue.data.columns import Column
from ensue.data.json_objects import check_characters, first_objects, json_object, text_under, value_under
from ensue.data.lines import Lines
from ensue.data.pairs.format import PairFormat
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout
from ensue.data.pairs.pair_columns import find_pair, taken_out
from ensue.data.records import json_records

_EXAMPLE = '{"source": ..., "target": ...}'


class JsonPairs(PairFormat):
    """A JSON object in each line, or an array of objects. A target is a string, or a list of references."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        _, objects = first_objects(lines, example=_EXAMPLE)
        names = dict.fromkeys(key for content in objects for key in _with_inner(content))
        group, columns = taken_out([Column(0, name) for name in names], choice.group, lines.name)
        return PairLayout("json", *find_pair(columns, choice, lines.name), group=group)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        lines.split_array()
        name = lines.name
        for record in json_records(lines, is_array=lines.is_array):
            content = _with_inner(json_object(record, name, example=_EXAMPLE))
            sources = tuple(text_under(content, column, name, record.line) for column in layout.sources)
            targets: tuple[str, ...] = ()
            if is_labeled:
                is_one = len(layout.targets) == 1
                targets = tuple(
                    text
                    for column in layout.targets
                    if is_one or content.get(column.name) is not None  # some have fewer references
                    for text in _texts(content, column, name, record.line)
                )
            group = value_under(content, layout.group, name, record.line) if layout.group else ""
            yield Pair(sources, targets, name, record.line, group)


def _with_inner(content: dict[str, Any]) -> dict[str, Any]:
    """The object, with the texts of objects inside of it as its own: `{"translation": {"de": ..., "en": ...}}`."""
    inner = [key for key, value in content.items() if isinstance(value, dict) and value and _are_texts(value)]
    return {key: text for name in inner for key, text in content[name].items()} | {
        key: value for key, value in content.items() if key not in inner
    }


def _are_texts(content: dict[str, Any]) -> bool:
    return all(type(text) is str for text in content.values())


def _texts(content: dict[str, Any], column: Column, name: str, line: int) -> list[str]:
    """The text under a key, or those of a list."""
    value = content.get(column.name)
    if isinstance(value, list) and all(type(text) is str for text in value):
        for text in value:
            check_characters(text, column, name, line)
        return value
    return [text_under(content, column, name, line)]
