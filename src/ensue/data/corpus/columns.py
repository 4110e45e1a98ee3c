"""Sources of the text in a column of a table or a data set, with a line end after each value."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ensue.data.lines import Lines, json_values
from ensue.data.records.record import column_error
from ensue.data.row_files import PARQUET, dataset_files, dataset_rows, find_dataset, parquet_columns, parquet_rows
from ensue.data.sources import TextSource
from ensue.errors import DataError


class ColumnSource(TextSource):
    """The text in a column of `.parquet` files, or at a key of JSON lines.

    Nulls and empty values are skipped. Raises DataError for a missing column, and for values that are not strings.
    """

    def __init__(self, location: str | Path, column: str, *, encoding: str = "utf-8") -> None:
        self.column = column
        super().__init__(location, encoding=encoding)

    def fingerprint(self) -> str:
        """Return a digest of the files and the column."""
        return f"{super().fingerprint()}-{json.dumps(self.column)}"

    def _blocks(self) -> Iterator[str]:
        for file, number, value in self._values():
            if value is not None and not isinstance(value, str):
                raise DataError(f'"{self.column}": expected a text, found {value!r:.60}', file, number)
            if value:
                yield value if value.endswith("\n") else f"{value}\n"

    def _values(self) -> Iterator[tuple[Path | str, int, Any]]:
        """Yield the file or address, the number of the row (from 1) and the value of each row."""
        for path in self.paths:
            yield from self._read_parquet(path) if path.suffix in PARQUET else self._read_json(path)

    def _read_json(self, path: Path) -> Iterator[tuple[Path | str, int, Any]]:
        for number, record in json_values(Lines.of(path, encoding=self.encoding)):
            if not isinstance(record, dict) or self.column not in record:
                names = list(record) if isinstance(record, dict) else []
                raise column_error(self.column, names, "", str(path), number)
            yield path, number, record[self.column]

    def _read_parquet(self, path: Path) -> Iterator[tuple[Path | str, int, Any]]:
        if self.column not in (names := parquet_columns(path)):
            raise column_error(self.column, names, "", str(path), None)
        rows = enumerate(chain.from_iterable(parquet_rows(path, [self.column])), 1)
        return ((path, number, row[self.column]) for number, row in rows)


class DatasetSource(ColumnSource):
    """The text in a column of a data set.

    Raises DataError for a data set that is damaged, not on this machine, or lacks the configuration, split or column,
    and EnsueError if the package `datasets` is not installed.
    """

    def __init__(self, location: str, column: str) -> None:
        self.location, self.encoding, self.column = location, "utf-8", column
        self.dataset, self.split = find_dataset(location)
        if column not in self.dataset.column_names:
            raise column_error(self.column, self.dataset.column_names, "", location, None)
        self.paths = tuple(dataset_files(self.dataset))
        if not any(self._blocks()):
            raise DataError("the text is empty", location)

    def fingerprint(self) -> str:
        """Return a digest of the files, the split and the column."""
        return f"{super().fingerprint()}-{json.dumps([self.split, len(self.dataset)])}"

    def _values(self) -> Iterator[tuple[Path | str, int, Any]]:
        rows = enumerate(chain.from_iterable(dataset_rows(self.dataset.select_columns([self.column]))), 1)
        return ((self.location, number, row[self.column]) for number, row in rows)
