"""Classifiers as C have the labels and probabilities of ensue for any texts."""

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.data.examples import Document
from ensue.tasks.classification.pipeline import ClassificationPipeline
from extensions.exporting.c import carried as runs
from extensions.exporting.c.classifiers import KINDS, SIGNS, classifier
from extensions.exporting.c.printing import files_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not runs.COMPILERS, reason="neither gcc nor clang is installed")]
TOO_LONG, NO_TAB = -7, -8
Texts = st.lists(st.sampled_from(SIGNS), max_size=14).map(" ".join) | st.text(max_size=20)


class CText(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class CarriedClassifier(runs.Interface):
    returns: ClassVar = {
        "memory": ctypes.c_size_t, "session_size": ctypes.c_size_t,
        "label": ctypes.c_char_p, "message": ctypes.c_char_p,
    }  # fmt: skip

    def __init__(self, pipeline: ClassificationPipeline, folder: Path, name: str, **options: Any) -> None:
        super().__init__(pipeline, folder, name, **options)
        self.count, self.texts = len(pipeline.labels), pipeline.num_texts
        self.names = [self.label(k).decode() for k in range(self.count)]

    def label(self, number: int) -> Any:
        return self.call("label", self.model, number)

    def classified(self, *texts: bytes, short: int = 0) -> tuple[int, list[float]]:
        """Return the code and the probabilities."""
        size = short or self.call("memory", ctypes.c_size_t(4 * sum(map(len, texts))))
        memory, shares = ctypes.create_string_buffer(size), (ctypes.c_float * self.count)()
        inputs = (CText * len(texts))(*((ctypes.cast(text, ctypes.c_void_p), len(text)) for text in texts))
        return self.call("classify", self.model, memory, ctypes.c_size_t(size), inputs, shares), list(shares)

    def session(self, size: int) -> Any:
        made = ctypes.create_string_buffer(b"\xff" * self.call("session_size", ctypes.c_size_t(size)))
        assert self.call("begin", self.model, made, ctypes.c_size_t(size)) == runs.OK
        return made

    def fed(self, pieces: list[bytes], size: int = 400) -> list[tuple[int, list[bytes], list[float]]]:
        """Return the code of NAME_feed or NAME_classify, the texts and the probabilities of each line."""
        session, texts, results = self.session(size), (CText * self.texts)(), []
        for code in runs.lines_fed(
            lambda *arguments: self.call("feed", *arguments, texts), self.model, session, pieces
        ):
            read = [ctypes.string_at(text.bytes, text.size) for text in texts] if code == 1 else []
            line_code, shares = self.classified(*read) if read else (code, [])
            results.append((line_code, read, shares))
        return results

    def chosen(self, shares: list[float], at_least: float = 0) -> list[str]:
        ids = (ctypes.c_uint32 * self.count)()
        inputs = (ctypes.c_float * self.count)(*shares)
        count = self.call("choose", self.model, inputs, ctypes.c_double(at_least), ids)
        return [self.names[k] for k in ids[:count]]


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pipeline, name = classifier(**KINDS[request.param]), request.param
    return pipeline, CarriedClassifier(pipeline, tmp_path_factory.mktemp(name), name)


def check(both: Any, *texts: bytes, close: float = runs.CLOSE) -> None:
    pipeline, carried = both
    code, shares = carried.classified(*texts)
    decoded = [text.decode("utf-8", "replace") for text in texts]
    (answer,) = pipeline.predict([decoded[0] if len(decoded) == 1 else (decoded[0], decoded[1])])
    np.testing.assert_allclose(shares, list(answer.probabilities.values()), atol=close)
    assert code == sum(map(len, pipeline.text_reader.read(Document(answer.texts))[0]))
    ranked = np.sort(shares)
    if (np.diff(ranked) > close).all() and (np.abs(ranked - 0.4) > close).all():
        assert tuple(carried.chosen(shares)) == answer.labels


@given(one=Texts, other=Texts)
@settings(max_examples=80, deadline=None)
@example(one="", other="")
@example(one="the sea " * 300, other="sea")
@example(one="A\u03a3 " * 9 + "'\u03a3", other="\u0663.5 12")
def test_texts_have_the_probabilities_of_ensue(both: Any, one: str, other: str) -> None:
    check(both, *(text.encode("utf-8", "replace") for text in (one, other)[: both[1].texts]))


@pytest.mark.parametrize(("kind", "precision"), [("both_ways", "int8"), ("pair_of_layers", "int8"), ("pair", "f16")])
def test_lower_precisions_compute_with_the_rounded_numbers(kind: str, precision: str, tmp_path: Path) -> None:
    pipeline = classifier(**KINDS[kind])
    carried, bag = CarriedClassifier(pipeline, tmp_path, kind, precision=precision), pipeline.model.bag
    runs.rounded(pipeline.model, precision, but="^bag|vector.weight")
    if bag is not None:  # by columns
        table = torch.cat([bag.ratio.unsqueeze(1), bag.weight], dim=1)[1:].detach().numpy()
        left = torch.from_numpy(runs.twin(table, precision, 0))
        bag.ratio[1:], bag.weight.data[1:] = left[:, 0], left[:, 1:]
    for k in range(9):
        texts = [" ".join(SIGNS[k : k + 14]), " ".join(SIGNS[k % 4 : 9])]
        check((pipeline, carried), *(text.encode() for text in texts[: carried.texts]), close=runs.NEAR[precision])


def test_sums_over_very_many_words_are_exact(tmp_path: Path) -> None:
    layers = {"kind": "gru", "d_model": 6, "bidirectional": False}
    pipeline = classifier(ngrams=0, model=layers, features={"d_words": 3}, head={"pooling": ["mean"]})
    carried, text = CarriedClassifier(pipeline, tmp_path, "sums"), "the sea was calm " * 20_000
    (answer,) = pipeline.predict([text])
    probabilities = carried.classified(text.encode())[1]
    np.testing.assert_allclose(probabilities, list(answer.probabilities.values()), atol=1e-6)


@given(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"\xe2\x82", b"\xac", b"\xf0\x9f", b"sea ", b"\xc0"])).map(b"".join),
)
@settings(max_examples=40, deadline=None)
def test_invalid_utf8_is_replaced_as_in_python(both: Any, one: bytes, other: bytes) -> None:
    check(both, *(one, other)[: both[1].texts])


