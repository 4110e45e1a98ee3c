"""Locations that say by themselves what they are: folders of classes, and two aligned files with a comma between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path

from ensue.data.detection import signs
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS, TEXTS, by_suffix, class_of, suffix
from ensue.data.detection.formats import first_lines, text_format
from ensue.data.files import common_format, expanded, locations_in, readable, visible
from ensue.data.lines import Lines, is_blank
from ensue.data.row_files import DatasetName
from ensue.errors import DataError

_SPLIT = re.compile(r"(?<![a-z])(train(ing)?|valid(ation)?|dev|devel|test|eval)(?![a-z])", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+(?:[ _'&-]+[^\W\d_]+)*")
_NO_CLASSES = {"readme", "license", "licence", "copying"}
_FILES_TO_LOOK_AT = 4
_LINES_TO_LOOK_AT = 100
_LONGEST_TEXT = 1 << 16
"""A longer line is running text without line ends."""


def folder_format(location: str | Path, *, encoding: str = "utf-8") -> str:
    """`FOLDERS` or `CLASS_FILES` for a folder that looks like it; "" for any other.

    Raises DataError for several locations of which only some are `FOLDERS`.
    """
    formats = {name: _folder_format(name, encoding) for name in locations_in(location)}
    if FOLDERS in formats.values():
        return common_format({name: found or "files" for name, found in formats.items()})
    return "" if "" in formats.values() else CLASS_FILES


def _folder_format(location: str, encoding: str) -> str:
    with readable(location):
        path = expanded(location)
        if not str(location) or not path.is_dir():
            return ""
    entries = visible(path)
    if _are_class_folders(entries):
        return FOLDERS
    return CLASS_FILES if _are_class_files(entries, encoding) else ""


def class_files(paths: Sequence[Path]) -> list[Path]:
    """The files of a folder that are named after classes: the `.txt` files if there are any, without a README."""
    own = [path for path in paths if class_of(path.name).casefold() not in _NO_CLASSES]
    return [path for path in own if suffix(path.name) == ".txt"] or own


def aligned_paths(location: str) -> list[tuple[str, str]]:
    """Two files for each location of two files with a comma between them; none for locations of another kind.

    Names may have commas: if the whole is a file, it is one file; else two existing files are preferred. Raises
    DataError if locations are of both kinds, or if two are the same.
    """
    names = locations_in(location)
    found = {name: pair for name in names if (pair := _aligned(name))}
    if found and len(found) < len(names):
        other = next((name for name in names if name not in found), names[0])
        what = "is named twice" if other in found else "expected two files with a comma between them, as the others are"
        raise DataError(what, other)
    return [*found.values()]


def _aligned(location: str) -> tuple[str, str] | None:
    parts = location.split(",")
    if len(parts) == 1 or _is_there(location) or DatasetName.parse(location):
        return None
    splits = [(",".join(parts[:n]).strip(), ",".join(parts[n:]).strip()) for n in range(1, len(parts))]
    found = next((pair for pair in splits if all(map(_is_there, pair))), None)
    if found is None and len(parts) > 2 and not has_magic(location):
        raise DataError("expected two files with a comma between them, such as train.en,train.de", location)
    return found or (None if has_magic(location) else splits[0])


def _are_class_folders(entries: list[Path]) -> bool:
    """Whether there are folders of texts: several, or one and nothing else; folders of tables are none."""
    folders = [entry for entry in entries if entry.is_dir()]
    is_table = any(by_suffix(TEXTS, file.name) for folder in folders for file in visible(folder))
    return (len(folders) > 1 or (bool(folders) and folders == entries)) and not is_table


def _are_class_files(entries: list[Path], encoding: str) -> bool:
    """Whether there are several `.txt` files, and beside them at most a README. Their names have to be words, but not
    of splits (train, test). Their lines have to be texts: no blank lines between them, no table, no labels.
    """
    files = [entry for entry in entries if class_of(entry.name).casefold() not in _NO_CLASSES]
    if len(files) < 2 or not all(map(_is_named_as_class, files)):
        return False
    heads = []
    for file in files[:_FILES_TO_LOOK_AT]:
        with suppress(DataError):  # which reading will raise
            lines = first_lines(file, encoding=encoding)[:_LINES_TO_LOOK_AT]
            if not _are_texts(lines, str(file)):
                return False
            heads.append([line.rstrip("\r\n") for line in lines])
    first_words = {frozenset(line.split(" ")[0] for line in head) for head in heads}
    return bool(heads) and (len(first_words) > 1 or not all(map(signs.begin_with_labels, heads)))


def _are_texts(lines: Sequence[str], name: str) -> bool:
    rows = "".join(lines).strip().split("\n")
    return (
        max(map(len, rows)) <= _LONGEST_TEXT
        and not any(map(is_blank, rows))
        and text_format(Lines(lines, name), is_labeled=True) in ("", "first-word")
    )


def _is_named_as_class(file: Path) -> bool:
    name = class_of(file.name)
    return (
        file.is_file()
        and suffix(file.name) == ".txt"
        and _LETTERS.fullmatch(name) is not None
        and not _SPLIT.search(name)
    )


def _is_there(name: str) -> bool:
    with readable(name):
        return bool(name) and expanded(Path(name)).is_file()
