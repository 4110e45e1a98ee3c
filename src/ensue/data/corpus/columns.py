"""The texts in a column of Parquet or JSON lines, as running text with a line end behind each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from ensue.data.decoding import decoded
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError, nearest
from ensue.parsing import ParseError, parse_json

ROWS = 4096
PARQUET = (".parquet", ".pq")


class ColumnSource(TextSource):
    """A text source whose text is that of a column: of `.parquet` files by pyarrow, of others a key of JSON lines.

    A missing or empty text is no line. Raises DataError for a column that is not there, and for other values.
    """

    def __init__(self, location: str | Path, column: str, *, encoding: str = "utf-8") -> None:
        self.column = column
        super().__init__(location, encoding=encoding)

    def fingerprint(self) -> str:
        """A digest of the files' bytes, and of the column."""
        return f"{super().fingerprint()}-{json.dumps(self.column)}"

    def _blocks(self) -> Iterator[str]:
        for text in self._texts():
            if text:
                yield text if text.endswith("\n") else f"{text}\n"

    def _texts(self) -> Iterator[str | None]:
        for path in self.paths:
            yield from self._parquet(path) if path.suffix in PARQUET else self._json(path)

    def _json(self, path: Path) -> Iterator[str | None]:
        for number, line in Lines(decoded(path, self.encoding), str(path)):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except ParseError as error:
                raise DataError(f"not JSON: {error}", path, number) from None
            if not isinstance(record, dict) or self.column not in record:
                raise self._missing(list(record) if isinstance(record, dict) else [], path, number)
            yield self._text(record[self.column], path, number)

    def _parquet(self, path: Path) -> Iterator[str | None]:
        if find_spec("pyarrow") is None:
            raise EnsueError("reading Parquet needs the package pyarrow: pip install 'ensue[parquet]'")
        from pyarrow import ArrowException  # noqa: PLC0415 (an extra)
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415

        try:
            with ParquetFile(path) as file:
                if self.column not in file.schema_arrow.names:
                    raise self._missing(file.schema_arrow.names, path)
                batches = file.iter_batches(ROWS, columns=[self.column])
                rows = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
                for number, value in enumerate(rows, 1):
                    yield self._text(value, path, number)
        except (ArrowException, OSError) as error:
            raise DataError(f"not Parquet: {error}", path) from None

    def _text(self, value: Any, path: Path | str, number: int) -> str | None:
        if value is not None and not isinstance(value, str):
            raise DataError(f'"{self.column}": expected a text, found {value!r:.60}', path, number)
        return value

    def _missing(self, names: list[str], path: Path | str, number: int | None = None) -> DataError:
        known = f"; it has {', '.join(names)}" if names else ""
        return DataError(f'no column "{self.column}"{nearest(self.column, names)}{known:.200}', path, number)
