"""Conversion of files of rows, such as Parquet and brat, to JSON lines, by the suffix and the beginning of a file."""

from collections import deque
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

from ensue.data.annotation_files import brat_rows
from ensue.data.decoding import COMPRESSED, decode
from ensue.data.json_layouts import json_rows, table_rows
from ensue.data.row_files import PARQUET, Rows, has_rows, json_lines, split_blocks, to_json_lines
from ensue.errors import DataError, EnsueError
from ensue.extension import Entry, entries

BRAT_SUFFIX = ".ann"
ROW_SUFFIXES = (*PARQUET, BRAT_SUFFIX)
JSON_SUFFIXES, TABLE_SUFFIXES = (".json", ".jsonl", ".ndjson"), (".csv", ".tsv", ".tab")
RESERVED_SUFFIXES = frozenset(("", ".txt", *TABLE_SUFFIXES, *JSON_SUFFIXES, ".conll", ".conllu"))
"""Suffixes that are reserved, so that formats of extensions cannot have them."""


def suffix(name: str) -> str:
    """Return the suffix of a file without compression: `.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def input_files(path: Path) -> tuple[Path, ...]:
    """Return the files that are read for `path`: the file and, for annotations of brat, the `.txt` file beside it."""
    text = path.with_suffix(".txt")
    return (path, text) if suffix(path.name) == BRAT_SUFFIX and text.is_file() else (path,)


def text_blocks(
    path: Path, encoding: str, numbers: deque[int] | None = None, *, nested: bool = False, marked: bool = False
) -> Iterator[str]:
    """Yield the decompressed text of a file in blocks, converted to JSON if its format or layout is not read directly.

    `nested` permits overlapping spans in brat annotations. `marked` includes the byte order mark. `numbers` receives
    the line in the file of each row of a converted table or JSON file.
    """
    numbers = deque() if numbers is None else numbers
    if has_rows(path):
        return json_lines(path)
    if entry := extension_format(path.name):
        return to_json_lines(_extension_rows(path, entry, encoding))
    if suffix(path.name) == BRAT_SUFFIX:
        return to_json_lines([row] for row in brat_rows(path, encoding, nested=nested))
    blocks = decode(path, encoding, marked=marked)
    if suffix(path.name) in TABLE_SUFFIXES:
        return table_rows(blocks, str(path), numbers)
    return json_rows(blocks, str(path), numbers) if suffix(path.name) in JSON_SUFFIXES else blocks


def extension_format(name: str) -> Entry | None:
    """Return the extension's format for the suffix of a file; None without such a format.

    Formats whose reader comes from a package do not support compressed files.
    """
    extension_suffix = suffix(name)
    entry = None if extension_suffix in RESERVED_SUFFIXES else entries("format").get(extension_suffix[1:])
    return None if entry and entry.package and Path(name).suffix.lower() in COMPRESSED else entry


def _extension_rows(path: Path, entry: Entry, encoding: str) -> Iterator[Rows]:
    reader: Any = entry.load(Callable)  # type: ignore[arg-type]  # isinstance accepts this abstract class
    try:
        rows = map(dict, reader(path, encoding) if "encoding" in signature(reader).parameters else reader(path))
        yield from split_blocks(rows)
    except EnsueError:
        raise
    except Exception as error:
        if not entry.package:
            raise
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"cannot be read by the package {entry.package}: {reason}", path) from None
