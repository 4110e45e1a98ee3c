"""The C of a model has the same characters, words and matches of expressions as Python."""

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.extensions.exporting.c import expressions
from ensue.extensions.exporting.c.printing import read_template
from ensue.text.tokens import SPLITTERS, tokens
from extensions.exporting.c.carried import COMPILERS, library

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")]

HARNESS = """
void has(uint32_t set, uint32_t count, uint8_t *to) {
    for (uint32_t k = 0; k < count; k++) to[k] = (uint8_t)set_has(set, k);
}
uint32_t lowered(const uint32_t *text, uint32_t count, uint32_t *to) {
    uint32_t size = 0;
    for (uint32_t k = 0; k < count; k++) size += lower_at(text, count, k, to + size);
    return size;
}
"""
ODD = (
    "aZ\u00e4\u1e9e\u03a3\u03c3\u03c2\u0130\u0301\u200d\u2019'\u00b7\u1f88 -.,"
    ":;/1\u0663\n\t\x85\xa0\u2028\U0001f1e6\U0001f3fd_@=<>\u017f\u212a"
)
Texts = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]), max_size=40)


def code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("letters")
    sets = expressions.CharacterSets()
    lower = expressions.lowercase_tables(sets)
    sets.add_named(*expressions.PROPERTIES)
    parts = ["#include <stdint.h>", read_template("prelude.h"), sets.text(), lower, read_template("unicode.h"), HARNESS]
    (folder / "letters.c").write_text("\n".join(parts))
    return library(folder, "-Wno-missing-prototypes", "letters.c"), sets


def test_sets_have_the_code_points_that_python_says(letters: Any) -> None:
    compiled, sets = letters
    for name, holds in expressions.PROPERTIES.items():
        to = np.empty(sys.maxunicode + 1, np.uint8)
        compiled.has(sets._names[name], len(to), address(to))
        assert to.tolist() == [bool(holds(chr(point))) for point in range(len(to))]


def lowered(letters: Any, text: str) -> str:
    points, to = code_points(text), np.empty(3 * len(text) + 1, np.uint32)
    return to[: letters[0].lowered(address(points), len(text), address(to))].tobytes().decode("utf-32-le")


def test_every_code_point_is_lowercased_as_by_python(letters: Any) -> None:
    every = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    text = " ".join(every)
    assert lowered(letters, text) == text.lower()
    for around in ("{}\u03a3 ", "A{}\u03a3 ", "A\u03a3{}", "A\u03a3{}A "):  # of a sigma, what it depends on
        text = "".join(map(around.format, every))
        assert lowered(letters, text) == text.lower()


@given(Texts)
@settings(max_examples=200, deadline=None)
@example("")
def test_texts_are_lowercased_as_by_python(letters: Any, text: str) -> None:
    assert lowered(letters, text) == text.lower()


def splitting(folder: Path, splitter: str) -> Any:
    sets = expressions.CharacterSets()
    lower, splits = expressions.lowercase_tables(sets), expressions.splitter_tables(splitter, sets)
    pieces = [read_template(part) for part in ("unicode.h", "expression.h")]
    parts = [sets.text(), lower, *pieces, splits, read_template("splitting.h")]
    wrapped = """
    int words(const uint32_t *text, uint32_t count, span *to) {
        uint32_t *letters = malloc(4 * count + 4);
        choice *choices = malloc((count + EXPRESSION_ROOM) * sizeof *choices);
        uint32_t found = split(text, count, letters, choices, to);
        return free(letters), free(choices), (int)found;
    }
    """
    (folder / "words.c").write_text("\n".join(["#include <stdint.h>", read_template("prelude.h"), *parts, wrapped]))
    return library(folder, "-Wno-missing-prototypes", "words.c")


@pytest.fixture(scope="module", params=SPLITTERS)
def splitter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return request.param, splitting(tmp_path_factory.mktemp("words"), request.param)


def check_words(splitter: Any, text: str) -> None:
    name, compiled = splitter
    points, spans = code_points(text), np.empty((len(text) + 1, 2), np.uint32)
    count = compiled.words(address(points), len(text), address(spans))
    assert spans[:count].tolist() == [[token.start, token.end] for token in tokens(text, name)]


PIECES = [
    "don't", "CAN\u2019T", "gonna", "cannot", "didnt", "dog's", "I'm.", "we've", "rock'n'roll", "non-smoker", "re-",
    "AT&T", "a&b", "U.S.", "U.S.A", "Mr.", "sept.", "A. B", "a. B", "555-1234", "212-555-1234x", "1,000.5", "3rd",
    "1980s",
    "5pm", "10:30am", ".5", "x.5", "http://a.b/c_d?e=f).", "www.x.y,", "a.b+c@d.e.fr", "x@y", "foo.com", "a.b.comx",
    ":-)", ";D", "=(x", "---", "``", "''", "...", "!?", "<unk>", "<un<unk>", "e\u0301te\u0301", "\u0915\u094d\u0937",
    "\U0001f1e6\U0001f1e7\U0001f1e8", "\U0001f468\u200d\U0001f469", "\U0001f44d\U0001f3fd", "n\u2019t", "\u017ft",
    "1.1.1.1",
    " ", "\n", "\t", "\xa0", "\u2028", "x", "1", "'", "-", "\u4e2d\u6587", "\u0663.\u0664", "co", "ex-", "_", "wo",
    "nt",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | Texts)
@settings(max_examples=300, deadline=None)
@example("")
@example("1." * 3000 + "x")
@example("a'b" * 2000)
@example("A." * 3000)
@example("-" * 5000)
@example("a-b." * 2000)
@example("\u0301" * 4000)
def test_words_are_those_of_ensue(splitter: Any, text: str) -> None:
    check_words(splitter, text)


def test_unsupported_regular_expressions_are_refused() -> None:
    for expression in (r"(a|b)c\1", r"(?:a*)*", r"\bx", r"(?:ab)+?"):
        with pytest.raises(ValueError, match="expression"):
            expressions.Program(expression, expressions.CharacterSets())
