"""`ensue compare`: runs of any task side by side, with scores that are those of `evaluate`."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command_fixtures import Ensue
from ensue.extensions.experiments.comparison import _compare_recipes, _explain_missing_data, _find_common_data, compare
from ensue.library import load
from ensue.recipe import read_recipe
from ensue.runs.directory import RunDirectory

Refused = Callable[..., str]


def test_scores_of_language_models_are_those_of_evaluate(ensue: Ensue, trained: Path, text: Path) -> None:
    runs = [trained / "lstm", trained / "transformer"]
    comparison = json.loads(ensue("compare", *runs, "--test", text, "--json").out)
    for run, compared in zip(runs, comparison["runs"], strict=True):
        expected = load(run).evaluate(text).bits_per_character
        assert compared["scores"]["bits_per_character"] == pytest.approx(expected, rel=1e-6)
    first, second = comparison["runs"]
    difference = second["differences"]["bits_per_character"]
    assert difference["difference"] == pytest.approx(
        second["scores"]["bits_per_character"] - first["scores"]["bits_per_character"]
    )
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert first["differences"] == {}
    assert comparison["recipes"]["encoder.kind"] == ["lstm", "transformer"]
    assert "train.steps" not in comparison["recipes"]
    assert comparison["items"].endswith(" pieces")
    lines = ensue("compare", *runs, "--test", text).out.splitlines()
    assert sum(line.startswith("| ---") for line in lines) == 3
    assert all(line.startswith("|") or not line or line.endswith(".") for line in lines)


def test_without_common_data_the_scores_are_those_of_the_logs(ensue: Ensue, trained: Path) -> None:
    result = ensue("compare", trained / "lstm", trained / "transformer")
    assert "note: all runs held out the same share of" in result.err
    assert "with the scores of their logs" in result.out
    assert "nats per token" in result.out
    assert "bootstrap" not in result.out


def test_common_data_are_the_test_data_or_else_the_validation_data() -> None:
    def run(test: str, valid: str, text: str = "", held_out: str = "") -> Any:
        data = SimpleNamespace(test=test, valid=valid, train="s.txt", valid_fraction=0.1)
        return SimpleNamespace(
            recipe=SimpleNamespace(data=data), config={"held_out": {"valid": held_out or None}, "text": text}
        )

    assert _find_common_data([run("t", "v"), run("t", "other")]) == "t"
    assert _find_common_data([run("t", "v"), run("", "v")]) == "v"
    assert _find_common_data([run("", "v"), run("", "other")]) == ""
    assert _find_common_data([run("", "v", held_out="1"), run("", "./v", held_out="1")]) == "v"
    assert "no data in common" in _explain_missing_data([run("", "", "1"), run("", "", "2")])
    assert "no data in common" in _explain_missing_data([run("", "v", "1"), run("", "", "1")])
    assert "held out the same share of s.txt" in _explain_missing_data([run("", "", "1"), run("", "", "1")])


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
def test_scores_of_taggers_and_classifiers_are_those_of_evaluate(
    runs: Path, run: str, data: str, scores: set[str]
) -> None:
    comparison = compare([runs / run, runs / run], test=runs / data)
    expected = load(runs / run).evaluate(runs / data).as_json()
    for compared in comparison.runs:
        assert compared.scores == pytest.approx({name: expected[name] for name in scores})
    assert {name: one.p for name, one in comparison.runs[1].differences.items()} == dict.fromkeys(scores, 1.0)


def test_a_run_that_was_trained_on_the_data_is_noted(ensue: Ensue, trained: Path, text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_text(text.read_text()[:400])
    train = Path(RunDirectory(trained / "lstm").recipe.data.train)
    for data, notes in ((train, 2), (copy, 0)):
        result = ensue("compare", trained / "lstm", trained / "transformer", "--test", data).err
        assert result.count("was trained on ") == notes, result


def test_runs_that_cannot_be_compared_are_refused(refused: Refused, trained: Path, runs: Path, text: Path) -> None:
    assert refused("compare", trained / "lstm", runs / "names").endswith(
        f"names: a tagger, and {trained / 'lstm'} is a language model; expected runs of the same task"
    )
    assert refused("compare", trained / "lstm") == "expected two or more runs"
    assert "no such run directory" in refused("compare", trained / "lstm", "none")
    both = (trained / "lstm", trained / "transformer")
    assert "no such file" in refused("compare", *both, "--test", "none.txt")
    assert "has no --format" in refused("compare", *both, "--test", text, "--format", "csv")


def test_keys_of_a_single_kind_of_layers_are_not_listed() -> None:
    recipes = [read_recipe("char-lstm"), read_recipe("char-transformer", {"train.seconds": 7})]
    rows = _compare_recipes(recipes)
    assert rows["encoder.kind"] == ["lstm", "transformer"]
    assert rows["train.seconds"][1] == 7
    assert not [key for key, row in rows.items() if key.startswith("encoder.") and None in row]
    assert "encoder.num_heads" in {**recipes[1].values()}
