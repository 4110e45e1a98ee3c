"""Models from sequence to sequence on the command line: several runs together, and pages."""

import json
from pathlib import Path

import pytest

from command_fixtures import Ensue


@pytest.mark.slow
def test_several_runs_predict_together(ensue: Ensue, translators: Path) -> None:
    first, second = (translators / name for name in ("one", "two"))
    source = b"the cat sees a door\n"
    alone = json.loads(ensue("predict", first, "--json", stdin=source).out)
    twice = json.loads(ensue("predict", first, "--with", first, "--json", stdin=source).out)
    assert twice["text"] == alone["text"]
    assert twice["score"] == pytest.approx(alone["score"], abs=1e-5)
    together = ensue("predict", first, "--with", second, "--with", second, "--json", "--max-tokens", 3, stdin=source)
    exchanged = ensue("predict", second, "--with", first, "--with", second, "--json", "--max-tokens", 3, stdin=source)
    assert json.loads(together.out)["score"] == pytest.approx(json.loads(exchanged.out)["score"], abs=1e-5)


@pytest.mark.slow
def test_an_evaluation_of_several_runs_names_them(ensue: Ensue, translators: Path) -> None:
    first_run, data = translators / "one", translators / "test.tsv"
    alone = ensue("evaluate", first_run, data, "--json", "--beams", 1)
    twice = ensue("evaluate", first_run, data, "--json", "--beams", 1, "--with", first_run)
    assert "2 models together" in twice.err
    assert "together" not in alone.err
    first, second = json.loads(alone.out), json.loads(twice.out)
    assert first.pop("signature") == second.pop("signature")
    assert second == pytest.approx(first, rel=1e-5)


def test_runs_that_do_not_fit_each_other_are_refused_with_one_line(refused, translators: Path, runs: Path) -> None:  # type: ignore[no-untyped-def]
    first_run, other_run = translators / "one", translators / "other"
    assert "other tokens than" in refused("predict", first_run, "--with", other_run, stdin=b"a\n")
    assert "its predict has no --with" in refused("predict", first_run, "--with", runs / "names", stdin=b"a\n")
    assert "its predict has no --with" in refused("predict", runs / "names", "--with", first_run, stdin=b"a\n")
    assert "nowhere" in refused("predict", first_run, "--with", translators / "nowhere", stdin=b"a\n")


@pytest.mark.slow
def test_a_page_shows_an_output_or_a_target_of_the_command(ensue: Ensue, translators: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = ensue("inspect", translators / "one", "the cat", "--out", out, "--beams", 2)
    assert (result.status, result.err) == (0, f"wrote {out}\n")
    assert "<b>beam 2, length penalty 1</b>" in out.read_text()
    result = ensue("inspect", translators / "one", "the cat", "--target", "die Katze", "--out", out).succeeded()
    assert "the target is an argument" in out.read_text()


def test_impossible_targets_and_numbers_of_texts_are_refused(refused, translators: Path, runs: Path) -> None:  # type: ignore[no-untyped-def]
    assert "its inspect has no --target" in refused("inspect", runs / "names", "Anna", "--target", "B-PER")
    assert refused("inspect", translators / "one", "a", "b") == "the model reads one text; found 2"
