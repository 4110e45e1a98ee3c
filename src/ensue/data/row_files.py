"""Rows of Parquet files and of data sets (of the package `datasets`) as JSON lines. Class ids become class names.

An extension loads the data set of an address (`ensue.extension`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from ensue.errors import DataError, EnsueError, to_one_line
from ensue.extension import is_address, scheme_of, unknown_scheme
from ensue.parsing import MAX_DEPTH, ParseError, parse_json, to_json

BLOCK_ROWS = 1024
"""The maximum number of rows in a block."""
PARQUET = (".parquet", ".pq")
_WRITTEN_AS_TEXT = (date, time, timedelta, Decimal)

Rows = list[dict[str, Any]]


def has_rows(path: Path) -> bool:
    """Return whether a path is a Parquet file or the address of a data set."""
    return path.suffix in PARQUET or is_address(path)


def json_lines(path: Path) -> Iterator[str]:
    """Yield the rows of a Parquet file or data set as blocks of JSON lines.

    Dates become strings; bytes become null. Raises DataError if unreadable, EnsueError without the required package.
    """
    return to_json_lines(_named_rows(path))


def to_json_lines(blocks: Iterable[Rows]) -> Iterator[str]:
    """Convert blocks of rows to blocks of JSON lines."""
    for rows in blocks:
        try:
            text = "".join(f"{to_json(_to_json_value(row), ensure_ascii=False)}\n" for row in rows)
        except (RecursionError, ValueError):
            message = f"a row with values nested more than {MAX_DEPTH} deep, or with a number of more than 4,300 digits"
            raise DataError(message) from None
        yield text


def split_blocks(rows: Iterable[dict[str, Any]]) -> Iterator[Rows]:
    """Yield rows in blocks of at most `BLOCK_ROWS`."""
    remaining = iter(rows)
    while block := list(islice(remaining, BLOCK_ROWS)):
        yield block


def parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[Rows]:
    """Yield blocks of rows of a Parquet file. Raises DataError and EnsueError like `json_lines`."""
    with _open_parquet(path) as file:
        for batch in file.iter_batches(BLOCK_ROWS, columns=columns):
            yield batch.to_pylist()


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    with _open_parquet(path) as file:
        return [*file.schema_arrow.names]


def dataset_rows(dataset: Any) -> Iterator[Rows]:
    """Yield blocks of rows of a data set."""
    return (table.to_pylist() for table in dataset.with_format("arrow").iter(BLOCK_ROWS))


def dataset_files(dataset: Any) -> list[Path]:
    """Return the files that contain the rows of a data set."""
    return [Path(file["filename"]) for file in dataset.cache_files]


def find_dataset(address: str) -> tuple[Any, str]:
    """Load the data set at an address by the extension of its scheme. Return the data set and the name of its split.

    Raises DataError for a data set that is damaged, not on this machine, or lacks the configuration or split, and
    EnsueError if the required package is not installed.
    """
    scheme = scheme_of(address)
    if scheme is None:
        raise DataError(f"no data set{unknown_scheme(address)}", address)
    return scheme.load_dataset(address)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    if find_spec("pyarrow") is None:
        raise EnsueError("reading Parquet needs the package pyarrow: pip install 'ensue[parquet]'")
    from pyarrow import ArrowException  # noqa: PLC0415 (an extra)
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    try:
        with ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise DataError(f"not Parquet: {to_one_line(str(error))}", path) from None


def _named_rows(path: Path) -> Iterator[Rows]:
    if path.suffix in PARQUET:
        with _open_parquet(path) as file:
            features = _read_features(file.schema_arrow.metadata or {})
        result = parquet_rows(path)
    else:
        dataset, _ = find_dataset(str(path))
        features, result = dataset.features.to_dict(), dataset_rows(dataset)
    names = {column: to_names for column, feature in features.items() if (to_names := class_namer(feature))}
    for rows in result:
        for row in rows:
            row.update({column: to_names(row[column]) for column, to_names in names.items() if column in row})
        yield rows


def _read_features(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        features = parse_json(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (ParseError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def class_namer(feature: Any) -> Callable[[Any], Any] | None:
    """Return the function from class ids to class names for a feature of class labels; None for other features."""
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return partial(_class_name, feature["names"])
    inner = class_namer(feature.get("feature"))
    return inner and (lambda values: list(map(inner, values)) if isinstance(values, list) else values)


def _class_name(names: list[str], number: Any) -> Any:
    """Return the name of a class id; None for a negative id, which means a missing label."""
    if not isinstance(number, int) or number >= len(names):
        return number
    return names[number] if number >= 0 else None


def _to_json_value(value: Any) -> Any:
    match value:
        case str() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _to_json_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_to_json_value(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy
        return _to_json_value(value.tolist())
    return str(value) if isinstance(value, _WRITTEN_AS_TEXT) else None
