"""Rows of Parquet files, data sets of the package `datasets` (Hugging Face), as JSON lines.

`hf:NAME`, `hf:NAME,CONFIGURATION` or either with `@SPLIT` names a data set. NAME is a folder that `save_to_disk` has
written, or a name of the Hub. Data that are not on this machine are downloaded only if HF_HUB_OFFLINE=0 asks for it.
Numbers that stand for classes, whose names the table knows, are read as these names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ensue.errors import DataError, EnsueError, in_one_line, nearest
from ensue.hub import NOT_HERE, PREFIX, stay_offline
from ensue.parsing import ParseError, parse_json

ROWS = 1024
"""Rows that are read at a time."""
PARQUET = (".parquet", ".pq")
_SAVED = ("dataset_dict.json", "state.json")
"""A file of these names is in a folder that `save_to_disk` has written, for several splits or for one."""
_WRITTEN_AS_TEXT = (date, time, timedelta, Decimal)

Rows = list[dict[str, Any]]


class DatasetName(NamedTuple):
    """A data set, its configuration ("": the only one), and a split ("": the only one, or train)."""

    name: str
    configuration: str
    split: str

    @classmethod
    def parse(cls, location: str) -> DatasetName | None:
        """The data set of a location; None if it names files. Raises DataError if it has no name."""
        if not location.startswith(PREFIX):
            return None
        found = re.fullmatch(rf"{PREFIX}([^,@]+)(?:,([^,@]+))?(?:@([^,@]+))?", location)
        if found is None:
            raise DataError("expected such as hf:NAME, hf:NAME,CONFIGURATION or hf:NAME@SPLIT", location)
        return cls(*(part or "" for part in found.groups()))


def has_rows(path: Path) -> bool:
    """Return whether the name is that of a binary table or of a data set."""
    return path.suffix in PARQUET or str(path).startswith(PREFIX)


def json_lines(path: Path) -> Iterator[str]:
    """Yield the rows of such a file as JSON lines, a block of rows at a time. Dates are texts; bytes are left out.

    Raises DataError if it cannot be read, and EnsueError without the package that reads it.
    """
    return as_lines(_named_rows(path))


def as_lines(blocks: Iterable[Rows]) -> Iterator[str]:
    """Rows as JSON lines, a block of them at a time."""
    for rows in blocks:
        yield "".join(f"{json.dumps(_plain(row), ensure_ascii=False)}\n" for row in rows)


def parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[Rows]:
    """The rows of a Parquet file, some at a time. Raises DataError and EnsueError like `json_lines`."""
    with _parquet(path) as file:
        for batch in file.iter_batches(ROWS, columns=columns):
            yield batch.to_pylist()


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of a Parquet file."""
    with _parquet(path) as file:
        return [*file.schema_arrow.names]


def dataset_rows(dataset: Any) -> Iterator[Rows]:
    """The rows of a data set, some at a time, from files that are mapped."""
    return (table.to_pylist() for table in dataset.with_format("arrow").iter(ROWS))


def dataset_files(dataset: Any) -> list[Path]:
    """The files that hold the rows of a data set, with others in it."""
    return [Path(file["filename"]) for file in dataset.cache_files]


def find_dataset(location: str) -> tuple[Any, str]:
    """The data set, and the name of its split.

    Raises DataError for a data set that is not on this machine, damaged, or without this configuration or split, and
    EnsueError without the package.
    """
    name = DatasetName.parse(location)
    assert name is not None
    if find_spec("datasets") is None:
        raise EnsueError("reading data sets by name needs the package datasets: pip install 'ensue[datasets]'")
    stay_offline()
    import datasets  # noqa: PLC0415 (an extra)
    from pyarrow import ArrowException  # noqa: PLC0415

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    is_saved = any((Path(name.name) / file).is_file() for file in _SAVED)
    try:
        if not is_saved:
            splits = datasets.load_dataset(name.name, name.configuration or None)
        elif name.configuration:
            raise DataError(f"a folder has no configurations; found {name.configuration}", location)
        else:
            splits = datasets.load_from_disk(name.name)
    except ConnectionError:
        raise DataError(NOT_HERE, location) from None
    except (OSError, ValueError, KeyError, TypeError, ArrowException, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"cannot be read: {in_one_line(str(error))}", location) from None
    if not isinstance(splits, dict):
        splits = {name.split: splits}
    split = name.split or ("train" if len(splits) > 1 else next(iter(splits)))
    if split not in splits:
        raise DataError(f'no split "{split}"{nearest(split, splits)}; it has {", ".join(splits)}', location)
    return splits[split], split


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    if find_spec("pyarrow") is None:
        raise EnsueError("reading Parquet needs the package pyarrow: pip install 'ensue[parquet]'")
    from pyarrow import ArrowException  # noqa: PLC0415 (an extra)
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    try:
        with ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise DataError(f"not Parquet: {in_one_line(str(error))}", path) from None


def _named_rows(path: Path) -> Iterator[Rows]:
    """The rows of a table, with the names of classes in place of their numbers."""
    if path.suffix in PARQUET:
        with _parquet(path) as file:
            features = _features(file.schema_arrow.metadata or {})
        found = parquet_rows(path)
    else:
        dataset, _ = find_dataset(str(path))
        features, found = dataset.features.to_dict(), dataset_rows(dataset)
    naming = {column: named for column, feature in features.items() if (named := _naming(feature))}
    for rows in found:
        for row in rows:
            row.update({column: named(row[column]) for column, named in naming.items() if column in row})
        yield rows


def _features(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The features of a Parquet file that the package `datasets` has written; none in other files."""
    try:
        features = parse_json(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ParseError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _naming(feature: Any) -> Callable[[Any], Any] | None:
    """The function from the number of a class, or a list of them, to names; None for a feature of another kind."""
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return partial(_named, feature["names"])
    inner = _naming(feature.get("feature"))
    return inner and (lambda values: list(map(inner, values)) if isinstance(values, list) else values)


def _named(names: list[str], number: Any) -> Any:
    """The name of a class; None for a number below 0, which stands for no label."""
    if not isinstance(number, int) or number >= len(names):
        return number
    return names[number] if number >= 0 else None


def _plain(value: Any) -> Any:
    """A value as JSON has it: None for bytes, and for a number that is none."""
    match value:
        case str() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, _WRITTEN_AS_TEXT) else None
