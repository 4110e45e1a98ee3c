"""The numbers of pairs: counted by hand for small data, and lines out of place found among many."""

import random
from pathlib import Path

import pytest

from ensue.data.survey.measurement import summarize
from ensue.data.survey.pair_survey import Balance, PairSummary
from ensue.errors import DataError

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
    assert (summary.num_copies, str(summary.first_copy)) == (1, f"{tmp_path / 'x.tsv'}:3")
    assert (summary.repeats.texts, summary.repeats.with_other_labels) == (2, 1)
    assert summary.balance.ratios.counts == {33: 2, 100: 3}
    assert summary.references.counts == {1: 5}


def test_references_are_counted(tmp_path: Path) -> None:
    rows = '{"article": "a", "summary1": "x", "summary2": "y"}\n{"article": "b", "summary1": "z", "summary2": ""}\n'
    assert survey(tmp_path / "x.jsonl", rows).references.counts == {2: 1, 1: 1}


def test_what_a_test_shares_with_the_training_data(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("target\tsource\nx\tz\ny z\td\ny z\ta b\nq\tq\n")
    overlap = survey(tmp_path / "x.tsv", TABLE, against=str(tmp_path / "test.tsv")).overlap
    assert overlap is not None
    assert (len(overlap), len(overlap.sources), overlap.num_pairs, overlap.num_targets) == (4, 2, 1, 3)
    assert str(overlap.sources[0]) == f"{tmp_path / 'test.tsv'}:3"


def test_only_pairs_are_held_against_others(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("It rains.\n")
    with pytest.raises(DataError, match="taken for plain text; only pairs can be held against others"):
        summarize(tmp_path / "x.txt", against="y")
    (tmp_path / "x.tsv").write_text(TABLE)
    with pytest.raises(DataError, match=r"y: no such file or folder"):
        summarize(tmp_path / "x.tsv", against=str(tmp_path / "y"))


def test_pairs_have_no_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='no column "a": they are pairs; --sources and --targets name columns'):
        survey(tmp_path / "x.txt", "IN: a OUT: b\n", format="scan", labels="a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE + "e\t\n", ':7: an empty target, whose source is "e"'),
        ("source\ttarget\n", ": no pair in it"),
        (TABLE + "e\tf\tg\n", ":7: 3 columns; expected 2 as in line 1"),
    ],
)
def test_the_first_wrong_line_ends_it(tmp_path: Path, text: str, message: str) -> None:
    summary = survey(tmp_path / "x.tsv", text)
    assert str(summary.error) == f"{tmp_path / 'x.tsv'}{message}"
    assert summary.size == max(0, text.count("\n") - 2)


def test_lines_that_look_misaligned_are_listed(tmp_path: Path) -> None:
    draw = random.Random(0)
    lengths = [draw.randint(10, 60) for _ in range(200)]
    rows = [("a" * length, "b" * round(1.2 * length * draw.uniform(0.9, 1.1))) for length in lengths]
    rows[40] = ("a" * 50, "b")
    rows[90] = ("a" * 3, "b" * 90)
    summary = survey(tmp_path / "x.tsv", "".join(f"{source}\t{target}\n" for source, target in rows), sources="1")
    path = tmp_path / "x.tsv"
    assert [str(odd) for odd in summary.odd] == [f"{path}:41 (50 and 1)", f"{path}:91 (3 and 90)"]
    assert summary.num_odd == 2


def test_few_pairs_and_unsteady_ones_show_no_odd_ones() -> None:
    few, unsteady = Balance(), Balance()
    for n in range(19):
        few.feed(20, 24)
        for target in (20, 60, 100):
            unsteady.feed(20 + n, target)
    assert not few.is_odd(20, 200)
    assert not unsteady.is_odd(20, 2000)
    few.feed(20, 24)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("彼はとても早く走る", True), ("彼 は とても 早く 走る", False), ("er läuft", False), ("ผมไม่รู้เรื่องนี้", True)],
)
def test_a_script_without_blanks_is_noticed(tmp_path: Path, target: str, expected: bool) -> None:
    summary = survey(tmp_path / "x.tsv", f"source\ttarget\nhe runs\t{target}\n")
    assert (summary.source.has_no_blanks, summary.target.has_no_blanks) == (False, expected)
