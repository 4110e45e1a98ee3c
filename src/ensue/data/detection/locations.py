"""Detection of folders of classes, and of aligned files (`a.en,a.de`)."""

import re
from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path

from ensue.data.detection import format_table, signs
from ensue.data.files import common_format, expanduser, list_visible, locations_in, os_errors
from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError
from ensue.extension import is_address

_SPLIT = re.compile(r"(?<![a-z])(train(ing)?|valid(ation)?|dev|devel|test|eval)(?![a-z])", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+(?:[ _'&-]+[^\W\d_]+)*")
_NO_CLASSES = {"readme", "license", "licence", "copying"}
_NUM_SAMPLE_FILES, _NUM_SAMPLE_LINES = 4, 100
_MAX_LINE_CHARACTERS = 1 << 16
"""The maximum length of a text on a line. Files with longer lines are running text without line ends."""


def folder_format(location: str | Path, *, encoding: str = "utf-8") -> str:
    """Return `FOLDERS` or `CLASS_FILES` for a folder of classes; "" for another location.

    Raises DataError if only some of several locations are `FOLDERS`.
    """
    formats = {name: _folder_format(name, encoding) for name in locations_in(location)}
    if format_table.FOLDERS in formats.values():
        return common_format({name: result or "files" for name, result in formats.items()})
    return "" if "" in formats.values() else format_table.CLASS_FILES


def _folder_format(location: str, encoding: str) -> str:
    with os_errors(location):
        path = expanduser(location)
        if not str(location) or not path.is_dir():
            return ""
    entries = list_visible(path)
    if _are_class_folders(entries):
        return format_table.FOLDERS
    return format_table.CLASS_FILES if _are_class_files(entries, encoding) else ""


def class_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files that are named after classes: without a README, and only `.txt` files if there are any."""
    named = [path for path in paths if format_table.class_of(path.name).casefold() not in _NO_CLASSES]
    return [path for path in named if format_table.suffix(path.name) == ".txt"] or named


def aligned_paths(location: str) -> list[tuple[str, str]]:
    """Split locations such as `a.en,a.de` into two aligned files; return an empty list for other locations.

    Names of files may contain commas: a location that is an existing file is not split, and a split into two existing
    files is preferred. Raises DataError if only some locations are aligned files, or if a location occurs twice.
    """
    names = locations_in(location)
    result = {name: pair for name in names if (pair := _split_aligned(name))}
    if result and len(result) < len(names):
        other = next(name for name in names if name not in result or names.count(name) > 1)
        expected = "expected two files with a comma between them, like the others"
        raise DataError("is named twice" if other in result else expected, other)
    return [*result.values()]


def _split_aligned(location: str) -> tuple[str, str] | None:
    pieces = location.split(",")
    if len(pieces) == 1 or _is_file(location) or is_address(location):
        return None
    splits = [(",".join(pieces[:n]).strip(), ",".join(pieces[n:]).strip()) for n in range(1, len(pieces))]
    result = next((pair for pair in splits if all(map(_is_file, pair))), None)
    if result is None and len(pieces) > 2 and not has_magic(location):
        raise DataError("expected two files with a comma between them, such as train.en,train.de", location)
    return result or (None if has_magic(location) else splits[0])


def _are_class_folders(entries: list[Path]) -> bool:
    folders = [entry for entry in entries if entry.is_dir()]
    names = [file.name for folder in folders for file in list_visible(folder)]
    is_table = any(format_table.format_by_suffix(format_table.TEXTS, name) for name in names)
    return (len(folders) > 1 or (bool(folders) and folders == entries)) and not is_table


def _are_class_files(entries: list[Path], encoding: str) -> bool:
    files = [entry for entry in entries if format_table.class_of(entry.name).casefold() not in _NO_CLASSES]
    if len(files) < 2 or not all(map(_is_named_as_class, files)):
        return False
    heads = []
    for file in files[:_NUM_SAMPLE_FILES]:
        with suppress(DataError):  # reading the file later raises the error
            lines = format_table.first_lines(file, encoding=encoding)[:_NUM_SAMPLE_LINES]
            if not _are_texts(lines, str(file)):
                return False
            heads.append([line.rstrip("\r\n") for line in lines])
    first_words = {frozenset(line.split(" ")[0] for line in head) for head in heads}
    return bool(heads) and (len(first_words) > 1 or not all(map(signs.begin_with_labels, heads)))


def _are_texts(lines: Sequence[str], name: str) -> bool:
    rows = "".join(lines).strip().split("\n")
    are_filled = max(map(len, rows)) <= _MAX_LINE_CHARACTERS and not any(map(is_blank, rows))
    return are_filled and format_table.text_format(Lines(lines, name), is_labeled=True) in ("", "first-word")


def _is_named_as_class(file: Path) -> bool:
    name, is_text = format_table.class_of(file.name), file.is_file() and format_table.suffix(file.name) == ".txt"
    return is_text and _LETTERS.fullmatch(name) is not None and not _SPLIT.search(name)


def _is_file(name: str) -> bool:
    with os_errors(name):
        return bool(name) and expanduser(Path(name)).is_file()
