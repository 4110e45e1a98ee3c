"""Errors by kind, and precision and recall by threshold, against searches over all spans and all thresholds."""

import csv
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.extensions.error_analysis.report import KINDS, find_errors, report
from ensue.library import load, train
from ensue.notices import Notice
from ensue.text.schemes import Span
from forgetting import forget_notices
from kept_runs.make import unpacked
from training.tiny_texts import columns, sentences

pytestmark = pytest.mark.usefixtures("in_tmp_path")

DATA = {
    "tag-lstm-crf": "names.txt", "tag-nested": "spans.jsonl", "tag-lstm": "dev.conllu", "classify-bag": "topics.jsonl",
    "classify-lstm": "reviews.tsv",
}  # fmt: skip
"""Runs with their data: spans, overlapping spans, plain labels, several labels per text, one label per text."""
QUICK = ("tag-lstm-crf", "classify-bag")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in (*DATA, "tag-columns", "cut-lstm"):
        unpacked(name, folder)
    return folder


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DATA])
def model(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, str]:
    return load(folder / request.param, device="cpu"), str(folder / DATA[request.param])


def search_errors(
    gold: list[Span], predicted: list[Span], cut: set[Span]
) -> list[tuple[str, Span | None, Span | None]]:
    """Return the errors: the best remaining pair is taken repeatedly."""
    right = {span for span in gold if span in predicted} - cut
    gold, predicted = ([span for span in spans if span not in right] for spans in (gold, predicted))
    errors: list[tuple[str, Span | None, Span | None]] = []
    while True:
        best: Any = None
        for a in gold:
            for b in predicted:
                common = len({*range(a.start, a.end)} & {*range(b.start, b.end)})
                same_words, same_class = (a.start, a.end) == (b.start, b.end) and a not in cut, a.label == b.label
                score = (same_words, same_class, common)
                if common and (best is None or score > best[0]):
                    best = score, a, b
        if best is None:
            break
        (same_words, same_class, _), a, b = best
        kind = "class" if same_words else "boundary" if same_class else "boundary and class"
        errors.append((kind, a, b))
        gold.remove(a)
        predicted.remove(b)
    return [*errors, *(("missed", a, None) for a in gold), *(("spurious", None, b) for b in predicted)]


SPANS = st.lists(
    st.builds(
        lambda name, start, size: Span(name, start, start + size), st.sampled_from("XY"), *2 * [st.integers(1, 4)]
    ),
    unique=True,
    max_size=6,
)


@given(SPANS, SPANS, st.integers(0, 3))
def test_errors_are_those_of_a_search(gold: list[Span], predicted: list[Span], cut: int) -> None:
    errors = list(find_errors(gold, predicted, gold[:cut]))
    assert sorted(errors, key=repr) == sorted(search_errors(gold, predicted, {*gold[:cut]}), key=repr)
    assert {kind for kind, *_ in errors} <= {*KINDS}
    alone = list(find_errors(gold, predicted, is_paired=False))
    assert {kind for kind, *_ in alone} <= {"missed", "spurious"}
    assert Counter(span for _, *pair in alone for span in pair if span) == Counter({*gold} ^ {*predicted})


