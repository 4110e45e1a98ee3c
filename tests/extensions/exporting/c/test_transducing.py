"""Encoder–decoders as C have the answers of ensue in the same order with the same scores, for any search."""

import ctypes
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ensue.data.examples import Pair
from ensue.extensions.exporting.c.transducing import MAX_BEAMS, MAX_ROWS
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.task import mean_surprisals
from extensions.exporting.c import carried as runs
from extensions.exporting.c.printing import files_of
from extensions.exporting.c.transducers import KINDS, LEMMAS, transducer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not runs.COMPILERS, reason="neither gcc nor clang is installed")]
TOO_LONG = -7
Text = st.lists(st.sampled_from([*LEMMAS, "V", "PST", ";", "|", " ", "\u3000", "\n", "?", "\u0663"]), max_size=9).map(
    "".join
) | st.text(max_size=12)


class CText(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class CSearch(ctypes.Structure):
    _fields_ = [
        ("beams", ctypes.c_uint32), ("n_best", ctypes.c_uint32), ("length_penalty", ctypes.c_double),
        ("min_tokens", ctypes.c_uint32), ("max_tokens", ctypes.c_uint32), ("no_repeat_ngram", ctypes.c_uint32),
    ]  # fmt: skip


class CAnswer(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.c_void_p), ("size", ctypes.c_size_t), ("score", ctypes.c_double),
        ("log_probability", ctypes.c_double), ("is_complete", ctypes.c_int),
    ]  # fmt: skip


Answers = list[tuple[str, float, float, bool]]


class CarriedTransducer(runs.Interface):
    returns: ClassVar = {"session_size": ctypes.c_size_t, "usual": CSearch}

    def __init__(self, pipeline: SequencePipeline, folder: Path, name: str, *, precision: str = "f32") -> None:
        super().__init__(pipeline, folder, name, precision=precision)
        self.session = self.begun(700, 40)

    def usual(self, **changes: Any) -> CSearch:
        search: CSearch = self.call("usual")
        for name, value in changes.items():
            setattr(search, name, value)
        return search

    def begun(self, size: int, tokens: int) -> Any:
        sizes = ctypes.c_size_t(size), ctypes.c_size_t(tokens)
        session = ctypes.create_string_buffer(b"\xff" * self.call("session_size", *sizes))
        assert self.call("begin", self.model, session, *sizes) == runs.OK
        return session

    def code(self, *sources: tuple[str | bytes, ...], search: CSearch | None = None, session: Any = None) -> int:
        self.answers = (CAnswer * MAX_ROWS)()
        texts = [text if isinstance(text, bytes) else text.encode("utf-8") for source in sources for text in source]
        array, count = (CText * len(texts))(*((text, len(text)) for text in texts)), ctypes.c_size_t(len(sources))
        how = None if search is None else ctypes.byref(search)
        return int(self.call("transduce", self.model, session or self.session, array, count, how, self.answers))

    def answered(self, *sources: tuple[str | bytes, ...], **changes: Any) -> list[Answers]:
        """Return the answers for all sources, in as many calls as needed."""
        search, done, results = self.usual(**changes), 0, list[Answers]()
        while done < len(sources):
            count = self.code(*sources[done:], search=search)
            assert 0 < count <= len(sources) - done
            done += count
            for place in range(count):
                some = self.answers[place * search.n_best : (place + 1) * search.n_best]
                results.append([self._read(one) for one in some if one.text is not None])
        return results

    @staticmethod
    def _read(one: CAnswer) -> tuple[str, float, float, bool]:
        return ctypes.string_at(one.text, one.size).decode(), one.score, one.log_probability, bool(one.is_complete)


def of_ensue(pipeline: SequencePipeline, sources: list[tuple[str, ...]], **changes: Any) -> list[Answers]:
    options = {"width" if name == "beams" else name: value for name, value in changes.items()}
    return [
        [(one.text, one.score, one.log_probability, one.is_complete) for one in (best, *best.others)]
        for best in pipeline.with_search(**options).predict(sources)
    ]


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pipeline = transducer(**KINDS[request.param])
    return pipeline, CarriedTransducer(pipeline, tmp_path_factory.mktemp(request.param), request.param)


