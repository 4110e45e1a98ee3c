"""Minimal pairs, of which one text is better, read from their published formats.

- `.jsonl` (BLiMP, Warstadt et al. 2020): `sentence_good` and `sentence_bad`, each read with its line end.
- `.tab`, and `.text` with `.gold` (Gulordava et al. 2018; Linzen et al. 2016): a sentence, the place of a word in it,
  the correct and the wrong form there. What is read is the sentence up to that word, the form, and the blank behind it,
  so that the forms are compared given the words before them, as published; the blank ends the word for a tokenizer that
  would otherwise find "represent" in "represents".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import COMPRESSED, decoded
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.parsing import parse_json

_PLACE = re.compile("[0-9]{1,9}")
_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')


class MinimalPair(NamedTuple):
    """Two texts exactly as they are read, with the line end or blank at their end."""

    good: str
    bad: str


def pair_files(location: str | Path, *, encoding: str = "utf-8") -> list[Path]:
    """The files of `location` that hold pairs. In a folder or glob, other files are passed over, and so is a `.tab`
    beside a `.text`, which holds the same pairs. Raises DataError if none is left.
    """
    paths = TextSource(location, encoding=encoding).paths
    known = [path for path in paths if _format(path) in READERS]
    if not known:
        raise DataError(f"no minimal pairs; expected a file named {', '.join(f'*{end}' for end in READERS)}", location)
    sentences = {stem(path) for path in known if _format(path) == ".text"}
    return [path for path in known if not (_format(path) == ".tab" and stem(path) in sentences)]


def read_pairs(path: Path, *, encoding: str = "utf-8") -> Iterator[MinimalPair]:
    """The pairs of one file, in its order. Raises DataError (file:line) for a line that is none."""
    return READERS[_format(path)](path, encoding)


def _format(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def stem(path: Path) -> str:
    """The path without its format (and compression)."""
    return str(path.with_suffix("").with_suffix("") if path.suffix in COMPRESSED else path.with_suffix(""))


def _numbered_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and lines without their end, which is `\\n` (or `\\r\\n`) and nothing else."""
    rest, number = "", 0
    for block in decoded(path, encoding):
        *lines, rest = (rest + block).split("\n")
        for line in lines:
            number += 1
            yield number, line.removesuffix("\r")
    if rest:
        yield number + 1, rest


def _read_json_lines(path: Path, encoding: str) -> Iterator[MinimalPair]:
    for number, line in _numbered_lines(path, encoding):
        if not line.strip():
            continue
        try:
            content = parse_json(line)
            good, bad = content["sentence_good"], content["sentence_bad"]
        except (ValueError, KeyError, TypeError):
            raise DataError('expected {"sentence_good": ..., "sentence_bad": ...}', path, number) from None
        if not isinstance(good, str) or not isinstance(bad, str):
            raise DataError("sentence_good and sentence_bad must be strings", path, number)
        yield MinimalPair(good + "\n", bad + "\n")


def _read_table(path: Path, encoding: str) -> Iterator[MinimalPair]:
    """A header, then a line with the correct form and one with the wrong form after the same prefix."""
    columns: list[str] = []
    waiting: dict[str, str] | None = None
    number = 0
    for number, line in _numbered_lines(path, encoding):
        fields = [_unquoted(field) for field in line.split("\t")]
        if not columns:
            columns = fields
            if missing := [name for name in ("form", "class", "prefix") if name not in columns]:
                raise DataError(f'the header has no column "{missing[0]}"', path, number)
            continue
        if len(fields) < len(columns):
            raise DataError(f"expected {len(columns)} columns between tabs, found {len(fields)}", path, number)
        row = dict(zip(columns, fields, strict=False))
        expected = "correct" if waiting is None else "wrong"
        if row.get("class") != expected or (waiting is not None and waiting["prefix"] != row.get("prefix")):
            raise DataError(f'expected the "{expected}" form of a pair', path, number)
        if waiting is None:
            waiting = row
        else:
            yield _forms(row["prefix"], waiting["form"], row["form"])
            waiting = None
    if waiting is not None:
        raise DataError('the last pair has no "wrong" form', path, number)


def _read_sentences(path: Path, encoding: str) -> Iterator[MinimalPair]:
    """Sentences, and line by line with them in `.gold`: the word's place, counted from 0, and its two forms."""
    gold_path = _beside(path, ".gold")
    gold = _numbered_lines(gold_path, encoding)
    for number, sentence in _numbered_lines(path, encoding):
        _, line = next(gold, (0, ""))
        place, good, bad = _gold(line, gold_path, number)
        words = sentence.split(" ")
        if place >= len(words):
            raise DataError(f"word {place} of a sentence that has {len(words)}", gold_path, number)
        yield _forms(" ".join(words[:place]), good, bad)
    for number, _ in gold:
        raise DataError(f"a line more than {path.name} has", gold_path, number)


def _unquoted(field: str) -> str:
    """A field without the quotes around it. A field that only begins with a quotation mark stays as it is."""
    return match[1].replace('""', '"') if (match := _QUOTED.fullmatch(field)) else field


def _gold(line: str, path: Path, number: int) -> tuple[int, str, str]:
    """Place and forms: the first three of 4 columns (Linzen et al.), or columns 4, 7 and 8 of 12 (Gulordava et al.)."""
    fields = line.split("\t")
    chosen = {4: fields[:3], 12: [fields[3], *fields[6:8]] if len(fields) == 12 else []}.get(len(fields))
    if not chosen or not _PLACE.fullmatch(chosen[0]):
        raise DataError("expected 4 or 12 columns with a word's place and its correct and wrong form", path, number)
    return int(chosen[0]), chosen[1], chosen[2]


def _beside(path: Path, ending: str) -> Path:
    """The file of the same name with another ending, compressed or not."""
    names = [Path(stem(path) + ending + compression) for compression in ("", *sorted(COMPRESSED))]
    found = next((name for name in names if name.is_file()), None)
    if found is None:
        raise DataError(f"expected {names[0].name} beside it, which says the pairs", path)
    return found


def _forms(prefix: str, good: str, bad: str) -> MinimalPair:
    before = f"{prefix} " if prefix else ""
    return MinimalPair(f"{before}{good} ", f"{before}{bad} ")


READERS: dict[str, Callable[[Path, str], Iterator[MinimalPair]]] = {
    ".jsonl": _read_json_lines,
    ".tab": _read_table,
    ".text": _read_sentences,
}
