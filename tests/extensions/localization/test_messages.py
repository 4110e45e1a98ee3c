"""Files of gettext and XLIFF as pairs, by samples in their documented forms."""

import time
import tracemalloc
from pathlib import Path

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import PairSource
from ensue.data.row_formats import text_blocks
from ensue.errors import DataError
from written_files import write_file

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


def sides(location: Path) -> list[tuple[str, ...]]:
    assert detect(location).kind == "pairs"
    return [(*pair.sources, *pair.targets) for pair in PairSource(str(location))]


@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-15"])
def test_translated_messages_of_gettext_are_pairs(tmp_path: Path, encoding: str) -> None:
    path = write_file(tmp_path / "de.po", PO.replace("UTF-8", encoding).replace("„%s“", "»%s«"), encoding=encoding)
    assert sides(path) == [
        ('Open "%s"\n', "»%s« öffnen\n"), ("Save", "Speichern"), ("%d file", "%d Datei"), ("%d files", "%d Dateien"),
    ]  # fmt: skip


def test_a_message_about_a_charset_is_no_header(tmp_path: Path) -> None:
    path = write_file(tmp_path / "de.po", 'msgid "charset=latin-1"\nmsgstr "Größe"\n', encoding="utf-8")
    assert sides(path) == [("charset=latin-1", "Größe")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_translated_units_of_xliff_are_pairs(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.replace("UTF-8", encoding), encoding=encoding)
    assert sides(tmp_path / "a.xlf") == [("A bold word", "Ein fettes Wort")]
    (tmp_path / "b.xliff").write_text(XLIFF_2, encoding="utf-8")
    assert sides(tmp_path / "b.xliff") == [("One.", "Eins."), ("Two words.", "Zwei Wörter.")]


def test_placeholders_of_xliff_separate_words_and_untranslatable_units_are_left_out(tmp_path: Path) -> None:
    rows = """
        <trans-unit><source>Hello<x id="1"/>world</source><target>Hallo <x id="1"/>Welt</target></trans-unit>
        <trans-unit translate="no"><source>ACME</source><target>ACME</target></trans-unit>
        <group translate="no"><trans-unit><source>A</source><target>B</target></trans-unit>
        <trans-unit translate="yes"><source>un<g>true</g><ph>br</ph></source><target>f<g>al</g>sch<x/>.</target>
        </trans-unit></group>"""
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2"><file><body>{rows}</body></file></xliff>')
    assert sides(tmp_path / "a.xlf") == [("Hello world", "Hallo Welt"), ("untrue", "falsch.")]


WRONG: dict[str, tuple[str, str, str]] = {
    "no message": ("a.po", 'msgid "a"\nmsgstr "b"\nmsgtr "c"\n', "a.po:3: expected a message"),
    "a message twice": ("a.po", 'msgid "a"\nmsgid "b"\n', "a.po:2: expected a message"),
    "nothing translated": ("a.pot", 'msgid "a"\nmsgstr ""\n', "a.pot: no message with a translation"),
    "cut": ("a.xlf", XLIFF[:400], "a.xlf:.*not XML"),
    "another root": ("a.xlf", "<tmx></tmx>", "a.xlf:1: expected the element xliff, found tmx"),
    "an entity": ("a.xlf", '<!DOCTYPE xliff [<!ENTITY a "aaaa">]><xliff>&a;</xliff>', "entities are not expanded"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_files_are_refused(tmp_path: Path, name: str) -> None:
    file, content, message = WRONG[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(PairSource(str(tmp_path / file)))


@pytest.mark.slow
def test_the_time_of_a_message_grows_linearly_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr ""\n' + '"b"\n' * 400_000)
    start = time.process_time()
    assert list(text_blocks(tmp_path / "a.po", "utf-8"))
    assert time.process_time() - start < 6


@pytest.mark.parametrize("sign", ["b", "\\n"])
def test_the_memory_of_a_long_line_grows_linearly_with_its_length(tmp_path: Path, sign: str) -> None:
    path = write_file(tmp_path / "a.po", f'msgid "a"\nmsgstr "{sign * 50_000}"\n')
    tracemalloc.start()
    try:
        assert len(list(text_blocks(path, "utf-8"))) == 1
        assert tracemalloc.get_traced_memory()[1] < 50 * path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_long_comment_of_a_translation_memory_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    unit = "".join(f'<tuv xml:lang="{name}"><seg>{name}</seg></tuv>' for name in ("en", "de"))
    path.write_text(f"<tmx><body><tu>{unit}</tu><!--{('b' * 70 + chr(10)) * 420_000}--></body></tmx>")
    start = time.process_time()
    assert sides(path) == [("en", "de")]
    assert time.process_time() - start < 10
