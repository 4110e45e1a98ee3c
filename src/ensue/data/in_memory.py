"""Data in memory: lists, tables of pandas and polars, and data sets of Hugging Face.

The rows are written to a file of JSON lines (texts without labels: a text file), whose name is a hash of its content.
Messages refer to the argument and the row instead of the file and the line.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ensue.cache import atomic_file, cache_directory, make_room, mark_used, temporary_directory
from ensue.data.row_files import class_namer, to_json_lines
from ensue.errors import FILES_OF_ROWS, DataError, EnsueError, list_names, pluralize, quote, to_one_line
from ensue.notices import warn_once

MAX_PATHS, MAX_NAME_CHARACTERS = 16, 255
"""The maximum number of texts that are checked as names of files, and the maximum length of such a name."""
_UNNAMED = re.compile(r"rows-[0-9a-f]{16}\.unnamed\.jsonl$")
EXPECTED_DATA = 'a path, rows such as ("a text", "label"), as in zip(texts, labels), dicts, a DataFrame or a data set'


def path_of_rows(data: Any, name: str, *, is_cached: bool = False) -> str:
    """Write rows to a file and return its path. The file is in the cache if `is_cached`, else removed at exit.

    `data` is a DataFrame, a data set, or an iterable of rows. A row is a dict, a text, a text with a label, a list of
    words with a list of their labels, a list of (word, label), or two texts with a label. Messages call the data
    `name`. Raises TypeError for another type or structure, and EnsueError without rows.
    """
    rows = list(_iterate_rows(data, name))
    if not rows:
        raise EnsueError(f"{name}: no rows")
    are_texts = all(isinstance(row, dict) and row.keys() == {"text"} and isinstance(row["text"], str) for row in rows)
    if are_texts and len(rows) <= MAX_PATHS:
        _check_paths([row["text"] for row in rows], name)
    try:
        text = "".join(f"{row['text']}\n" for row in rows) if are_texts else "".join(to_json_lines([rows]))
    except DataError as error:
        raise EnsueError(f"{name}: {error}") from None
    content = text.encode("utf-8", "backslashreplace")
    folder = cache_directory() / "data" if is_cached else temporary_directory()
    suffix = ".txt" if are_texts else ".jsonl" if any(type(row) is dict for row in rows) else ".unnamed.jsonl"
    path = folder / f"rows-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    if not path.exists() or path.read_bytes() != content:
        with atomic_file(path) as partial:
            partial.write_bytes(content)
        make_room()
    mark_used(path)
    FILES_OF_ROWS[str(path)] = lambda line: name if line is None else _name_of_row(name, line - 1, data)
    return str(path)


class UnnamedRow(dict[str, Any]):
    """A row whose keys are not from the data, such as the row of the tuple ("a text", "label")."""


def are_unnamed(location: str) -> bool:
    """Return whether a location is a file that `path_of_rows` has written for rows without column names."""
    return _UNNAMED.search(location) is not None


def _check_paths(texts: list[str], name: str) -> None:
    """Raise TypeError if one of a few short texts is the name of a file; otherwise warn that they are read as texts."""
    if any("\n" in text or len(text) > MAX_NAME_CHARACTERS for text in texts):
        return
    if path := next((text for text in texts if "\0" not in text and os.path.exists(text)), ""):
        raise TypeError(f"{name}: {path} is a file or folder; expected a list or tuple of paths, or other texts")
    warn_once(f"texts {name}", f"{name}: read as {pluralize(len(texts), 'text')}, since no file has such a name")


def _name_of_row(name: str, row: int, data: Any = ()) -> str:
    """Return the name of a row in messages: its number, and the Python expression that selects it."""
    return f"{name}, row {row + 1} ({'.iloc' if hasattr(data, 'iloc') else ''}[{row}])"


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of a DataFrame or a data set; none for other values, such as a LazyFrame."""
    if isinstance(data, Mapping) or not (hasattr(data, "to_dict") or hasattr(data, "to_dicts")):
        return []
    return [*map(str, data.columns if hasattr(data, "columns") else getattr(data, "column_names", ()))]


def _iterate_rows(data: Any, name: str) -> Iterator[Any]:
    is_arrow = hasattr(data, "to_pylist")
    names = list(getattr(data, "column_names", ())) if is_arrow else column_names(data)
    if len({*names}) < len(names):
        raise EnsueError(f"{name}: two columns have the same name; columns: {list_names(names)}")
    if is_arrow:
        data, names = data.to_pylist(), []
    if isinstance(data, Mapping) and data and all(isinstance(column, list | tuple) for column in data.values()):
        if len({len(column) for column in data.values()}) > 1:
            raise EnsueError(f"{name}: columns of different lengths")
        data = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    if names:
        yield from _iterate_table(data, names)
        return
    if isinstance(data, str | bytes | Mapping | Path) or not isinstance(data, Iterable):
        advice = "its rows by .collect()" if hasattr(data, "collect") else EXPECTED_DATA
        if isinstance(data, Mapping) and any(map(column_names, data.values())):
            advice = f"one of its splits, such as data[{next(iter(data))!r}]"
        raise TypeError(f"{name} is {to_one_line(quote(data))}; expected {advice}")
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, str | tuple | Mapping) for part in data):
        raise TypeError(f"{name} is a tuple of two lists; expected {EXPECTED_DATA}")
    for number, row in enumerate(data):
        cells = _to_python(row)
        if isinstance(row, list) and row and all(isinstance(word, tuple) and len(word) == 2 for word in row):
            cells = [*zip(*row, strict=True)]  # a sentence of (word, label)
        cells = [*map(_to_python, cells)] if isinstance(cells, list | tuple) else cells
        yield _to_dict(cells, _name_of_row(name, number, data))


def _to_python(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _iterate_table(data: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    if hasattr(data, "to_dicts"):
        yield from data.to_dicts()
    elif hasattr(data, "iloc"):
        yield from (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None))
    else:
        features = data.features.to_dict() if hasattr(data, "features") else {}
        to_names: dict[str, Callable[[Any], Any]] = {
            column: function for column, feature in features.items() if (function := class_namer(feature))
        }
        for row in data.with_format(None) if hasattr(data, "with_format") else data:  # plain values
            yield {column: to_names[column](value) if column in to_names else value for column, value in row.items()}


def _to_dict(row: Any, row_name: str) -> dict[str, Any] | list[Any]:
    match row:
        case Mapping():
            return dict(row)
        case str():
            return {"text": row}
        case [list() | tuple() as words, list() | tuple() as labels]:
            return UnnamedRow(tokens=list(words), labels=list(labels))
        case [str(), {"entities": _} | {"cats": _}]:  # spaCy's tuple: its reader converts it
            return list(row)
        case [str() | None | float() as text, label]:  # NaN is a missing text
            return UnnamedRow(text=text, label=label)
        case [str() as first, str() as second, label]:
            return UnnamedRow(text1=first, text2=second, label=label)
    raise TypeError(f"{row_name}: found {to_one_line(quote(row))}; expected {EXPECTED_DATA}")
