"""Files of annotation tools, by samples in their documented forms, as pairs, sentences and texts."""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.row_formats import text_blocks
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError
from ensue.recipe import DataRecipe
from ensue.tasks.contract.data_set import fingerprints
from ensue.text.schemes import Span

TEXT = "Anna Novak sees\nLima 😀 Rome.\n\nNothing here.\n"
BRAT = (
    "T1\tPER 0 10\tAnna Novak\nT2\tLOC 16 20;21 22\tLima 😀\nT3\tLOC 23 27\tRome\n"
    "R1\tsees Arg1:T1 Arg2:T2\n#1\tAnnotatorNotes T1\ta note\n"
)


def task(text: str, *results: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"text": text}, "annotations": [{"result": list(results)}]}


def region(start: int, end: int, text: str, label: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"type": "labels", "from_name": "ner", "to_name": "text", "value": value}


def sides(location: Path) -> list[tuple[str, ...]]:
    assert detect(location).kind == "pairs"
    return [(*pair.sources, *pair.targets) for pair in PairSource(str(location))]


def tagged(location: Path) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    assert detect(location).kind == "sentences"
    source = SentenceSource(location)
    return [(sentence.words, source.format.labels(sentence)) for sentence in source]


def test_a_folder_of_brat_is_read(tmp_path: Path) -> None:
    """Offsets count from the start of the text. A span across a line end is clipped to its first line."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(TEXT, encoding="utf-8")
        (tmp_path / f"{name}.ann").write_text(BRAT, encoding="utf-8")
    (tmp_path / "annotation.conf").write_text("[entities]\nPER\n")
    first = (("Anna", "Novak", "sees"), ("B-PER", "I-PER", "O"))
    second = (("Lima", "😀", "Rome", "."), ("B-LOC", "I-LOC", "B-LOC", "O"))
    result = tagged(tmp_path)
    assert result == [first, second, (("Nothing", "here", "."), ("O",) * 3)] * 2
    (tmp_path / "b.ann").write_text("T1\tPER 11 15;16 20\tsees Lima\n")
    assert tagged(tmp_path)[3:5] == [(first[0], ("O", "O", "B-PER")), (second[0], ("O",) * 4)]
    (_, _, _, clipped, _, _) = source = SentenceSource(tmp_path)
    assert source.format.misaligned(clipped) == (Span("PER", 2, 3),)


def test_several_files_of_brat_with_nested_spans_are_one_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("Bank of Lima\n", encoding="utf-8")
        (tmp_path / f"{name}.ann").write_text("T1\tORG 0 12\tBank of Lima\nT2\tLOC 8 12\tLima\n", encoding="utf-8")
    files = LabeledFiles(str(tmp_path), "utf-8", nested=True)
    assert len([*files]) == 2
    assert "".join(files.as_one(["{}\n"] * 2, are_objects=True)) == "{}\n{}\n"


OVERLAPPING = (
    "T1\tORG 0 12\tBank of Lima\nT2\tLOC 8 12\tLima\nT3\tNP 0 17;18 22\tBank of Lima grew Oslo\nT4\tLOC 18 22\tOslo\n"
)


def test_overlapping_spans_of_brat_are_read(tmp_path: Path) -> None:
    """A span of several lines is clipped to its first line, after shorter spans that begin later."""
    (tmp_path / "a.txt").write_text("Bank of Lima grew\nOslo too.\nNothing.\n")
    (tmp_path / "a.ann").write_text(OVERLAPPING)
    source = SentenceSource(tmp_path, nested=True)
    assert [(sentence.words, source.format.labels(sentence)) for sentence in source] == [
        (("Bank", "of", "Lima", "grew"), ("B-NP|B-ORG", "I-NP|I-ORG", "B-LOC|I-NP|I-ORG", "I-NP")),
        (("Oslo", "too", "."), ("B-LOC", "O", "O")),
        (("Nothing", "."), ("O", "O")),
    ]
    (tmp_path / "a.ann").write_text(OVERLAPPING + "T5\tNP 0 4;8 12\tBank Lima\n")
    with pytest.raises(DataError, match=r"a.ann:5: a span with gaps"):
        SentenceSource(tmp_path, nested=True)
    (tmp_path / "a.ann").write_text(OVERLAPPING)
    with pytest.raises(DataError, match=r"a.ann:3: the span overlaps the span of line 1; .* tag-nested learns"):
        SentenceSource(tmp_path)


def test_text_files_beside_annotations_count_as_data(tmp_path: Path) -> None:
    """The digest of a file includes its text, and running text is read from all files."""
    (tmp_path / "a.txt").write_text("Lima grew\n")
    (tmp_path / "a.ann").write_text("T1\tLOC 0 4\n")
    result = []
    for text in ("Lima grew\n", "Oslo grew\n"):
        (tmp_path / "a.txt").write_text(text)
        result.append(
            (SentenceSource(tmp_path).files.fingerprint(), fingerprints(DataRecipe(test=str(tmp_path)))["test"])
        )
    assert all(one != two for one, two in zip(*result, strict=True))
    assert "".join(TextSource(tmp_path).chunks()) == "T1\tLOC 0 4\nOslo grew\n"


WRONG: dict[str, tuple[str, str, str]] = {
    "spans overlap": ("a.ann", "T1\tA 0 5\nT2\tB 3 6\n", "a.ann:2: the span overlaps the span of line 1"),
    "span with a gap": ("a.ann", "T1\tA 0 4;11 15\n", "a.ann:1: a span with gaps"),
    "pieces of a span": ("a.ann", "T1\tA 0 4;2 5\n", "a.ann:1: the fragments of the span are not in order"),
    "span outside": ("a.ann", "T1\tA 0 99\n", "a.ann:1: the span 0 99 is not in the text"),
    "another unit": ("a.ann", "T1\tA 1 5\tAnna\n", "'nna ' in the text; expected 'Anna', which is at 0 4"),
    "no span": ("a.ann", "T1 A 0 5\n", "a.ann:1: expected a span"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused(tmp_path: Path, name: str) -> None:
    file, content, message = WRONG[name]
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(SentenceSource(str(tmp_path / file)))


def crossing(count: int) -> tuple[str, str]:
    """Return spans that each cross a line end, so that all lines are one sentence."""
    spans = (f"T{n}\tA {3 * n + 1} {3 * n + 4}\n" for n in range(count - 1))
    return "ab\n" * count, "".join(spans)


def in_pieces(count: int) -> tuple[str, str]:
    """Return equal spans of two pieces with many blanks between them."""
    return f"a{' ' * 10**6}b", f"T1\tA 0 1;{10**6 + 1} {10**6 + 2}\n" * count


def tasks(text: str, spans: list[dict[str, Any]]) -> str:
    """Return a short task, by which the format is detected, and a long one."""
    return json.dumps([task("a"), task(text, *spans)])


HOSTILE: dict[str, tuple[str, str, str, str]] = {
    "spans across lines": ("a.ann", *reversed(crossing(30_000)), ""),
    "spans in pieces": ("a.ann", *reversed(in_pieces(20_000)), "overlaps the span of line 1"),
    "spans of a browser": (
        "a.json", tasks("😀" + "a" * 10**6, [region(2 * n, 2 * n + 1, "b", "A") for n in range(1, 10_000)]), "", "",
    ),
    "spans of all": ("a.json", tasks("a" * 10**6, [region(n, 10**6, "b", "A") for n in range(30_000)]), "", ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_crossing_spans_are_read_in_linear_time(tmp_path: Path, name: str) -> None:
    file, content, text, message = HOSTILE[name]
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / file).write_text(content, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(DataError, match=message) if message else nullcontext():
        assert list(text_blocks(tmp_path / file, "utf-8"))
    if file.endswith(".ann") and message:
        assert list(text_blocks(tmp_path / file, "utf-8", nested=True))
    assert time.process_time() - start < 6


def test_a_docbin_of_spacy_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.spacy"
    path.write_bytes(b"no DocBin")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(EnsueError, match="needs the package spacy: pip install spacy"):
        SentenceSource(path)
    monkeypatch.undo()
    spacy = pytest.importorskip("spacy")
    with pytest.raises(DataError, match="cannot be read by spacy"):
        SentenceSource(path)
    from spacy.tokens import Doc, DocBin, Span  # noqa: PLC0415 (not a dependency)

    vocab = spacy.blank("en").vocab
    doc = Doc(vocab, ["Anna", "left", ".", "Bo", "came"], sent_starts=[True, False, False, True, False])
    doc.ents = [Span(doc, 0, 1, "PER"), Span(doc, 3, 4, "PER")]
    DocBin(docs=[doc]).to_disk(path)
    assert tagged(path) == [(("Anna", "left", "."), ("B-PER", "O", "O")), (("Bo", "came"), ("B-PER", "O"))]
    doc = Doc(vocab, ["good"], spaces=[False])
    doc.cats = {"pos": 1.0, "neg": 0.0}
    DocBin(docs=[doc]).to_disk(path)
    assert [(d.texts, d.labels) for d in DocumentSource(str(path))] == [(("good",), ("pos",))]