@given(st.lists(Texts, max_size=5), st.booleans(), st.lists(st.integers(0, 500), max_size=9))
@settings(max_examples=25, deadline=None)
@example(["", "x" * 500, "a " * 200, "sea"], False, [499, 501])
def test_results_do_not_depend_on_how_the_bytes_are_divided(
    both: Any, texts: list[str], is_marked: bool, places: list[int]
) -> None:
    _, carried = both
    lines = [re.sub("[\r\n\t]", " ", text).encode("utf-8", "replace") for text in texts]
    fields = [[line, *[b"the sea"] * (carried.texts - 1)] for line in lines]
    content = b"\xef\xbb\xbf" * is_marked + b"".join(b"\t".join(line) + b"\r\n" for line in fields)
    expected = [(*carried.classified(*line), line) if len(b"\t".join(line)) <= 400 else TOO_LONG for line in fields]
    fed = carried.fed(runs.cut(content, places))
    assert fed == carried.fed([content]) == carried.fed([content[:-2] if fields and fields[-1] != [b""] else content])
    assert [(code, shares, read) if code >= 0 else code for code, read, shares in fed] == expected


@given(st.lists(st.integers(0, 20), min_size=5, max_size=5), st.sampled_from([0, 0.35, 0.4, 0.45, 1]))
@settings(max_examples=80, deadline=None)
def test_the_labels_are_those_that_ensue_chooses(both: Any, shares: list[int], at_least: float) -> None:
    pipeline, carried = both
    ratios = np.array(shares[: carried.count], np.float32) / 20
    assert tuple(carried.chosen(ratios.tolist(), at_least)) == pipeline.labels.choose(ratios, at_least=at_least)


def test_threads_share_a_model(both: Any) -> None:
    texts = [[" ".join(SIGNS[k % 7 : k % 23]).encode()] * both[1].texts for k in range(200)]
    alone = [both[1].classified(*some) for some in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda some: both[1].classified(*some), texts)) == alone