SEARCHES: list[dict[str, Any]] = [
    {}, {"beams": 1}, {"beams": 32, "n_best": 32}, {"beams": 4, "n_best": 4, "length_penalty": 0.0, "max_tokens": 3},
    {"beams": 3, "n_best": 2, "min_tokens": 4, "no_repeat_ngram": 1, "length_penalty": 2.0},
    {"beams": 7, "n_best": 3, "no_repeat_ngram": 3, "max_tokens": 40},
]  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(sources=st.lists(st.tuples(Text, Text), min_size=1, max_size=20), search=st.sampled_from(SEARCHES))
@example(sources=[("", "")], search=SEARCHES[2])
@example(sources=[("PST", "")], search=SEARCHES[2])  # of words: two answers have the same score in float32
@example(
    sources=[("w\u00e4hlen", " V;;PST , nope"), *[("go", "V")] * 18, ("", ""), ("b" * 300, "")], search=SEARCHES[4]
)
def test_answers_and_scores_are_those_of_ensue(
    both: Any, sources: list[tuple[str, str]], search: dict[str, Any]
) -> None:
    pipeline, _ = both
    read = [tuple(text.encode("utf-8", "replace").decode() for text in source) for source in sources]
    check_answers(both, [(*source, source[0])[: pipeline.num_texts] for source in read], **search)


def check_answers(
    both: tuple[SequencePipeline, CarriedTransducer],
    texts: list[tuple[str, ...]],
    *,
    close: float = runs.CLOSE,
    **search: Any,
) -> None:
    """Check that all answers are those of ensue; for another answer, ensue computes the log probability of C, too."""
    pipeline, carried = both
    for source, answers, expected_answers in zip(
        texts, carried.answered(*texts, **search), of_ensue(pipeline, texts, **search), strict=True
    ):
        assert len({(one[0], one[3]) for one in answers}) == len({(one[0], one[3]) for one in expected_answers})
        for mine, theirs in zip(answers, expected_answers, strict=True):
            assert mine[1] == pytest.approx(theirs[1], abs=close, rel=1e-6), (mine, theirs)
            same = (mine[0], mine[3]) == (theirs[0], theirs[3])
            of_mine = theirs[2] if same else log_probability(pipeline, source, mine[0], is_complete=mine[3])
            assert mine[2] == pytest.approx(of_mine, abs=close, rel=1e-6), (mine, theirs)


def log_probability(pipeline: SequencePipeline, source: tuple[str, ...], text: str, *, is_complete: bool) -> float:
    """Return the log probability of a text, without the end symbol if it is not complete."""
    sources, written = pipeline.encode([(Pair(source), text)])
    ((_, nats),) = mean_surprisals(pipeline.models, sources, written, begin_id=pipeline.target.begin_id)
    return -float(nats[0].double()[: None if is_complete else -1].sum())


@pytest.mark.parametrize(("kind", "precision"), [("additive", "int8"), ("bilinear", "f16")])
def test_lower_precisions_compute_with_the_rounded_numbers(kind: str, precision: str, tmp_path: Path) -> None:
    pipeline = transducer(**KINDS[kind])
    carried = CarriedTransducer(pipeline, tmp_path, kind, precision=precision)
    texts = [(lemma, "V;PST", lemma)[: pipeline.num_texts] for lemma in LEMMAS]
    before = of_ensue(pipeline, texts)
    runs.rounded(pipeline.model, precision, but="vector|combine")
    with torch.no_grad():  # what is attended to and the output of the cells have a matrix each
        combine = next(value for name, value in pipeline.model.named_parameters() if name.endswith("combine.weight"))
        for part in combine.split([combine.shape[1] - len(combine), len(combine)], 1):
            part.copy_(torch.from_numpy(runs.twin(part.numpy(), precision, 1)))
    check_answers((pipeline, carried), texts, close=runs.NEAR[precision], beams=4, n_best=3)
    assert before != of_ensue(pipeline, texts)


