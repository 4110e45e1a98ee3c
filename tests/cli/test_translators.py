"""Models from sequence to sequence on the command line: runs that decide together, and pages."""

import json
from pathlib import Path

import pytest

import ensue as package
from command_fixtures import Ensue
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, surprisals


def nats(ensue: Ensue, *arguments: object) -> list[float]:
    said = ensue("score", *arguments, "--json", stdin=b"the cat sees a door\tdie Katze sieht eine T\xc3\xbcr\n" * 2)
    assert said.status == 0, said.err
    return [json.loads(line)["nats"] for line in said.out.splitlines()]


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
def test_the_surprisal_of_several_is_that_of_the_mean_of_their_probabilities(ensue: Ensue, translators: Path) -> None:
    one, two = translators / "one", translators / "two"
    alone, other = nats(ensue, one), nats(ensue, two)
    assert nats(ensue, one, "--with", one) == pytest.approx(alone, abs=1e-5)
    together = nats(ensue, one, "--with", two)
    models = [package.load(run, device="cpu") for run in (one, two)]
    pair = Pair(("the cat",), ("die",))
    source, target = models[0]._encoded(pair, "die")
    encoded = EncodedPairs.of_targets(Ragged.of([source]), [target])
    each = [next(surprisals(model.model, encoded, begin_id=model.coder.target.begin_id))[1] for model in models]
    expected = -((-each[0]).exp() + (-each[1]).exp()).div(2).log().sum()
    assert models[0].with_others(models[1]).score("the cat", "die") == pytest.approx(float(expected), abs=1e-5)
    assert together != pytest.approx(alone, abs=1e-4)
    assert together != pytest.approx(other, abs=1e-4)


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
    said = ensue("inspect", translators / "one", "the cat", "--target", "die Katze", "--out", out)
    assert said.status == 0
    assert "the target was given" in out.read_text()


def test_a_target_and_a_number_of_texts_that_cannot_be(refused, translators: Path, runs: Path) -> None:  # type: ignore[no-untyped-def]
    assert "its inspect has no --target" in refused("inspect", runs / "names", "Anna", "--target", "B-PER")
    assert refused("inspect", translators / "one", "a", "b") == "the model reads one text; found 2"
