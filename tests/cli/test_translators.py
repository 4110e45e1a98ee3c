"""Models from sequence to sequence on the command line: runs that decide together, and pages."""

import json
from pathlib import Path

import pytest

from command_fixtures import Ensue


@pytest.mark.slow
def test_runs_decide_together(ensue: Ensue, translators: Path) -> None:
    one, two = (translators / name for name in ("one", "two"))
    source = b"the cat sees a door\n"
    alone = json.loads(ensue("predict", one, "--json", stdin=source).out)
    twice = json.loads(ensue("predict", one, "--with", one, "--json", stdin=source).out)
    assert twice["text"] == alone["text"]
    assert twice["score"] == pytest.approx(alone["score"], abs=1e-5)
    both = ensue("predict", one, "--with", two, "--with", two, "--json", "--max-tokens", 3, stdin=source)
    other = ensue("predict", two, "--with", one, "--with", two, "--json", "--max-tokens", 3, stdin=source)
    assert json.loads(both.out)["score"] == pytest.approx(json.loads(other.out)["score"], abs=1e-5)


@pytest.mark.slow
def test_an_evaluation_of_several_says_so(ensue: Ensue, translators: Path) -> None:
    one, data = translators / "one", translators / "test.tsv"
    alone = ensue("evaluate", one, data, "--json", "--beams", 1)
    twice = ensue("evaluate", one, data, "--json", "--beams", 1, "--with", one)
    assert "2 models together" in twice.err
    assert "together" not in alone.err
    first, second = json.loads(alone.out), json.loads(twice.out)
    assert first.pop("signature") == second.pop("signature")
    assert second == pytest.approx(first, rel=1e-5)


def test_runs_that_do_not_go_together_are_one_line(refused, translators: Path, runs: Path) -> None:  # type: ignore[no-untyped-def]
    one, other = translators / "one", translators / "other"
    assert "other tokens than" in refused("predict", one, "--with", other, stdin=b"a\n")
    assert "its predict has no --with" in refused("predict", one, "--with", runs / "names", stdin=b"a\n")
    assert "its predict has no --with" in refused("predict", runs / "names", "--with", one, stdin=b"a\n")
    assert "nowhere" in refused("predict", one, "--with", translators / "nowhere", stdin=b"a\n")


@pytest.mark.slow
def test_a_page_of_an_output_and_of_a_given_target(ensue: Ensue, translators: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    said = ensue("inspect", translators / "one", "the cat", "--out", out, "--beams", 2)
    assert (said.status, said.err) == (0, f"wrote {out}\n")
    assert "<b>beam 2, length penalty 1</b>" in out.read_text()
    said = ensue("inspect", translators / "one", "the cat", "--target", "die Katze", "--out", out).succeeded()
    assert "the target is an argument" in out.read_text()


def test_a_target_and_a_number_of_texts_that_cannot_be(refused, translators: Path, runs: Path) -> None:  # type: ignore[no-untyped-def]
    assert "its inspect has no --target" in refused("inspect", runs / "names", "Anna", "--target", "B-PER")
    assert refused("inspect", translators / "one", "a", "b") == "the model reads one text; found 2"
