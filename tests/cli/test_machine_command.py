"""The machine's profile on the command line, and commands that do not measure it."""

import json
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.training.machine import Machine, Profile, machine_profile


def test_the_profile_is_shown_and_renewed(ensue: Ensue, measured: list[Machine]) -> None:
    first = ensue("machine")
    assert (first.status, len(measured)) == (0, 1)
    assert first.err.startswith("measuring the fastest")
    assert "float32, BLAS, 1 thread" in first.out
    assert "1.0*" in first.out
    assert "busy" not in first.out
    repeated = ensue("machine")
    assert (repeated.out, repeated.err) == (first.out, "")
    renewed = ensue("machine", "--renew")
    assert len(measured) == 2
    assert "the machine was busy" in renewed.out


def test_json_is_one_object(ensue: Ensue, measured: list[Machine]) -> None:
    result = ensue("machine", "--json")
    shown, profile = json.loads(result.out), machine_profile()
    assert result.out.count("\n") == 1
    assert (shown["id"], Path(shown["path"])) == (profile.id, profile.machine.path)
    assert shown["chosen"]["words"] == {"precision": "float32", "products": "highest", "kernel": None, "threads": 1}
    assert Profile.model_validate({key: shown[key] for key in Profile.model_fields}) == profile


@pytest.mark.slow
def test_training_reports_its_measurement(ensue: Ensue, text: Path, measured: list[Machine], in_tmp_path: None) -> None:
    settings = [word for value in ("encoder.d_model=8", "train.steps=2") for word in ("--set", value)]
    first = ensue("train", "char-lstm", "--train", text, "--out", "first", *settings)
    second = ensue("train", "char-lstm", "--train", text, "--out", "second", *settings)
    assert (first.status, second.status, len(measured)) == (0, 0, 1)
    assert "note: measuring the fastest compute mode once" in first.err
    assert "measuring" not in second.err


@pytest.mark.parametrize("command", ["generate", "evaluate", "score"])
def test_use_measures_no_machine(
    command: str, ensue: Ensue, trained: Path, text: Path, measured: list[Machine]
) -> None:
    arguments = ["--max-tokens", "3"] if command == "generate" else [text]
    assert ensue(command, trained / "lstm", *arguments).status == 0
    assert measured == []