def test_each_kind_of_error_has_its_row(ensue: Ensue, folder: Path) -> None:
    """The tagger labels `[Anna Novak PER]` in each of these sentences, and nothing else."""
    words, rest = ["Anna", "Novak", "sees", "Lima", "."], " O O"
    gold = ["B-PER O O", "B-LOC I-LOC O", "O B-LOC I-LOC", "O O O", "B-PER I-PER B-LOC", "B-PER I-PER O"]
    rows = [
        "".join(f"{word} X {label}\n" for word, label in zip(words, (labels + rest).split(), strict=True))
        for labels in gold
    ]
    Path("gold.txt").write_text("\n".join(rows))
    result = ensue("evaluate", folder / "tag-lstm-crf", "gold.txt", "--errors", "e.csv", "--curve", "c.jsonl")
    assert result.err.endswith("wrote e.csv\nwrote c.jsonl\n")
    with Path("e.csv").open(newline="") as file:
        rows_of_file = list(csv.DictReader(file))
    names = ("kind", "place", "label", "text", "predicted_label", "predicted_text", "before", "after")
    assert [tuple(row[name] for name in names) for row in rows_of_file] == [
        ("boundary", "gold.txt:1", "PER", "Anna", "PER", "Anna Novak", "", "sees Lima ."),
        ("class", "gold.txt:7", "LOC", "Anna Novak", "PER", "Anna Novak", "", "sees Lima ."),
        ("boundary and class", "gold.txt:13", "LOC", "Novak sees", "PER", "Anna Novak", "", "Lima ."),
        ("spurious", "gold.txt:19", "", "", "PER", "Anna Novak", "", "sees Lima ."),
        ("missed", "gold.txt:25", "LOC", "sees", "", "", "Anna Novak", "Lima ."),
    ]
    header, *table = [
        line.split() for line in result.out.partition("errors ")[2].replace("boundary and", "both").splitlines()
    ]
    assert header == ["class", "boundary", "both", "class", "missed", "spurious"]
    assert table == [
        ["LOC", "1", "0", "1", "1", "0"],
        ["PER", "0", "1", "0", "0", "1"],
        ["all", "1", "1", "1", "1", "1"],
    ]
    tagger = load(folder / "tag-lstm-crf", device="cpu")
    (answer,) = tagger.predict([words], confidence=True)
    shares = [float(row["predicted_probability"]) for row in rows_of_file[:4]]
    assert shares == pytest.approx([answer.span_probabilities[0]] * 4, abs=2e-6)
    assert float(rows_of_file[4]["probability"]) < shares[0]
    analysis = report(tagger, "gold.txt", errors="e.jsonl")
    assert [json.loads(line) for line in Path("e.jsonl").read_text().splitlines()] == [
        e._asdict() for e in analysis.errors
    ]
    assert analysis.as_json() == {"errors": {
        "LOC": {"class": 1, "boundary and class": 1, "missed": 1}, "PER": {"boundary": 1, "spurious": 1}
    }}  # fmt: skip
    assert json.loads(Path("c.jsonl").read_text().splitlines()[0])["recall"] == pytest.approx(2 / 6)


def test_words_with_a_wrong_label_are_written_as_a_table(
    ensue: Ensue, refused: Callable[..., str], folder: Path
) -> None:
    tagged = sentences(6, seed=8)
    gold = columns(tagged).replace(" O\n", " B-PER\n", 3)  # some that are wrong for sure
    Path("test.txt").write_text(gold)
    result = ensue("evaluate", folder / "tag-lstm-crf", "test.txt", "--errors", "mistakes.tsv")
    rows = [line.split("\t") for line in Path("mistakes.tsv").read_text().splitlines()]
    predicted = [
        answer.labels for answer in load(folder / "tag-lstm-crf", device="cpu").predict([s.words for s in tagged])
    ]
    expected, line = [], 1
    for sentence, guesses in zip(gold.split("\n\n"), predicted, strict=True):
        words, labels = [[row.split(" ")[place] for row in sentence.strip().split("\n")] for place in (0, 2)]
        for place, (right, guess) in enumerate(zip(labels, guesses, strict=True)):
            if right != guess:
                context = (" ".join(words[max(0, place - 8) : place]), " ".join(words[place + 1 : place + 9]))
                expected.append([f"test.txt:{line}", words[place], right, guess, *context])
        line += len(words) + 1
    assert rows == [["place", "word", "right", "predicted", "before", "after"], *expected]
    assert len(expected) >= 3
    assert re.search(r"^errors +.*missed.*^PER .* \d+ *$", result.out, flags=re.MULTILINE | re.DOTALL)
    assert result.err.endswith("wrote mistakes.tsv\n")
    for out, line_of_error in (("test.txt", "is the same as test.txt"), ("no/a.tsv", "no/a.tsv: no folder no")):
        assert line_of_error in refused("evaluate", folder / "tag-lstm-crf", "test.txt", "--errors", out)
    assert Path("test.txt").read_text() == gold
    assert "evaluate takes a PATH" in refused("evaluate", folder / "tag-lstm-crf", "--errors", "a.tsv")


def test_a_model_without_errors_has_no_table_of_them(ensue: Ensue, folder: Path) -> None:
    Path("own.conllu").write_text(ensue("predict", folder / "tag-lstm", folder / "dev.conllu").out, encoding="utf-8")
    lines = ensue("evaluate", folder / "tag-lstm", "own.conllu", "--errors", "a.csv").out.splitlines()
    assert lines[-1] == "no errors"