def test_invalid_arguments_and_files_give_a_negative_code(tmp_path: Path) -> None:
    carried = CarriedTransducer(transducer(names=[2]), tmp_path, "some")
    texts, sizes = (b"w\xc3\xa4hlen\xff", b"V;PST"), (ctypes.c_size_t(1_000_001), ctypes.c_size_t(5))
    assert carried.answered(texts) == carried.answered(("w\u00e4hlen\ufffd", "V;PST"))
    assert carried.call("session_size", *sizes) == carried.call("session_size", sizes[1], sizes[0]) == 0
    assert carried.call("begin", carried.model, carried.session, *sizes) == runs.ARGUMENT
    for changes in (
        {"beams": 0}, {"beams": MAX_BEAMS + 1}, {"n_best": 6}, {"length_penalty": float("nan")}, {"max_tokens": 0},
    ):  # fmt: skip
        assert carried.code(texts, search=carried.usual(**changes)) == runs.ARGUMENT
    assert carried.code(texts, search=carried.usual(min_tokens=15)) == runs.ARGUMENT
    assert carried.code(texts, session=carried.begun(12, 14)) == TOO_LONG
    assert carried.code(texts, session=carried.begun(13, 13)) == TOO_LONG
    assert carried.code(texts, session=carried.begun(13, 14)) == 1
    assert carried.code(*[texts] * 30, session=carried.begun(30, 14)) == 2  # there is room for two
    assert carried.code(*[texts] * 30) == MAX_ROWS // carried.usual().beams
    assert carried.code(texts, (b"x" * 701, b"")) == 1
    assert carried.code() == runs.OK
    assert carried.code(texts, session=ctypes.create_string_buffer(9999)) == runs.BAD_STATE
    assert carried.call("transduce", None, carried.session, None, sizes[1], None, carried.answers) == runs.ARGUMENT


def test_bytes_that_are_not_utf8_may_count_as_three(tmp_path: Path) -> None:
    carried = CarriedTransducer(transducer(**KINDS["bytes"]), tmp_path, "some")
    texts = (b"go", b"\xff" * 30, b"V")
    assert carried.answered(texts) == carried.answered(("go", "\ufffd" * 30, "V"))
    assert carried.code((b"", b"\xff" * 99, b""), session=carried.begun(297, 14)) == 1
    assert carried.code((b"", b"\xff" * 99, b""), session=carried.begun(99, 14)) == TOO_LONG


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    pipeline = transducer()
    with torch.no_grad():
        pipeline.model.head.bias[3] = torch.nan
    assert CarriedTransducer(pipeline, tmp_path, "some").code(("go",)) == runs.NUMBERS_FAIL


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")  # of texts that are empty
@pytest.mark.parametrize("kind", ["heads", "bytes", "words"])
def test_examples_print_like_the_command_line_without_sanitizer_errors(kind: str, tmp_path: Path) -> None:
    pipeline = transducer(**KINDS[kind])
    example = runs.Example(files_of(pipeline, "some", embed=True), tmp_path, runs.COMPILERS[-1])
    tail = "\tV;PST\tx"
    lines = ["sing" + tail, "", " \u3000", "\u0663?\U0001f600" + tail, "go " * 400 + tail, *["go" + tail] * 70]
    text = "\r\n".join(lines).encode()
    (tmp_path / "texts.txt").write_bytes(text)
    for changes, options in (
        ({}, ""), ({"width": 1}, "--beams 1"),
        ({"width": 9, "n_best": 4, "length_penalty": 0.3}, "--beams 9 --n-best 4 --length-penalty 0.3"),
    ):  # fmt: skip
        assert example(text, *options.split()).decode() == "".join(
            pipeline.with_search(**changes).prediction_lines(
                str(tmp_path / "texts.txt"), format="plain", encoding="utf-8", as_json=False, color=False
            )
        )
    for options in ("--beams 33", "--n-best 6", "--beams", "--length-penalty -1", "3 3"):
        assert example(b"", *options.split(), code=2).startswith(b"usage: some ")
    assert example(b"\n" * 64 + b"a\n", code=2) == b"some: line 65: expected 3 texts with tabs between them\n"
    for one in (
        b"", runs.ODD_BYTES[:2000], b"\0" * 99, b"x" * 9_000, b"\n" * 99, b"\xef\xbb\xbfgo", b"\xf0\x9f",
        b"\xff" * 1020,
    ):  # fmt: skip
        parts = [line.replace(b"\t", b" ") for line in one.split(b"\n")]
        example(b"".join(b"\t".join([line] * 3) + b"\n" for line in parts), "--beams", "2")
