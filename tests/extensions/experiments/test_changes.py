"""Changed answers between two runs, McNemar's test, and bounds of `--require`."""

import json
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import torch

from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.extensions.experiments.changes import MAX_SHOWN, Bound, count_changes, mcnemar
from ensue.extensions.experiments.comparison import compare
from ensue.library import load
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_tensors
from ensue.text.schemes import spans

Refused = Callable[..., str]


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (0, 5), (1, 7), (4, 4), (6, 5), (3, 9)])
def test_the_exact_test_counts_all_equally_probable_outcomes(lost: int, won: int) -> None:
    outcomes = [sum(signs) for signs in product((0, 1), repeat=lost + won)]
    middle = (lost + won) / 2
    extreme = sum(abs(count - middle) >= abs(lost - middle) for count in outcomes)
    assert mcnemar(lost, won) == (pytest.approx(extreme / len(outcomes)), "exact")


@pytest.mark.parametrize(("lost", "won"), [(500, 620), (600, 600), (1_000, 900)])
def test_many_changes_are_tested_by_chi_square(lost: int, won: int) -> None:
    deviate = max(0, abs(lost - won) - 1) / (lost + won) ** 0.5
    assert mcnemar(lost, won) == (pytest.approx(2 * (1 - NormalDist().cdf(deviate))), "chi-square")
    assert mcnemar(lost, won)[0] == pytest.approx(min(1.0, _exact(lost, won)), abs=0.005)


def _exact(lost: int, won: int) -> float:
    """Return the two-sided binomial p-value, by the recurrence of Pascal's triangle in floats."""
    row = [1.0]
    for _ in range(lost + won):
        row = [(a + b) / 2 for a, b in zip([0.0, *row], [*row, 0.0], strict=True)]
    return 2 * sum(row[: min(lost, won) + 1])


def perturbed(run: Path, out: Path) -> Path:
    """Copy a run with other weights of the head, so that its answers differ."""
    shutil.copytree(run, out)
    generator = torch.Generator().manual_seed(2)
    model = load(run).model
    tensors = {name: parameter.detach().clone() for name, parameter in model.state_dict().items()}
    for name, tensor in tensors.items():
        if name.startswith("head"):
            tensor.add_(2 * torch.randn(tensor.shape, generator=generator))
    directory = RunDirectory(out)
    partial = directory.weights.with_suffix(".new")
    write_tensors(partial, tensors)
    directory.manifest.replace({directory.weights.name: partial})
    return out


def items_of(old: Any, new: Any, run: str, data: Path) -> list[tuple[bool, bool]]:
    """Return for each item whether the old and the new answer of `predict` are right."""
    rows: list[tuple[bool, bool]] = []
    if run in ("topics", "several"):
        for document in new.source(data):
            gold = {*document.labels}
            rows.append(tuple({*model.predict([document.texts[0]])[0].labels} == gold for model in (old, new)))
        return rows
    source = new.source(data, is_labeled=True)
    for sentence in source:
        gold = source.format.labels(sentence, new.column(source.format))
        answers = [[word.label for word in model.predict([sentence.words])[0].words] for model in (old, new)]
        if run == "upos":
            rows += [(a == g, b == g) for g, a, b in zip(gold, *answers, strict=True)]
        else:
            right, *sides = ({*spans(labels)} for labels in (gold, *answers))
            rows += [
                tuple((span in predicted) == (span in right) for predicted in sides) for span in right.union(*sides)
            ]
    return rows


@pytest.mark.parametrize(
    ("run", "file", "unit"),
    [
        ("names", "names.txt", "spans"),
        ("upos", "upos.conllu", "words"),
        ("topics", "topics.tsv", "texts"),
        ("several", "several.txt", "texts"),
    ],
)
def test_changes_are_those_of_the_answers(runs: Path, tmp_path: Path, run: str, file: str, unit: str) -> None:
    old, new = load(runs / run), load(perturbed(runs / run, tmp_path / "other"))
    data, end = tmp_path / file, "\n\n" if run in ("names", "upos") else "\n"
    data.write_text(end.join((runs / file).read_text().split(end)[:31]) + end)
    changes = count_changes(old, new, str(data))
    assert changes is not None
    expected = items_of(old, new, run, data)
    assert changes.items == len(expected)
    assert changes.lost == sum(before and not after for before, after in expected)
    assert changes.won == sum(after and not before for before, after in expected)
    assert changes.lost + changes.won
    assert changes.unit == unit
    assert len(changes.most_certain) == min(MAX_SHOWN, changes.lost + changes.won)
    certain = [change.probability for change in changes.most_certain]
    assert certain == sorted(certain, reverse=True)
    assert all(0 <= share <= 1 for share in certain)
    for change in changes.most_certain:
        assert re.fullmatch(rf".*{re.escape(file)}:\d+", change.place)
        assert (change.new == change.gold) == (change.change == "won") or run == "names"
    back = count_changes(new, old, str(data))
    assert back is not None
    assert (back.lost, back.won) == (changes.won, changes.lost)


