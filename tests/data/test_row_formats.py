"""Files of translators and of annotation tools, by samples in their documented forms, as pairs, sentences and texts."""

import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ensue.data.detection.kind import take
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.row_formats import text_blocks
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError
from ensue.recipe import DataRecipe
from ensue.tasks.contract.data_set import fingerprints
from ensue.text.schemes import Span

PO = r"""# Translations of a program.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: source/main.c:10
#, c-format
msgid "Open \"%s\"\n"
msgstr ""
"„%s“ "
"öffnen\n"

#, fuzzy
#| msgid "Close"
msgid "Close it"
msgstr "Schließen"
msgctxt "menu"
msgid "Save"
msgstr "Speichern"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "not yet"
msgstr ""

#~ msgid "gone"
#~ msgstr "weg"
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a.html" source-language="en" target-language="de" datatype="html"><body>
<trans-unit id="1"><source>A <g id="b">bold</g> word<ph id="2">&lt;br/&gt;</ph></source>
<target state="final">Ein <g id="b">fettes</g> Wort<ph id="2">&lt;br/&gt;</ph></target>
<alt-trans><source>A word</source><target>Ein Wort</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Not yet</source><target state="needs-translation">Not yet</target></trans-unit>
<trans-unit id="3"><source>None</source></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><originalData><data id="d">&lt;b></data></originalData>
<segment state="translated"><source>One.</source><target>Eins.</target></segment>
<ignorable><source> </source></ignorable>
<segment><source>Two <pc id="1" dataRefStart="d">words</pc>.</source><target>Zwei Wörter.</target></segment>
<segment state="initial"><source>Three.</source><target>Three.</target></segment></unit></file></xliff>
"""
TEXT = "Anna Novak sees\nLima 😀 Rome.\n\nNothing here.\n"
BRAT = (
    "T1\tPER 0 10\tAnna Novak\nT2\tLOC 16 20;21 22\tLima 😀\nT3\tLOC 23 27\tRome\n"
    "R1\tsees Arg1:T1 Arg2:T2\n#1\tAnnotatorNotes T1\ta note\n"
)


def task(text: str, *results: dict[str, Any], canceled: bool = False) -> dict[str, Any]:
    made = {"id": 5, "was_cancelled": canceled, "ground_truth": False, "result": list(results)}
    return {"id": 1, "data": {"text": text}, "annotations": [made], "predictions": [], "project": 1}


def choice(*labels: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "mood", "to_name": "text", "value": {"choices": list(labels)}}


def region(start: int, end: int, text: str, label: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"type": "labels", "from_name": "ner", "to_name": "text", "value": value}


def sides(location: Path) -> list[tuple[str, ...]]:
    assert take(location).kind == "pairs"
    return [(*pair.sources, *pair.targets) for pair in PairSource(str(location))]


