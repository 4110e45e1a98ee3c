"""Wrong offsets of spans are detected with their reason, in several languages."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ensue.data.sentences.source import SentenceSource
from ensue.data.sentences.span_borders import SpanBorders
from ensue.errors import DataError

Row = tuple[str, list[tuple[int, int, str]]]
SPLITTER = "treebank"
NAMES = {
    "english": ["Ann Lee", "Bob", "Cy Young", "Dora", "Eve", "Fay Wray", "Gil", "Hal Pal"],
    "emoji": ["Ann Lee", "Bob", "Cy Young", "Dora", "Eve", "Fay Wray", "Gil", "Hal Pal"],
    "chinese": ["北京", "上海市", "广州", "深圳", "王小明", "李雷", "韩梅梅", "成都"],
    "chinese with emoji": ["北京", "上海市", "广州", "深圳", "王小明", "李雷", "韩梅梅", "成都"],
    "chinese with many names": [
        a + b for a in "王李张刘陈杨黄赵吴周" for b in ("芳", "伟", "小明", "娜华", "平平", "军")
    ],
    "turkish": ["Ankara", "İzmir", "İstanbul", "Ayşe Kaya", "Bursa", "Adana", "Mersin", "Sivas"],
}
BEFORE = {
    "english": ["Then ", "We saw that ", "", "Later, "],
    "emoji": ["Then 😀 ", "We saw 🎉🎉 that ", "", "Later, "],
    "chinese": ["我们在", "昨天去了", "", "他说，"],
    "chinese with emoji": ["我们在", "😀昨天去了", "", "他说，🎉🎉"],
    "chinese with many names": ["我们在", "昨天去了", "", "他说，"],
    "turkish": ["Dün ", "Biz ", "", "Sonra, "],
}
BEHIND = {
    "english": [" left.", " and more of it", ", too", " is 3 years old."],
    "emoji": [" left 🙂.", " and more of it", ", too", " is 😀 3 years old."],
    "chinese": ["工作。", "吃饭很好", "的人多", "，然后回家。", "看朋友", "出差了。", "开会很久", "不太大", "上班去了"],
    "chinese with emoji": ["工作。🙂", "吃饭很好", "的人多", "，然后回家。", "看朋友", "出差了。"],
    "chinese with many names": ["工作。", "吃饭很好", "的人多", "，然后回家。"],
    "turkish": ["da kaldık.", "ya gittik", " güzel bir yer", "'nın nüfusu."],
}


def rows(language: str, count: int = 100) -> Iterator[Row]:
    """Yield texts with two names each, and their offsets."""
    draw = random.Random(language).choice
    for _ in range(count):
        text, spans = "", []
        for _ in range(2):
            name = draw(NAMES[language])
            text += draw(BEFORE[language])
            spans.append((len(text), len(text) + len(name), "PER"))
            text += name + draw(BEHIND[language]) + ("" if language.startswith("chinese") else " ")
        yield text, spans


def in_units(text: str, place: int, encoding: str, size: int) -> int:
    return len(text[:place].encode(encoding)) // size


Corruption = Callable[[str, int, int], tuple[int, int]]
CORRUPTIONS: dict[str, Corruption] = {
    "UTF-16 code units": lambda text, a, b: (in_units(text, a, "utf-16-le", 2), in_units(text, b, "utf-16-le", 2)),
    "UTF-8 bytes": lambda text, a, b: (in_units(text, a, "utf-8", 1), in_units(text, b, "utf-8", 1)),
    "inclusive ends": lambda _, a, b: (a, b - 1),
    "one-based offsets with inclusive ends": lambda _, a, b: (a + 1, b),
    "shifted by +1": lambda _, a, b: (a + 1, b + 1),
    "shifted by -1": lambda _, a, b: (a - 1, b - 1),
    "shifted by -3": lambda _, a, b: (a - 3, b - 3),
}


def note(path: Path, language: str, corruption: Corruption) -> str:
    """Return the remark on corrupt offsets, or the error of a span outside its text."""
    with path.open("w", encoding="utf-8") as file:
        for text, names in rows(language):
            spans = [(*corruption(text, a, b), label) for a, b, label in names]
            print(json.dumps({"text": text, "label": spans}, ensure_ascii=False), file=file)
    source = SentenceSource(path, splitter=SPLITTER)
    borders = SpanBorders(source.format)
    try:
        for sentence in source:
            borders.feed(sentence)
    except DataError as error:
        return str(error)
    return borders.note()


UNKNOWN = {("shifted by -3", language) for language in NAMES if language.startswith("chinese")} | {
    (name, "chinese with many names") for name in CORRUPTIONS
}
"""Words have no boundaries and names rarely recur: the reason may be unknown, but it is never a wrong one."""


@pytest.mark.parametrize("language", NAMES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_wrong_offsets_are_reported_with_their_reason(language: str, name: str, tmp_path: Path) -> None:
    output = note(tmp_path / "a.jsonl", language, CORRUPTIONS[name])
    differs = any(CORRUPTIONS[name](text, a, b) != (a, b) for text, spans in rows(language) for a, b, _ in spans)
    _, _, reason = output.partition("the offsets look like ")
    if reason or (name, language) not in UNKNOWN:
        assert (name in reason) == differs, output
    if differs:
        assert output


def exact(_: str, start: int, end: int) -> tuple[int, int]:
    return start, end


@pytest.mark.parametrize("language", ["english", "emoji"])
def test_correct_offsets_are_not_reported(language: str, tmp_path: Path) -> None:
    assert not note(tmp_path / "a.jsonl", language, exact)


@pytest.mark.parametrize("language", [name for name in NAMES if name not in ("english", "emoji")])
def test_correct_offsets_in_a_language_without_blanks_propose_another_splitter(language: str, tmp_path: Path) -> None:
    output = note(tmp_path / "a.jsonl", language, exact)
    assert output.endswith("--set data.splitter=characters reads each character as a word")
    assert "offsets" not in output


def test_some_spans_inside_words_are_reported_with_a_remedy(tmp_path: Path) -> None:
    text, names = "Ann Lee met Bob, Cy Young, Dora and Eve", ("Ann Lee", "Bob", "Cy Young", "Dora", "Eve")
    spans = [(text.index(name), text.index(name) + len(name), "PER") for name in names]
    cut = [*spans[:-1], (spans[-1][0], spans[-1][1] - 1, "PER")]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text, "spans": row}) for row in [spans, cut] * 9))
    source = SentenceSource(tmp_path / "a.jsonl", splitter=SPLITTER)
    borders = SpanBorders(source.format)
    for sentence in source:
        borders.feed(sentence)
    advice = "most spans of these texts are aligned with words; correct the misaligned spans"
    assert borders.note().endswith(f"a.jsonl:2: {advice}")


def test_few_spans_inside_words_are_not_reported(tmp_path: Path) -> None:
    """One in 120 is below one percent, one in 60 is above."""
    lines = [json.dumps({"text": "Ann Lee left", "spans": [[0, 7, "PER"]]})] * 119
    for more, is_mentioned in ((lines, False), (lines[:59], True)):
        (tmp_path / "a.jsonl").write_text("\n".join([*more, '{"text": "Annlee left", "spans": [[0, 3, "PER"]]}']))
        source = SentenceSource(tmp_path / "a.jsonl", splitter=SPLITTER)
        borders = SpanBorders(source.format)
        for sentence in source:
            borders.feed(sentence)
        assert bool(borders.note()) == is_mentioned
        assert (borders.num_spans, borders.num_misaligned) == (len(more) + 1, 1)
