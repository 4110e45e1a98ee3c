"""Taggers as C have the words, labels and probabilities of ensue for any text and in any batch."""

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.data.sentences.source import SentenceSource
from ensue.extensions.exporting.c.tagging import MAX_ROWS
from ensue.tasks.labeling.pipeline import LabelingPipeline
from extensions.exporting.c import carried as runs
from extensions.exporting.c.carried import cut
from extensions.exporting.c.printing import files_of
from extensions.exporting.c.taggers import MODELS, TEXTS, WORDS, pipeline_of, sentences_of

TOO_LONG, BYTES = -7, 16
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not runs.COMPILERS, reason="neither gcc nor clang is installed")]


class CWord(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_void_p), ("size", ctypes.c_size_t), ("ends", ctypes.c_int), ("id", ctypes.c_uint32),
        ("label", ctypes.c_char_p), ("probability", ctypes.c_double),
    ]  # fmt: skip


class Carried(runs.Interface):
    returns: ClassVar = {
        "session_size": ctypes.c_size_t, "cut": ctypes.c_int64, "take": ctypes.c_int64, "message": ctypes.c_char_p,
    }  # fmt: skip

    def session(self, words: int) -> Any:
        made = ctypes.create_string_buffer(self.call("session_size", ctypes.c_size_t(words)))
        assert self.call("begin", self.model, made, ctypes.c_size_t(words)) == runs.OK
        return made

    def label(self, session: Any, words: Any, probabilities: int = 1) -> int:
        count = ctypes.c_size_t(len(words))
        return int(self.call("label", self.model, session, words, count, probabilities))

    def cut(self, session: Any, text: bytes, words: Any) -> int:
        sizes = ctypes.c_size_t(len(text)), ctypes.c_size_t(len(words))
        return int(self.call("cut", self.model, session, text, sizes[0], words, sizes[1]))

    def fed(self, pieces: list[bytes], room: int = 999) -> list[list[tuple[str, str]] | int]:
        """Return the words and labels of each line, or its code."""
        session, words, lines = self.session(room), (CWord * 999)(), list[Any]()
        for code in runs.lines_fed(partial(self.call, "feed"), self.model, session, pieces):
            if code < 0:
                lines.append(code)
                continue
            count = self.call("take", self.model, session, words, ctypes.c_size_t(999), 0)
            texts = [ctypes.string_at(word.text, word.size).decode() for word in words[: max(count, 0)]]
            labels = [word.label.decode() for word in words[: max(count, 0)]]
            lines.append(count if count < 0 else list(zip(texts, labels, strict=True)))
        return lines

    def labeled(self, sentences: list[list[str]], room: int = 40) -> list[list[tuple[str, float]]]:
        words = words_in_c(sentences)
        assert self.label(self.session(room), words) == runs.OK
        labels = iter([(word.label.decode(), word.probability) for word in words])
        return [[next(labels) for _ in sentence] for sentence in sentences]

    def words(self, text: str, room: int = 999) -> list[str]:
        words, encoded = (CWord * room)(), text.encode()
        count = self.cut(self.session(room), encoded, words)
        assert 0 <= count <= room
        assert [word.ends for word in words[:count]] == [0] * (count - 1) + [1] * (count > 0)
        return [ctypes.string_at(word.text, word.size).decode() for word in words[:count]]


def words_in_c(sentences: list[list[str]]) -> Any:
    words: Any = (CWord * sum(map(len, sentences)))()
    words.buffers = [ctypes.create_string_buffer(word.encode()) for sentence in sentences for word in sentence]
    ends = [place == len(sentence) for sentence in sentences for place, _ in enumerate(sentence, 1)]
    for word, text, end in zip(words, words.buffers, ends, strict=True):
        word.text, word.size, word.ends = ctypes.addressof(text), len(text) - 1, end
    return words


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LabelingPipeline, Carried]:
    made, name = pipeline_of(request.param), request.param
    return made, Carried(made, tmp_path_factory.mktemp(name), name)


def check_labels(
    both: tuple[LabelingPipeline, Carried], sentences: list[list[str]], room: int = 40, close: float = runs.CLOSE
) -> None:
    labeled = both[1].labeled(sentences, room)
    expected = both[0].predict(sentences, confidence=True)
    for ours, theirs in zip(labeled, expected, strict=True):
        assert [label for label, _ in ours] == theirs.labels
        np.testing.assert_allclose([p for _, p in ours], [word.confidence for word in theirs], rtol=close, atol=close)