@pytest.mark.parametrize(
    ("text", "name", "limit", "holds"),
    [
        ("f1 >= 0.9", "f1", 0.9, True), ("F1>=.9", "f1", 0.9, True), ("f1 > 90 %", "f1", 0.9, False),
        ("lost <= 0.5 %", "lost", 0.005, False), ("lost<1%", "lost", 0.01, False), ("won >= 1e-2", "won", 0.01, True),
        ("nats per token < 3", "nats_per_token", 3.0, True), ("difference >= -0.1", "difference", -0.1, True),
    ],
)  # fmt: skip
def test_a_bound_holds_or_fails_for_a_value(text: str, name: str, limit: float, *, holds: bool) -> None:
    values = {"f1": 0.9, "lost": 0.01, "won": 0.5, "nats_per_token": 2.0, "difference": 0.0}
    bound = Bound.parse(text).with_value(values)
    assert (bound.name, bound.limit, bound.holds) == (name, pytest.approx(limit), holds)


@pytest.mark.parametrize(
    "text", ["", "f1", "f1 = 0.9", "f1 >= much", ">= 1", "f1 >= 0.9 0.8", "0.9 <= f1 <= 1", "f1 >="]
)
def test_malformed_bounds_are_refused(text: str, refused: Refused, runs: Path) -> None:
    with pytest.raises(EnsueError, match="expected NAME, >=, <=, > or <, and a number"):
        Bound.parse(text)


def test_a_value_that_is_no_number_fails_every_bound() -> None:
    assert not any(
        Bound.parse(f"f1 {sign} 1").with_value({"f1": float("nan")}).holds for sign in (">=", "<=", ">", "<")
    )


@pytest.fixture(scope="module")
def two(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return runs / "names", perturbed(
        runs / "names", tmp_path_factory.mktemp("two") / "a-directory-with-a-long-name-of-the-run"
    )


def test_a_failed_bound_ends_with_status_1(ensue: Ensue, runs: Path, two: tuple[Path, Path]) -> None:
    command = ("compare", *two, "--test", runs / "names.txt")
    result = ensue(
        *command, "--require", "f1 >= 1.1", "--require", "precision <= 100 %", "--require", "lost < 0", "--json"
    )
    assert result.status == 1
    failed = [line.split(": fails")[0] for line in result.err.splitlines() if not line.startswith("note: ")]
    assert failed == ["--require f1 >= 1.1", "--require lost < 0"]
    comparison = json.loads(result.out)
    assert [bound["holds"] for bound in comparison["bounds"]] == [False, True, False]
    changed = comparison["runs"][1]["changes"]
    assert comparison["runs"][0]["changes"] is None
    assert changed["lost"] + changed["won"] >= len(changed["most_certain"]) > 0
    assert comparison["bounds"][2]["value"] == pytest.approx(changed["lost"] / changed["items"])
    assert ensue(*command, "--require", "f1 >= 0").status == 0


def test_bounds_that_cannot_be_checked_are_refused(
    ensue: Ensue, refused: Refused, trained: Path, two: tuple[Path, Path]
) -> None:
    both = (trained / "lstm", trained / "transformer")
    assert "expected NAME" in refused("compare", *two, "--require", "f1 = 1")
    result = ensue("compare", *both, "--test", trained / "text.txt", "--require", "lost < 1 %")
    assert (result.status, result.out) == (2, "")
    assert "which needs --test DATA, and classifiers or taggers" in result.err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [80, 60, 132])
def test_tables_fit_a_terminal(
    ensue: Ensue, runs: Path, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    comparison = compare(two, test=runs / "names.txt")
    out = re.sub(r"\x1b\[[0-9;]*m", "", ensue("compare", *two, "--test", runs / "names.txt").out)
    assert [line for line in out.splitlines() if len(line) > width] == []
    assert "|" not in out
    for run in comparison.runs:
        for number in (f"{run.parameters:,}", *(f"{score:.4f}" for score in run.scores.values())):
            assert re.search(rf"(?<!\S){re.escape(number)}(?!\S)", out)
        for difference in run.differences.values():
            assert f"{difference.low:+.4f} to {difference.high:+.4f}" in out
    assert out.replace("\n", "").count(".txt:") == len(comparison.runs[1].changes.most_certain)  # type: ignore[union-attr]


def test_tables_are_markdown_outside_a_terminal(ensue: Ensue, runs: Path, two: tuple[Path, Path]) -> None:
    lines = ensue("compare", *two, "--test", runs / "names.txt").out.splitlines()
    assert "| change | place | gold | old | new | P(new) | text |" in lines