def test_invalid_arguments_and_files_give_a_negative_code(both: Any, tmp_path: Path) -> None:
    _, carried = both
    texts = [b"the sea"] * carried.texts
    assert carried.classified(*texts, short=900)[0] == TOO_LONG
    least = carried.call("memory", ctypes.c_size_t(7 * carried.texts))
    assert carried.classified(*texts, short=least)[0] == 2 * carried.texts
    assert carried.call("memory", ctypes.c_size_t(2**64 - 1)) == 0
    null = (CText * 2)(CText(None, 3), CText(None, 0))
    memory, size, output = ctypes.create_string_buffer(9999), ctypes.c_size_t(9999), (ctypes.c_float * carried.count)()
    huge = (CText * 2)(*[CText(ctypes.addressof(memory), 2**63)] * 2)
    assert carried.call("classify", carried.model, memory, size, null, output) == runs.ARGUMENT
    assert carried.call("classify", carried.model, memory, size, huge, output) == TOO_LONG
    assert carried.call("classify", None, memory, size, null, output) == runs.ARGUMENT
    assert carried.call("classify", carried.model, None, size, null, output) == runs.ARGUMENT
    assert carried.call("choose", carried.model, None, ctypes.c_double(0), output) == runs.ARGUMENT
    assert carried.label(carried.count) is None
    sizes = [carried.call("session_size", ctypes.c_size_t(count)) for count in (0, 9, 2**28 + 1, 2**64 - 1)]
    assert [held > 0 for held in sizes] == [True, True, False, False]
    session, texts = carried.session(9), (CText * 2)()
    assert carried.call("feed", carried.model, session, None, size, ctypes.byref(size), texts) == runs.ARGUMENT
    assert (
        carried.call("feed", carried.model, session, b"", ctypes.c_size_t(0), ctypes.byref(size), None) == runs.ARGUMENT
    )
    assert carried.call("begin", carried.model, session, ctypes.c_size_t(2**40)) == runs.ARGUMENT
    other = ctypes.create_string_buffer(len(session))
    assert (
        carried.call("feed", carried.model, other, b"", ctypes.c_size_t(0), ctypes.byref(size), texts) == runs.BAD_STATE
    )
    if carried.texts == 2:
        assert [line[:2] for line in carried.fed([b"a\n", b"a\tsea\tc\n"], 9)] == [(NO_TAB, []), (2, [b"a", b"sea"])]
        assert carried.call("message", NO_TAB) == b"a line has no tab between its two texts"
    content = bytearray((carried.folder / f"{carried.name}.weights").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "wrong").write_bytes(content)
    assert carried.call("open", ctypes.byref(ctypes.c_void_p()), str(tmp_path / "wrong").encode()) == runs.DAMAGED


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    pipeline = classifier()
    with torch.no_grad():
        pipeline.model.bag.bias[1] = torch.nan
    assert CarriedClassifier(pipeline, tmp_path, "nan").classified(b"sea")[0] == runs.NUMBERS_FAIL


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")  # counts of empty and unknown texts
@pytest.mark.parametrize("kind", KINDS)
def test_examples_print_like_the_command_line_without_sanitizer_errors(kind: str, tmp_path: Path) -> None:
    pipeline = classifier(**KINDS[kind])
    files = files_of(pipeline, "sea", embed=kind in ("one", "pair"))
    example = runs.Example(files, tmp_path, runs.COMPILERS[[*KINDS].index(kind) % len(runs.COMPILERS)])
    for least in ("0,9", "2", "nan", ""):
        assert example(b"sea\tsea\n", "--at-least", least, code=2).startswith(b"usage: sea ")
    if pipeline.num_texts == 2:
        assert example(b"a\tb\n\n", code=2) == b"sea: line 2 has no tab between its two texts\n"
    texts = [
        "The sea was calm.", "", "ΟΔΟΣ don't 12 99", "new", "\u0130 e\u0301 \U0001f600 the the sea sea", "x" * 9000,
    ]  # fmt: skip
    if pipeline.num_texts == 2:
        (tmp_path / "texts.tsv").write_text(
            "sentence1\tsentence2\n" + "".join(f"{text}\t{texts[0]} new\n" for text in texts)
        )
    else:
        (tmp_path / "texts.txt").write_bytes("\n".join(texts[:3]).encode() + b"\r\n" + "\n".join(texts[3:]).encode())
    file = tmp_path / ("texts.tsv" if pipeline.num_texts == 2 else "texts.txt")
    for least in ([], ["--at-least", "0.6"]):
        chosen = pipeline.with_search(at_least=0.6) if least else pipeline
        lines, content = "".join(chosen.prediction_lines(str(file))), file.read_bytes()
        if pipeline.num_texts == 2:
            lines, content = lines.partition("\n")[2], content.partition(b"\n")[2]
        assert example(content, *least).decode() == lines
    tab = b"\t" * (pipeline.num_texts - 1)
    for text in runs.ODD_TEXTS:
        example(text if not tab else b"".join(line + tab + line + b"\n" for line in text.split(b"\n")))
