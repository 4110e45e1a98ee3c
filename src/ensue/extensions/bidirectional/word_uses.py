"""Words in sentences with their senses, in their published formats.

- Senses of words (CoarseWSD-20): a folder for each word, or one such folder. `classes_map.txt` is a JSON object from
  numbers to senses. `train.data.txt` and `test.data.txt` have a line for each use: the place of the word (from 0), a
  tab, the words. `train.gold.txt` and `test.gold.txt` have the numbers of the senses.
- Word in context: two uses of a word, which have the same meaning or not. A file has `.data` in its name, and the one
  with the answers `.gold`. They are arrays of JSON objects, with `sentence1`, `start1`, `end1`, `sentence2`, ... and
  with `tag` (MCL-WiC), or lines of word, part of speech, `place-place` and both sentences, and of `T` and `F` (WiC).

Files may be compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ensue.data.decoding import COMPRESSED, decoded
from ensue.data.lines import Lines
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json, shown

_MAP = "classes_map.txt"
LONGEST_NUMBER = 9
"""The most digits of a place; Python reads no number of thousands of them."""


class WordUse(NamedTuple):
    """The word `words[place]` in its sentence."""

    words: tuple[str, ...]
    place: int


class LabeledUse(NamedTuple):
    """A use of a word, and its sense."""

    use: WordUse
    sense: str


class WordSenses(NamedTuple):
    """The uses of a word with their senses, for learning and for testing."""

    word: str
    train: list[LabeledUse]
    test: list[LabeledUse]


class UsePair(NamedTuple):
    """Two uses of a word, and whether they have the same meaning."""

    first: WordUse
    second: WordUse
    is_same: bool


def read_senses(location: str | Path) -> list[WordSenses]:
    """The words of a folder with folders, or of one word's folder, sorted. Raises DataError for another content."""
    folder = Path(location)
    if not folder.is_dir():
        raise DataError("not a folder; expected one with a folder for each word", folder)
    folders = [folder] if (folder / _MAP).is_file() else sorted(path.parent for path in folder.glob(f"*/{_MAP}"))
    if not folders:
        raise DataError(f"no {_MAP} in it, nor in its folders; expected a folder for each word", folder)
    return [_senses_of(word) for word in folders]


def _senses_of(folder: Path) -> WordSenses:
    names = _json(folder / _MAP)
    if not (isinstance(names, dict) and names and all(type(name) is str for name in names.values())):
        raise DataError('expected an object such as {"0": "bank_river"}', folder / _MAP)
    parts = {part: list(_uses(folder, part, names)) for part in ("train", "test")}
    return WordSenses(folder.name, **parts)


def _uses(folder: Path, part: str, names: dict[str, str]) -> Iterator[LabeledUse]:
    data, gold = (_found(folder / f"{part}.{kind}.txt") for kind in ("data", "gold"))
    for number, (line, label) in enumerate(zip_longest(_lines(data), _lines(gold)), 1):
        if line is None or label is None:
            raise DataError(f"more lines than {(data if line is None else gold).name}", gold if line is None else data)
        place, tab, text = line.partition("\t")
        words = tuple(text.split())
        if not tab or not _is_place(place, words):
            expected = "expected the place of a word, a tab and the sentence"
            raise DataError(f"{expected}, found {shown(line)}", data, number)
        if label not in names:
            raise DataError(f"no sense {shown(label)} in {_MAP}", gold, number)
        yield LabeledUse(WordUse(words, int(place)), names[label])


def _is_place(number: str, words: tuple[str, ...]) -> bool:
    """Whether this is the place of one of the words."""
    return number.isdecimal() and len(number) <= LONGEST_NUMBER and int(number) < len(words)


def read_use_pairs(location: str | Path) -> list[UsePair]:
    """The pairs of uses of a file, with the answers beside it. Raises DataError for another content."""
    data = Path(location)
    before, dot, behind = data.name.rpartition(".data")
    if not dot:
        raise DataError("expected a file whose name has .data in it, with answers beside it (.gold)", data)
    gold = _found(data.with_name(f"{before}.gold{_uncompressed(behind)}"))
    lines = Lines.of(data)
    is_json = lines.head(1)[:1] and lines.head(1)[0].lstrip().startswith("[")
    uses = _json_uses(data) if is_json else _line_uses(data)
    tags = _json_tags(gold) if is_json else list(_lines(gold))
    if len(uses) != len(tags):
        raise DataError(f"{len(uses):,} pairs, but {gold.name} has {len(tags):,} answers", data)
    if not uses:
        raise DataError("no pair in it", data)
    for number, tag in enumerate(tags, 1):
        if tag not in ("T", "F"):
            raise DataError(f"answer {number:,}: expected T or F, found {shown(tag)}", gold)
    return [UsePair(*pair, tag == "T") for pair, tag in zip(uses, tags, strict=True)]


def _line_uses(path: Path) -> list[tuple[WordUse, WordUse]]:
    found = []
    for number, line in enumerate(_lines(path), 1):
        fields = line.split("\t")
        places = fields[2].split("-") if len(fields) == 5 else []
        texts = [tuple(text.split()) for text in fields[3:]]
        if len(places) != 2 or not all(map(_is_place, places, texts)):
            expected = "expected a word, its part of speech, two places (2-5) and two sentences between tabs"
            raise DataError(f"{expected}, found {shown(line)}", path, number)
        first, second = (WordUse(words, int(place)) for words, place in zip(texts, places, strict=True))
        found.append((first, second))
    return found


def _json_uses(path: Path) -> list[tuple[WordUse, WordUse]]:
    return [(_json_use(row, "1", path), _json_use(row, "2", path)) for row in _rows(path)]


def _json_use(row: Any, side: str, path: Path) -> WordUse:
    """The use in `sentence1`, from `start1` to `end1` in characters."""
    try:
        text, start, end = row[f"sentence{side}"], int(row[f"start{side}"]), int(row[f"end{side}"])
        before = text[:start].split()
        if not (0 <= start < end <= len(text) and text[start:end].strip()):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        expected = f"expected sentence{side}, start{side} and end{side}"
        raise DataError(f"{expected}, found {shown(row)}", path) from None
    return WordUse((*before, text[start:end].strip(), *text[end:].split()), len(before))


def _json_tags(path: Path) -> list[Any]:
    return [row.get("tag") if isinstance(row, dict) else row for row in _rows(path)]


def _rows(path: Path) -> list[Any]:
    content = _json(path)
    if not isinstance(content, list):
        raise DataError("expected an array of objects", path)
    return content


def _json(path: Path) -> Any:
    try:
        return parse_json("".join(decoded(path, "utf-8")))
    except ParseError as error:
        raise DataError(str(error), path) from None


def _lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\r\n") for _, line in Lines.of(path))


def _found(path: Path) -> Path:
    """The file of this name, compressed or not."""
    candidates = [path, *(path.with_name(path.name + ending) for ending in sorted(COMPRESSED))]
    found = next((candidate for candidate in candidates if candidate.exists()), None)
    if found is None:
        raise DataError("no such file", path)
    return found


def _uncompressed(suffix: str) -> str:
    return next((suffix.removesuffix(ending) for ending in COMPRESSED if suffix.endswith(ending)), suffix)