def test_labels_and_probabilities_are_those_of_ensue(both: tuple[LabelingPipeline, Carried]) -> None:
    check_labels(both, sentences_of(1))
    check_labels(both, sentences_of(2), room=1000)
    check_labels(both, [["Sea"]])


@pytest.mark.parametrize(("kind", "precision"), [("cnn", "int8"), ("lstm", "int8"), ("vectors", "f16")])
def test_lower_precisions_compute_with_the_rounded_numbers(kind: str, precision: str, tmp_path: Path) -> None:
    made = pipeline_of(kind)
    carried = Carried(made, tmp_path, kind, precision=precision)
    before = made.predict(sentences_of(1), confidence=True)
    runs.rounded(made.model, precision, but="kept_vectors|start|end|pairs|transitions")
    check_labels((made, carried), sentences_of(1), close=runs.NEAR[precision])
    after = made.predict(sentences_of(1), confidence=True)
    assert [word.confidence for one in before for word in one] != [word.confidence for one in after for word in one]


@given(st.lists(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_any_words_have_the_labels_of_ensue(both: tuple[LabelingPipeline, Carried], sentences: list[list[str]]) -> None:
    check_labels(both, sentences)


def test_a_sentence_has_the_same_numbers_in_any_batch_and_thread(both: tuple[LabelingPipeline, Carried]) -> None:
    sentences = sentences_of(3, count=3 * MAX_ROWS)
    together = both[1].labeled(sentences, room=500)
    assert together == [both[1].labeled([sentence])[0] for sentence in sentences] == both[1].labeled(sentences, room=31)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: both[1].labeled(sentences), range(8))) == [together] * 8
    session, alone = both[1].session(31), [pair for sentence in together for pair in sentence]
    for _ in range(2):  # a session has the forms of before
        assert both[1].label(session, words := words_in_c(sentences)) == runs.OK
        assert [(word.label.decode(), word.probability) for word in words] == alone


@given(st.lists(st.sampled_from(TEXTS), max_size=5), st.booleans(), st.lists(st.integers(0, 900), max_size=9))
@settings(max_examples=15, deadline=None)
def test_results_do_not_depend_on_how_the_bytes_are_divided(
    both: tuple[LabelingPipeline, Carried], lines: list[str], is_marked: bool, cuts: list[int]
) -> None:
    content = b"\xef\xbb\xbf" * is_marked + "".join(line + "\r\n" for line in lines).encode()
    expected = [[(word.text, word.label) for word in both[0].predict([line])[0]] for line in lines]
    without_end = content[:-2] if lines and lines[-1] else content
    assert both[1].fed(cut(content, cuts)) == both[1].fed([without_end]) == expected
    long = [b"x" * 33, b"\n", b"x\n" + b"x " * 3, b"x" * 27 + b"\nx"]
    assert [line if isinstance(line, int) else len(line) for line in both[1].fed(long, 2)] == [TOO_LONG, 1, TOO_LONG, 1]
    assert both[1].fed([b"a b c\nx\n"], 2)[0] == TOO_LONG


@pytest.mark.parametrize("splitter", ["treebank", "simple", "whitespace", "characters"])
def test_texts_have_the_words_of_ensue(splitter: str, tmp_path: Path) -> None:
    made = pipeline_of("plain").with_splitter(splitter)
    carried = Carried(made, tmp_path, "cut")
    for text in TEXTS:
        expected = made.predict([text])[0]
        assert carried.words(text) == [word.text for word in expected]


