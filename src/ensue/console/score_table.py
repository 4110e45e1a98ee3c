"""The surprisals of one run or several as the lines of a CSV table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from ensue.errors import EnsueError

NATS = "nats"


def csv_lines(scored: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """A header, then a row for each token (or pair, or frame): its number from 1, what it is, and its nats by each run,
    whose JSON lines are given by its name. Of one run the column is `nats`, of several `nats NAME`.

    Raises EnsueError where runs do not read the same tokens.
    """
    one, *_ = scored
    for position, lines in enumerate(zip_longest(*scored.values()), 1):
        records = [_record(line) for line in lines]
        for other, record in zip(scored, records, strict=True):
            if _what(record) != _what(records[0]):
                found = f"{_shown(records[0])} and {_shown(record)}"
                raise EnsueError(f"{one} and {other} do not read the same at position {position:,}: {found}")
        if position == 1:
            yield _row(
                [
                    "position",
                    *_what(records[0]),
                    *([f"{NATS} {name}" for name in scored] if len(scored) > 1 else [NATS]),
                ]
            )
        yield _row([position, *_what(records[0]).values(), *(record[NATS] for record in records)])


def _record(line: str | None) -> dict[str, Any]:
    return {} if line is None else json.loads(line)


def _what(record: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but its nats, the number of its tokens, which is the run's own, and the text of an unknown token."""
    return {key: value for key, value in record.items() if key not in (NATS, "tokens", "text")}


def _shown(record: Mapping[str, Any]) -> str:
    return json.dumps(_what(record), ensure_ascii=False)[:60] if record else "nothing"


def _row(cells: Iterable[Any]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)  # which quotes what has line ends
    return row.getvalue()[:-1]