def test_a_tag_that_is_left_out_is_missed(folder: Path) -> None:
    tagger: Any = load(folder / "tag-lstm", device="cpu")
    complete = report(tagger, folder / "dev.conllu")
    least = complete.curve[len(complete.curve) // 2].threshold
    limited = report(tagger.with_search(at_least=least), folder / "dev.conllu")
    assert limited.curve == [row for row in complete.curve if row.threshold >= least]
    assert {error.kind for error in limited.errors} == {"class", "missed"}
    assert all((error.predicted_probability is None) == (error.kind == "missed") for error in limited.errors)


def test_a_label_that_is_the_empty_field_has_its_probability(folder: Path) -> None:
    (folder / "empty.txt").write_text("a X\nb _\n\nb _\na X\n\na X\n\n" * 5)
    train("tag-linear", settings=["data.format=columns"], train=folder / "empty.txt", out=folder / "empty")
    curve = report(load(folder / "empty", device="cpu"), folder / "empty.txt").curve
    assert curve
    assert all(0.5 < row.threshold <= 1 for row in curve)


def test_the_words_of_several_columns_are_a_table(ensue: Ensue, folder: Path) -> None:
    result = ensue("evaluate", folder / "tag-columns", folder / "dev.conllu", "--errors", "a.tsv")
    assert re.search(r"^right +predicted +words *$.*^upos [A-Z]+ +upos [A-Z]+ +\d+ *$", result.out, flags=re.M | re.S)
    tagger = load(folder / "tag-columns", device="cpu")
    analysis = report(tagger, folder / "dev.conllu", errors="a.tsv")
    assert tagger.evaluate(folder / "dev.conllu", errors="b.tsv") == analysis.scores
    assert Path("b.tsv").read_text() == Path("a.tsv").read_text()
    rows = [line.split("\t") for line in Path("a.tsv").read_text().splitlines()[1:]]
    assert len(rows) == round(analysis.scores.tokens * (1 - analysis.scores.accuracy)) > 0
    assert all(right.count(" ") == predicted.count(" ") == 2 for _, _, right, predicted, *_ in rows)


@pytest.mark.parametrize(("run", "line"), [
    ("cut-lstm", "expected a tagger of words or a classifier"),
    ("tag-columns", "a tagger of several columns; expected one column, or --errors FILE.tsv alone"),
])  # fmt: skip
def test_models_without_spans_of_words_are_refused(
    run: str, line: str, refused: Callable[..., str], folder: Path
) -> None:
    for option in (["--errors", "a.csv"], ["--curve", "a.csv"], ["--at-precision", "0.5"]):
        assert refused("evaluate", folder / run, folder / "dev.conllu", *option) == f"{folder / run}: {line}"
    two = [folder / "cut-lstm", folder / "tag-lstm", folder / "dev.conllu", "--errors", "a.csv"]
    assert refused("evaluate", *two) == f"{two[0]}: expected a tagger of words or a classifier"
    assert not Path("a.csv").exists()


def count_items(pipeline: Any, data: str, least: float) -> tuple[int, int, int]:
    """Return the numbers of correct, gold and predicted labels or spans, without predictions below `least`."""
    limited, totals = pipeline.with_search(at_least=least), [0, 0, 0]
    for answer, judged in limited.label_pairs(data, None, "utf-8"):
        if hasattr(answer, "document"):
            pair = {*answer.document.labels}, {*answer.labels}
        elif pipeline.labels.has_spans:
            pair = {*pipeline.labels.spans(judged.gold)}, {*pipeline.labels.spans(answer.labels)}
        else:
            pair = {*enumerate(judged.gold)}, {*enumerate(answer.labels)} - {(n, "_") for n in range(99)}
        totals = [a + len(b) for a, b in zip(totals, (pair[0] & pair[1], *pair), strict=True)]
    return totals[0], totals[1], totals[2]


def test_the_curve_has_the_scores_at_each_threshold(model: tuple[Any, str]) -> None:
    pipeline, data = model
    analysis = report(pipeline, data)
    rows = analysis.curve
    assert len(rows) > 1
    for row in rows[:: max(1, len(rows) // 4)]:
        correct, gold, predicted = count_items(pipeline, data, row.threshold - 1e-6)
        scores = correct / predicted, correct / gold, 2 * correct / (gold + predicted)
        assert (row.precision, row.recall, row.f1) == pytest.approx(scores)
    assert analysis.scores == pipeline.evaluate(data)
    assert all(low.threshold < high.threshold for low, high in pairwise(rows))
    f1 = getattr(analysis.scores, "micro_f1", getattr(analysis.scores, "f1", None))
    assert rows[0].f1 == pytest.approx(f1)


def test_the_threshold_for_a_precision_is_the_smallest(model: tuple[Any, str]) -> None:
    pipeline, data = model
    rows = report(pipeline, data).curve
    for precision in {0.0, *(row.precision for row in rows)}:
        chosen = report(pipeline, data, at_precision=precision).chosen
        rows_above = [row for row in rows if row.threshold >= chosen.threshold]
        assert chosen.precision == rows_above[0].precision >= precision
        assert not any(row.precision >= precision for row in rows[: len(rows) - len(rows_above)])
        assert len(rows_above) < len(rows) or chosen.threshold == 0
    forget_notices()
    with pytest.warns(Notice, match=rf"{Path(data).name}: at_least {chosen.threshold}: precision "):
        limited = pipeline.with_precision(precision, on=data)
    assert limited.at_least == chosen.threshold
    correct, gold, predicted = count_items(pipeline, data, limited.at_least)
    assert (chosen.precision, chosen.recall) == pytest.approx((correct / predicted, correct / gold))
    least = rows[-1].threshold - 1e-6
    with warnings.catch_warnings(action="ignore"):
        assert pipeline.with_search(at_least=least).with_precision(0.0, on=data).at_least == least


def test_a_precision_on_the_command_line(ensue: Ensue, refused: Callable[..., str], folder: Path) -> None:
    run, data = folder / "classify-bag", folder / "topics.jsonl"
    (chosen,) = re.findall(r"^(--at-least (\S+): precision 100.00%, recall .+)$", ensue(
        "evaluate", run, data, "--at-precision", "1").out, flags=re.MULTILINE)  # fmt: skip
    forget_notices()
    with warnings.catch_warnings(action="always"):
        result = ensue("predict", run, data, "--at-precision", "1", "--on", data)
    assert result.err == f"ensue: {data}: {chosen[0]}\n"
    assert result.out == ensue("predict", run, data, "--at-least", chosen[1]).out != ensue("predict", run, data).out
    assert json.loads(ensue("evaluate", run, data, "--at-precision", "1", "--json").out)["at_precision"][
        "threshold"
    ] == float(chosen[1])
    assert refused("predict", run, data, "--at-precision", "1") == "--at-precision and --on FILE go together"
    assert "is 2.0; expected a number from 0 to 1" in refused("evaluate", run, data, "--at-precision", "2")
    Path("wrong.jsonl").write_text('{"text": "About a choir.", "labels": ["travel"]}\n' * 2)
    line = "wrong.jsonl: no threshold has a precision of 50.00%; the highest precision is 0.00%, at a recall of 0.00%"
    for arguments in (["evaluate", run, "wrong.jsonl"], ["predict", run, data, "--on", "wrong.jsonl"]):
        assert refused(*arguments, "--at-precision", "0.5") == line


@pytest.mark.slow  # matplotlib is imported
def test_a_curve_is_a_table_or_a_picture(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    pipeline = load(folder / "tag-lstm-crf", device="cpu")
    rows = report(pipeline, folder / "names.txt", curve="c.svg").curve
    assert all(name in Path("c.svg").read_text() for name in ("<svg", "minimum probability"))
    for name, separator in (("c.csv", ","), ("c.tsv", "\t")):
        report(pipeline, folder / "names.txt", curve=name)
        header, *lines = (line.split(separator) for line in Path(name).read_text().splitlines())
        assert (header, [tuple(map(float, line)) for line in lines]) == ([*rows[0]._fields], rows)
    with pytest.raises(EnsueError, match=r"c.csv: two outputs are this file"):
        report(pipeline, folder / "names.txt", errors="c.csv", curve="c.csv")
