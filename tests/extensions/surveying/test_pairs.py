"""Counts of pairs against counts by hand, and the detection of misaligned pairs."""

import random
import re
from pathlib import Path

import pytest

from ensue.errors import DataError
from ensue.extensions.surveying.pairs import MisalignmentDetector, PairReport, PairSummary
from ensue.extensions.surveying.summary import summarize

TABLE = "source\ttarget\na b\tx\nc\tc\na b\ty z\nd\tx\na b\tx\n"


def survey(path: Path, text: str, **options: str) -> PairSummary:
    path.write_text(text, encoding="utf-8")
    summary = summarize(path, **options)
    assert isinstance(summary, PairSummary)
    return summary


def test_both_sides_are_counted(tmp_path: Path) -> None:
    summary = survey(tmp_path / "x.tsv", TABLE)
    assert summary.error is None
    assert (summary.size, summary.source.words.total(), len(summary.source.words)) == (5, 8, 4)
    assert (summary.target.lengths.quantile(1), summary.source.characters.quantile(0.5)) == (2, 3)
    assert str(summary.copies) == f"1, the first at {tmp_path / 'x.tsv'}:3"
    assert (summary.repeats.num_repeats, summary.repeats.with_other_labels.count) == (2, 1)
    assert summary.alignment.ratios.counts == {33: 2, 100: 3}
    assert summary.references.counts == {1: 5}


def test_references_are_counted(tmp_path: Path) -> None:
    rows = '{"article": "a", "summary1": "x", "summary2": "y"}\n{"article": "b", "summary1": "z", "summary2": ""}\n'
    assert survey(tmp_path / "x.jsonl", rows).references.counts == {2: 1, 1: 1}


def test_the_overlap_of_test_and_training_data_is_counted(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("target\tsource\nx\tz\ny z\td\ny z\ta b\nq\tq\n")
    overlap = survey(tmp_path / "x.tsv", TABLE, against=str(tmp_path / "test.tsv")).overlap
    assert overlap is not None
    assert (len(overlap), len(overlap.sources), overlap.num_pairs, overlap.num_targets) == (4, 2, 1, 3)
    assert str(overlap.sources[0]) == f"{tmp_path / 'test.tsv'}:3"


def test_against_requires_pairs_and_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("It rains.\n")
    with pytest.raises(DataError, match="taken for plain text; expected pairs for against"):
        summarize(tmp_path / "x.txt", against="y")
    (tmp_path / "x.tsv").write_text(TABLE)
    with pytest.raises(DataError, match=r"y: no such file or folder"):
        summarize(tmp_path / "x.tsv", against=str(tmp_path / "y"))


def test_labels_of_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='no column "a": the data are pairs; sources and targets name columns'):
        survey(tmp_path / "x.txt", "IN: a OUT: b\n", format="scan", labels="a")


@pytest.mark.parametrize(
    ("text", "message"),
    [("source\ttarget\n", ": no pairs"), (TABLE + "e\tf\tg\n", ":7: 3 columns; expected 2 as in line 1")],
)
def test_the_first_invalid_line_ends_the_survey(tmp_path: Path, text: str, message: str) -> None:
    summary = survey(tmp_path / "x.tsv", text)
    assert str(summary.error) == f"{tmp_path / 'x.tsv'}{message}"
    assert summary.size == max(0, text.count("\n") - 2)


def test_pairs_that_lack_a_side_are_counted(tmp_path: Path) -> None:
    summary = survey(tmp_path / "x.tsv", TABLE + "e\t\ng\n\tf\nnan\tx\n")
    assert summary.error is None
    assert summary.incomplete == f"3 rows: 2 without a target, 1 without a source, the first at {tmp_path}/x.tsv:7"
    assert str(summary.null_texts) == f"1, the first at {tmp_path}/x.tsv:10"


def test_lines_that_look_misaligned_are_listed(tmp_path: Path) -> None:
    draw = random.Random(0)
    lengths = [draw.randint(10, 60) for _ in range(200)]
    rows = [("a" * length, "b" * round(1.2 * length * draw.uniform(0.9, 1.1))) for length in lengths]
    rows[40] = ("a" * 50, "b")
    rows[90] = ("a" * 3, "b" * 90)
    summary = survey(tmp_path / "x.tsv", "".join(f"{source}\t{target}\n" for source, target in rows), sources="1")
    path = tmp_path / "x.tsv"
    assert summary.misaligned == [f"{path}:41 (50 and 1)", f"{path}:91 (3 and 90)"]
    assert summary.num_misaligned == 2


def test_few_pairs_and_pairs_of_varying_ratio_show_no_misalignment() -> None:
    few, unsteady = MisalignmentDetector(), MisalignmentDetector()
    for n in range(19):
        few.feed(20, 24)
        for target in (20, 60, 100):
            unsteady.feed(20 + n, target)
    assert not few.is_misaligned(20, 200)
    assert not unsteady.is_misaligned(20, 2000)


def test_a_pair_is_misaligned_from_twice_the_expected_length() -> None:
    detector = MisalignmentDetector()
    for n in range(20, 50):
        detector.feed(10 * n, 12 * n)
    assert (detector.is_misaligned(100, 190), detector.is_misaligned(100, 260)) == (False, True)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("彼はとても早く走る", True), ("彼 は とても 早く 走る", False), ("er läuft", False), ("ผมไม่รู้เรื่องนี้", True)],
)
def test_a_script_without_blanks_is_noticed(tmp_path: Path, target: str, expected: bool) -> None:
    summary = survey(tmp_path / "x.tsv", f"source\ttarget\nhe runs\t{target}\n")
    assert (summary.source.has_no_blanks, summary.target.has_no_blanks) == (False, expected)


@pytest.mark.slow
def test_overlap_and_misaligned_pairs_of_published_data_are_found(shared_data: Path) -> None:
    def files(*names: str) -> str:
        return ",".join(str(shared_data / name) for name in names)

    small = "small_parallel_enja/{}.{}{}"
    against = files(*(small.format("test", language, "") for language in ("en", "ja")))
    summary = summarize(files(*(small.format("train", language, ".xz") for language in ("en", "ja"))), against=against)
    assert isinstance(summary, PairSummary)
    assert summary.overlap is not None
    assert (len(summary.overlap.sources), summary.overlap.num_pairs) == (60, 0)
    summary = summarize(files("multi30k/train.en.gz", "multi30k/train.de.gz"))
    assert isinstance(summary, PairSummary)
    assert re.findall(r":(\d+) \(.* and (\d+)\)", "\n".join(summary.misaligned)) == [
        ("16510", "2"),
        ("16664", "2"),
    ]


@pytest.mark.parametrize(
    ("row", "few", "size", "many", "reason"),
    [
        ("ein Satz mit {0} Worten\ta sentence of {0} words\n", "translate-few", 1001, "translate-lstm",
         "there are under 5,000 pairs"),
        ("ein Satz mit {0} Worten\ta sentence of {0} words\n", "translate-few", 6000, "translate-transformer",
         "exports to C and the web need translate-lstm"),
        ("walk{0}\twalk{0}ed\tV;PST\n", "transduce-few", 501, "transduce-lstm", ""),
    ],
)  # fmt: skip
def test_the_proposal_depends_on_the_number_of_pairs(
    row: str, few: str, size: int, many: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "a.tsv").write_text("".join(map(row.format, range(30))))
    summary = summarize(tmp_path / "a.tsv")
    assert isinstance(summary, PairSummary)
    report = PairReport(summary, {})
    assert report.recipe()[0] == few
    summary.size = size
    assert report.recipe()[0] == many
    assert report.recipe()[2].endswith(reason)