def test_invalid_arguments_and_files_give_a_negative_code(tmp_path: Path) -> None:
    made = pipeline_of("plain")
    carried = Carried(made, tmp_path, "tag")
    content = Path(carried.path.decode()).read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 1
    other = files_of(pipeline_of("crf"), "other")["other.weights"]
    for wrong in (b"", content[:-1], content + b"\0", bytes(flipped), other):
        (tmp_path / "wrong").write_bytes(wrong)
        probe = ctypes.c_void_p()
        assert carried.call("open", ctypes.byref(probe), str(tmp_path / "wrong").encode()) == runs.DAMAGED
        assert probe.value is None
    assert carried.call("open", ctypes.byref(ctypes.c_void_p()), str(tmp_path / "none").encode()) == runs.NO_FILE
    sizes = [carried.call("session_size", ctypes.c_size_t(words)) for words in (0, 1, 2, 1_000_000, 1_000_001, 2**63)]
    assert [size > 0 for size in sizes] == [False, True, True, True, False, False]
    session, words = carried.session(5), words_in_c([["a"] * 5, ["b"] * 6, ["c"]])
    assert carried.label(session, words) == TOO_LONG
    assert carried.label(session, (CWord * 3)(*[CWord(None, 3, 1)] * 3)) == runs.ARGUMENT
    assert carried.label(None, words) == runs.ARGUMENT
    assert carried.label(ctypes.create_string_buffer(len(session)), words) == runs.BAD_STATE
    assert carried.label(session, (CWord * 0)()) == runs.OK
    assert carried.cut(session, b"a" * (5 * BYTES + 1), words) == TOO_LONG
    assert carried.cut(session, b"a " * 10, (CWord * 2)()) == 10
    assert carried.cut(ctypes.create_string_buffer(len(session)), b"a", words) == runs.BAD_STATE
    assert carried.call("begin", carried.model, session, ctypes.c_size_t(0)) == runs.ARGUMENT
    with torch.no_grad():
        made.model.head.projection.bias[1] = torch.nan
    broken = Carried(made, tmp_path / "nan", "nan")
    assert broken.label(broken.session(5), words_in_c([["a"]])) == runs.NUMBERS_FAIL
    assert len({carried.call("message", code) for code in range(-7, 0)}) == 7


@pytest.mark.parametrize(("number", "kind"), list(enumerate(["spans", "cnn", "vectors", "lstm"])))
def test_examples_print_like_the_command_line_without_sanitizer_errors(number: int, kind: str, tmp_path: Path) -> None:
    made = pipeline_of(kind)
    example = runs.Example(
        files_of(made, "tag", embed=kind == "lstm"), tmp_path, runs.COMPILERS[number % len(runs.COMPILERS)]
    )
    lines = [line for line in TEXTS if "\n" not in line]
    lines += [" ".join(sentence) for sentence in sentences_of(5, 400)]
    (tmp_path / "text.txt").write_text("\n".join(lines), newline="\n")
    expected = "".join(made.prediction_lines(str(tmp_path / "text.txt"), format="text"))
    assert example((tmp_path / "text.txt").read_bytes()).decode() == expected
    assert example("\r\n".join(lines).encode()) == expected.encode()
    shown = iter(example("\n".join(lines).encode(), "--probabilities").decode().split("\n"))
    for sentence in made.predict(lines, confidence=True):
        for word in sentence:
            text, label, share = next(shown).rsplit("\t", 2)
            assert (text, label) == (word.text, word.label)
            assert float(share) == pytest.approx(word.confidence, abs=1.1e-5)
        assert next(shown) == ""
    for text in (*runs.ODD_TEXTS, b"'" * 999 + b"\n" + b"1." * 5000):
        example(text)


def test_a_tagger_of_a_treebank_has_the_labels_of_ensue_on_the_test_data(shared_data: Path, tmp_path: Path) -> None:
    """The tagger has words, affixes, shapes, characters and a CRF, and trains for an epoch on the development data."""
    dev, test = (shared_data / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.xz" for part in ("dev", "test"))
    settings = {"train.epochs": 1, "train.validations": 1, "features.characters": "cnn", "data.labels": "upos"}
    made = ensue.train("tag-lstm-crf", train=dev, valid=dev, out=tmp_path / "run", settings=settings, threads=1)
    (note,) = ensue.export_run(tmp_path / "run", tmp_path / "pos", "c")
    assert note.startswith(f"{tmp_path / 'pos'}: 7 files, ")
    runs.compiled(tmp_path / "pos", "-o", "pos", "example.c", "pos.c", options=["-O2"])
    text = "".join(" ".join(sentence.words) + "\n" for sentence in SentenceSource(test))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    completed = subprocess.run([tmp_path / "pos" / "pos"], input=text.encode(), capture_output=True, check=True)
    assert completed.stdout.decode() == "".join(made.prediction_lines(str(tmp_path / "text.txt"), format="text"))
    assert completed.stdout.count(b"\n") > 25_000
