"""`ensue compare`: runs of any task side by side, with scores that are those of `evaluate`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.extensions.experiments.comparison import compare
from ensue.library import load

Refused = Callable[..., str]


def test_two_language_models(ensue: Ensue, trained: Path, text: Path) -> None:
    runs = [trained / "lstm", trained / "transformer"]
    found = json.loads(ensue("compare", *runs, "--test", text, "--json").out)
    for run, compared in zip(runs, found["runs"], strict=True):
        expected = load(run).evaluate(text).bits_per_character
        assert compared["scores"]["bits_per_character"] == pytest.approx(expected, rel=1e-6)
    first, second = found["runs"]
    difference = second["differences"]["bits_per_character"]
    assert difference["difference"] == pytest.approx(
        second["scores"]["bits_per_character"] - first["scores"]["bits_per_character"]
    )
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert first["differences"] == {}
    assert found["recipes"]["encoder.kind"] == ["lstm", "transformer"]
    assert "train.steps" not in found["recipes"]
    assert found["items"].endswith(" pieces")
    lines = ensue("compare", *runs, "--test", text).out.splitlines()
    assert sum(line.startswith("| ---") for line in lines) == 3
    assert all(line.startswith("|") or not line or line.endswith(".") for line in lines)


def test_without_data_in_common_the_scores_are_those_that_were_kept(ensue: Ensue, trained: Path) -> None:
    said = ensue("compare", trained / "lstm", trained / "transformer")
    assert "note: the recipes name no data in common" in said.err
    assert "with the scores that they have kept" in said.out
    assert "nats per token" in said.out
    assert "bootstrap" not in said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "data", "scores"),
    [
        ("names", "names.txt", {"accuracy", "f1"}),
        ("upos", "upos.conllu", {"accuracy"}),
        ("topics", "topics.tsv", {"accuracy"}),
        ("several", "several.txt", {"accuracy", "micro_f1"}),
    ],
)
def test_taggers_and_classifiers(runs: Path, run: str, data: str, scores: set[str]) -> None:
    found = compare([runs / run, runs / run], test=runs / data)
    expected = load(runs / run).evaluate(runs / data).as_json()
    for compared in found.runs:
        assert compared.scores == pytest.approx({name: expected[name] for name in scores})
    assert {name: one.p for name, one in found.runs[1].differences.items()} == dict.fromkeys(scores, 1.0)


def test_runs_that_cannot_be_compared(refused: Refused, trained: Path, runs: Path, text: Path) -> None:
    assert refused("compare", trained / "lstm", runs / "names").endswith(
        f"names: a tagger, and {trained / 'lstm'} is a language model; expected runs of one task"
    )
    assert refused("compare", trained / "lstm") == "compare takes two runs, or more"
    assert "no such run directory" in refused("compare", trained / "lstm", "none")
    both = (trained / "lstm", trained / "transformer")
    assert "no such file" in refused("compare", *both, "--test", "none.txt")
    assert "has no --format" in refused("compare", *both, "--test", text, "--format", "csv")
