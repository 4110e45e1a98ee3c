"""Readers of minimal pairs, an acceptable and an unacceptable text, in their published formats.

- `.jsonl` (BLiMP, Warstadt et al. 2020): `sentence_good` and `sentence_bad`. A line end is added to each sentence.
- `.text` with `.gold` (Gulordava et al. 2018; Linzen et al. 2016): a sentence, and the index, the correct and the wrong
  form of a word; `.tab`: the words before a form, and the form. As published, the two forms are compared given the
  words before them: each text consists of these words, a form, and a blank. The blank marks the end of the form, so
  that a tokenizer does not treat "represent" as the beginning of "represents".
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import COMPRESSED
from ensue.data.lines import Lines, json_values, strip_line_end
from ensue.data.row_formats import suffix
from ensue.data.sources import TextSource
from ensue.errors import DataError

_WORD_INDEX = re.compile("[0-9]{1,9}")
_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable text, each with a line end or blank at its end."""

    good: str
    bad: str


def pair_files(location: str | Path, *, encoding: str = "utf-8") -> list[Path]:
    """Return the files of minimal pairs at a location.

    Files with other suffixes are ignored, and a `.tab` file is ignored if a `.text` file has the same pairs. Raises
    DataError if there are no files of minimal pairs.
    """
    pair_paths = [path for path in TextSource(location, encoding=encoding).paths if suffix(path.name) in READERS]
    if not pair_paths:
        raise DataError(f"no minimal pairs; expected a file named {', '.join(f'*{end}' for end in READERS)}", location)
    sentences = {stem(path) for path in pair_paths if suffix(path.name) == ".text"}
    return [path for path in pair_paths if not (suffix(path.name) == ".tab" and stem(path) in sentences)]


def read_pairs(path: Path, *, encoding: str = "utf-8") -> Iterator[MinimalPair]:
    """Yield the pairs of a file in order. Raises DataError (file:line) for an invalid line."""
    return READERS[suffix(path.name)](path, encoding)


def stem(path: Path) -> str:
    """Return the path without the suffixes of format and compression."""
    return str(path.with_suffix("").with_suffix("") if path.suffix in COMPRESSED else path.with_suffix(""))


def _numbered_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    return ((number, strip_line_end(line)) for number, line in Lines.of(path, encoding=encoding))


def _read_json_lines(path: Path, encoding: str) -> Iterator[MinimalPair]:
    for number, content in json_values(Lines.of(path, encoding=encoding)):
        match content:
            case {"sentence_good": str(good), "sentence_bad": str(bad)}:
                yield MinimalPair(good + "\n", bad + "\n")
            case _:
                raise DataError('expected {"sentence_good": "...", "sentence_bad": "..."}', path, number)


def _read_table(path: Path, encoding: str) -> Iterator[MinimalPair]:
    columns: list[str] = []
    correct_row: dict[str, str] | None = None
    number = 0
    for number, line in _numbered_lines(path, encoding):
        cells = ((field, _QUOTED.fullmatch(field)) for field in line.split("\t"))
        fields = [quoted[1].replace('""', '"') if quoted else field for field, quoted in cells]
        if not columns:
            columns = fields
            if missing := [name for name in ("form", "class", "prefix") if name not in columns]:
                raise DataError(f'the header has no column "{missing[0]}"', path, number)
            continue
        if len(fields) < len(columns):
            raise DataError(f"expected {len(columns)} columns separated by tabs, found {len(fields)}", path, number)
        row = dict(zip(columns, fields, strict=False))
        expected = "correct" if correct_row is None else "wrong"
        if row.get("class") != expected or (correct_row is not None and correct_row["prefix"] != row.get("prefix")):
            raise DataError(f'expected the "{expected}" form of a pair', path, number)
        if correct_row is None:
            correct_row = row
        else:
            yield _make_pair(row["prefix"], correct_row["form"], row["form"])
            correct_row = None
    if correct_row is not None:
        raise DataError('the last pair has no "wrong" form', path, number)


def _read_sentences(path: Path, encoding: str) -> Iterator[MinimalPair]:
    names = [Path(stem(path) + ".gold" + compression) for compression in ("", *sorted(COMPRESSED))]
    gold_path = next((name for name in names if name.is_file()), None)
    if gold_path is None:
        raise DataError(f"expected {names[0].name} with the pairs in the same folder", path)
    gold = _numbered_lines(gold_path, encoding)
    for number, sentence in _numbered_lines(path, encoding):
        _, line = next(gold, (0, ""))
        # columns 1 to 3 of 4 (Linzen et al.), or 4, 7, 8 of 12 (Gulordava)
        fields = line.split("\t")
        columns = {4: (0, 1, 2), 12: (3, 6, 7)}.get(len(fields))
        if columns is None or not _WORD_INDEX.fullmatch(fields[columns[0]]):
            raise DataError(
                "expected 4 or 12 columns with a word's index and its correct and wrong form", gold_path, number
            )
        index, good, bad = int(fields[columns[0]]), fields[columns[1]], fields[columns[2]]
        words = sentence.split(" ")
        if index >= len(words):
            raise DataError(f"expected an index below {len(words)}, found {index}", gold_path, number)
        yield _make_pair(" ".join(words[:index]), good, bad)
    for number, _ in gold:
        raise DataError(f"more lines than {path.name}", gold_path, number)


def _make_pair(prefix: str, good: str, bad: str) -> MinimalPair:
    before = f"{prefix} " if prefix else ""
    return MinimalPair(f"{before}{good} ", f"{before}{bad} ")


READERS: dict[str, Callable[[Path, str], Iterator[MinimalPair]]] = {
    ".jsonl": _read_json_lines, ".tab": _read_table, ".text": _read_sentences,
}  # fmt: skip
