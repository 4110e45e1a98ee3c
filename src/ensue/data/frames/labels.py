"""Labels that are not in the file of a series: from a table of paths, a pattern of names, or folders named by class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import checked_encoding
from ensue.data.detection.frame_signs import PATH, dialect_of, table_rows
from ensue.data.frames.series import SeriesOptions
from ensue.data.lines import Lines
from ensue.errors import DataError, RecipeError


class LabeledPath(NamedTuple):
    """A file, its label and its group ("" if it has none), and where they stand."""

    path: Path
    label: str
    line: int | None = None
    group: str = ""


def is_manifest(path: Path, encoding: str) -> bool:
    """Whether a table has paths of files."""
    return PATH in next(iter(table_rows(Lines.of(path, encoding=checked_encoding(encoding)))), [])


def listed(path: Path, reading: SeriesOptions) -> Iterator[LabeledPath]:
    """The files that a table names, relative to its folder, with labels and groups. Raises DataError for one that is
    not there.
    """
    lines = Lines.of(path, encoding=checked_encoding(reading.encoding))
    dialect = dialect_of(lines)
    names = [name.strip() for name in dialect.first(lines)[0]]
    place = names.index(PATH)
    label, group = (names.index(name) if name in names else None for name in (reading.labels, reading.group))
    for row in dialect.read(lines, header=True, needed=()):
        values = [dialect.value(field).strip() for field in row.values]
        file = path.parent / values[place]
        if not file.is_file():
            raise DataError(f"no such file: {values[place]}", path, row.record.line)
        of_file = ("" if column is None else values[column] for column in (label, group))
        yield LabeledPath(file, next(of_file), row.record.line, next(of_file))


def by_pattern(paths: Sequence[Path], reading: SeriesOptions) -> Iterator[LabeledPath]:
    """The labels and groups in the names of files. Raises DataError for a name that does not fit."""
    pattern = reading.pattern
    expression = compiled(pattern, reading.group)
    for path in paths:
        found = expression.fullmatch(path.name) or expression.fullmatch(path.name.split(".")[0])
        if found is None:
            raise DataError(f"the name does not fit the pattern {pattern}", path)
        yield LabeledPath(path, found["label"], group=found.groupdict().get("group", ""))


def compiled(pattern: str, group: str = "") -> re.Pattern[str]:
    """`{label}` is the label, `group` in braces the group, other names in braces stand for any characters, all else for
    itself.

    Raises RecipeError for a pattern without `{label}`, or with two.
    """
    parts = re.split(r"(\{\w*\})", pattern)
    if parts.count("{label}") != 1:
        raise RecipeError(f'data.pattern is "{pattern}"; expected one {{label}} in it, as in {{label}}_{{}}_{{}}.wav')
    expressions = {"{label}": "(?P<label>.+?)"}
    if group and parts.count(f"{{{group}}}") == 1:
        expressions.setdefault(f"{{{group}}}", "(?P<group>.+?)")
    return re.compile(
        "".join(expressions.get(part, ".+?" if part.startswith("{") else re.escape(part)) for part in parts), re.S
    )


def by_folder(paths: Sequence[Path], folder: Path) -> Iterator[LabeledPath]:
    """Files in folders, whose names are the labels; without labels if some file is in none."""
    parts = [path.relative_to(folder).parts if path.is_relative_to(folder) else () for path in paths]
    are_classes = all(len(part) > 1 for part in parts)
    for path, part in zip(paths, parts, strict=True):
        yield LabeledPath(path, part[0] if are_classes else "")