def tagged(location: Path) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    assert take(location).kind == "sentences"
    source = SentenceSource(location)
    return [(sentence.words, source.format.labels(sentence)) for sentence in source]


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-15"])
def test_messages_of_gettext(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "de.po"
    path.write_text(PO.replace("UTF-8", encoding).replace("„%s“", "»%s«"), encoding=encoding)
    assert sides(path) == [
        ('Open "%s"\n', "»%s« öffnen\n"), ("Save", "Speichern"), ("%d file", "%d Datei"), ("%d files", "%d Dateien"),
    ]  # fmt: skip


def test_a_message_about_a_charset_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "de.po"
    path.write_text('msgid "charset=latin-1"\nmsgstr "Größe"\n', encoding="utf-8")
    assert sides(path) == [("charset=latin-1", "Größe")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_units_of_xliff(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.replace("UTF-8", encoding), encoding=encoding)
    assert sides(tmp_path / "a.xlf") == [("A bold word", "Ein fettes Wort")]
    (tmp_path / "b.xliff").write_text(XLIFF_2, encoding="utf-8")
    assert sides(tmp_path / "b.xliff") == [("One.", "Eins."), ("Two words.", "Zwei Wörter.")]


def test_placeholders_of_xliff_join_no_words_and_what_is_not_translated_is_no_row(tmp_path: Path) -> None:
    rows = """
        <trans-unit><source>Hello<x id="1"/>world</source><target>Hallo <x id="1"/>Welt</target></trans-unit>
        <trans-unit translate="no"><source>ACME</source><target>ACME</target></trans-unit>
        <group translate="no"><trans-unit><source>A</source><target>B</target></trans-unit>
        <trans-unit translate="yes"><source>un<g>true</g><ph>br</ph></source><target>f<g>al</g>sch<x/>.</target>
        </trans-unit></group>"""
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2"><file><body>{rows}</body></file></xliff>')
    assert sides(tmp_path / "a.xlf") == [("Hello world", "Hallo Welt"), ("untrue", "falsch.")]


def test_folder_of_brat(tmp_path: Path) -> None:
    """Offsets count the whole text. A span across a line end is clipped to its first line, as lines are read alone."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(TEXT, encoding="utf-8")
        (tmp_path / f"{name}.ann").write_text(BRAT, encoding="utf-8")
    (tmp_path / "annotation.conf").write_text("[entities]\nPER\n")
    first = (("Anna", "Novak", "sees"), ("B-PER", "I-PER", "O"))
    second = (("Lima", "😀", "Rome", "."), ("B-LOC", "I-LOC", "B-LOC", "O"))
    found = tagged(tmp_path)
    assert found == [first, second, (("Nothing", "here", "."), ("O",) * 3)] * 2
    (tmp_path / "b.ann").write_text("T1\tPER 11 15;16 20\tsees Lima\n")
    assert tagged(tmp_path)[3:5] == [(first[0], ("O", "O", "B-PER")), (second[0], ("O",) * 4)]
    (_, _, _, clipped, _, _) = source = SentenceSource(tmp_path)
    assert source.format.misaligned(clipped) == (Span("PER", 2, 3),)


OVERLAPPING = "T1\tORG 0 12\tBank of Lima\nT2\tLOC 8 12\tLima\nT3\tNP 0 17;18 22\tx\nT4\tLOC 18 22\tOslo\n"


def test_spans_of_brat_overlap_where_they_may(tmp_path: Path) -> None:
    """A span of several lines is clipped to its first one, behind shorter ones that begin later."""
    (tmp_path / "a.txt").write_text("Bank of Lima grew\nOslo too.\nNothing.\n")
    (tmp_path / "a.ann").write_text(OVERLAPPING)
    source = SentenceSource(tmp_path, nested=True)
    assert [(sentence.words, source.format.labels(sentence)) for sentence in source] == [
        (("Bank", "of", "Lima", "grew"), ("B-NP|B-ORG", "I-NP|I-ORG", "B-LOC|I-NP|I-ORG", "I-NP")),
        (("Oslo", "too", "."), ("B-LOC", "O", "O")),
        (("Nothing", "."), ("O", "O")),
    ]
    (tmp_path / "a.ann").write_text(OVERLAPPING + "T5\tNP 0 4;8 12\tx\n")
    with pytest.raises(DataError, match=r"a.ann:5: a span with gaps"):
        SentenceSource(tmp_path, nested=True)
    (tmp_path / "a.ann").write_text(OVERLAPPING)
    with pytest.raises(DataError, match=r"a.ann:3: the span overlaps that of line 1; .* tag-nested learns"):
        SentenceSource(tmp_path)


def test_the_text_beside_annotations_counts_as_data(tmp_path: Path) -> None:
    """What is kept of a file is of its text too; running text is read from all files."""
    (tmp_path / "a.txt").write_text("Lima grew\n")
    (tmp_path / "a.ann").write_text("T1\tLOC 0 4\tLima\n")
    found = []
    for text in ("Lima grew\n", "Oslo grew\n"):
        (tmp_path / "a.txt").write_text(text)
        found.append(
            (SentenceSource(tmp_path).files.fingerprint(), fingerprints(DataRecipe(test=str(tmp_path)))["test"])
        )
    assert all(one != two for one, two in zip(*found, strict=True))
    assert "".join(TextSource(tmp_path).chunks()) == "T1\tLOC 0 4\tLima\nOslo grew\n"


@pytest.mark.filterwarnings("ignore:.*tasks left out")
def test_export_of_label_studio(tmp_path: Path) -> None:
    """A browser counts the sign behind a smile one further than a code point."""
    path = tmp_path / "spans.json"
    smile = task("😀 Lima, Rome", region(3, 7, "Lima", "LOC"), region(8, 12, "Rome", "LOC"))
    path.write_text(json.dumps([smile, task("none"), task("no", canceled=True)], indent=1))
    assert tagged(path) == [
        (("😀", "Lima", ",", "Rome"), ("O", "B-LOC", "O", "B-LOC")), (("none",), ("O",)),
    ]  # fmt: skip
    path.write_text(json.dumps([task("good", choice("pos")), task("so so", choice("pos", "neg"))]))
    assert take(path).kind == "texts"
    assert [(d.texts, d.labels) for d in DocumentSource(str(path))] == [
        (("good",), ("pos",)), (("so so",), ("pos", "neg")),
    ]  # fmt: skip
    answer = {"type": "textarea", "from_name": "translation", "to_name": "text", "value": {"text": ["gut"]}}
    path.write_text(json.dumps([task("good", answer)]))
    assert sides(path) == [("good", "gut")]


WRONG: dict[str, tuple[str, str, str]] = {
    "no message": ("a.po", 'msgid "a"\nmsgstr "b"\nmsgtr "c"\n', "a.po:3: expected a message"),
    "a message twice": ("a.po", 'msgid "a"\nmsgid "b"\n', "a.po:2: expected a message"),
    "nothing translated": ("a.pot", 'msgid "a"\nmsgstr ""\n', "a.pot: no message with a translation"),
    "cut": ("a.xlf", XLIFF[:400], "a.xlf:.*not XML"),
    "another root": ("a.xlf", "<tmx></tmx>", "a.xlf:1: expected the element xliff, found tmx"),
    "an entity": ("a.xlf", '<!DOCTYPE xliff [<!ENTITY a "aaaa">]><xliff>&a;</xliff>', "entities are not expanded"),
    "spans overlap": ("a.ann", "T1\tA 0 5\tx\nT2\tB 3 6\tx\n", "a.ann:2: the span overlaps that of line 1"),
    "span with a gap": ("a.ann", "T1\tA 0 4;11 15\tx\n", "a.ann:1: a span with gaps"),
    "pieces of a span": ("a.ann", "T1\tA 0 4;2 5\tx\n", "a.ann:1: the pieces of the span are not in order"),
    "span outside": ("a.ann", "T1\tA 0 99\tx\n", "a.ann:1: the span 0 99 is not in the text"),
    "no span": ("a.ann", "T1 A 0 5\n", "a.ann:1: expected a span"),
    "no task": ("a.json", json.dumps([task("a"), {"data": {}}]), "a.json:1: expected a task of Label Studio"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(tmp_path: Path, name: str) -> None:
    file, content, message = WRONG[name]
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / file).write_text(content, encoding="utf-8")
    reader: Callable[[str], Any] = PairSource if file.startswith(("a.po", "a.x")) else SentenceSource
    with pytest.raises(DataError, match=message):
        list(reader(str(tmp_path / file)))


def crossing(count: int) -> tuple[str, str]:
    """Spans that each go across a line end: all lines are one sentence."""
    spans = (f"T{n}\tA {3 * n + 1} {3 * n + 4}\n" for n in range(count - 1))
    return "ab\n" * count, "".join(spans)


def in_pieces(count: int) -> tuple[str, str]:
    """Spans of two pieces with many blanks between them, all of them in one place."""
    return f"a{' ' * 10**6}b", f"T1\tA 0 1;{10**6 + 1} {10**6 + 2}\n" * count


def tasks(text: str, spans: list[dict[str, Any]]) -> str:
    """A short task, by which the format is known, and a long one."""
    return json.dumps([task("a"), task(text, *spans)])


HOSTILE: dict[str, tuple[str, str, str, str]] = {
    "lines of a message": ("a.po", 'msgid "a"\nmsgstr ""\n' + '"b"\n' * 400_000, "", ""),
    "spans across lines": ("a.ann", *reversed(crossing(30_000)), ""),
    "spans in pieces": ("a.ann", *reversed(in_pieces(20_000)), "overlaps that of line 1"),
    "spans of a browser": (
        "a.json",
        tasks("😀" + "a" * 10**6, [region(2 * n, 2 * n + 1, "b", "A") for n in range(1, 10_000)]),
        "",
        "",
    ),
    "spans of all": ("a.json", tasks("a" * 10**6, [region(n, 10**6, "b", "A") for n in range(30_000)]), "", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_would_take_the_square_of_their_length(tmp_path: Path, name: str) -> None:
    file, content, text, message = HOSTILE[name]
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / file).write_text(content, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(DataError, match=message) if message else nullcontext():
        assert list(text_blocks(tmp_path / file, "utf-8"))
    if file.endswith(".ann") and message:
        assert list(text_blocks(tmp_path / file, "utf-8", nested=True))
    assert time.process_time() - start < 6


@pytest.mark.parametrize("sign", ["b", "\\n"])
def test_a_long_line_of_messages_takes_memory_with_its_length(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "a.po"
    path.write_text(f'msgid "a"\nmsgstr "{sign * 50_000}"\n')
    tracemalloc.start()
    try:
        assert len(list(text_blocks(path, "utf-8"))) == 1
        assert tracemalloc.get_traced_memory()[1] < 50 * path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_comment_of_a_translation_memory_is_not_looked_through_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    unit = "".join(f'<tuv xml:lang="{name}"><seg>{name}</seg></tuv>' for name in ("en", "de"))
    path.write_text(f"<tmx><body><tu>{unit}</tu><!--{('b' * 70 + chr(10)) * 420_000}--></body></tmx>")
    start = time.process_time()
    assert sides(path) == [("en", "de")]
    assert time.process_time() - start < 10


def test_docbin_of_spacy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
