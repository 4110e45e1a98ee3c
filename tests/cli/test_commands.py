"""Output of the commands, and the part of it for other programs."""

import csv
import io
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import ensue as package
from command_fixtures import SMALL, Ensue
from ensue.console.reporter import ConsoleReporter
from ensue.console.tables import csv_lines
from ensue.errors import EnsueError
from ensue.recipe import Recipe, read_recipe, recipe_names
from machine_speed import MachineSpeed
from training.tiny import some_slow
from written_files import write_file

pytestmark = pytest.mark.usefixtures("in_tmp_path")

ENTRY = "import ensue.cli; ensue.cli.main()"


def test_help_lists_and_errors_of_missing_runs_need_no_torch() -> None:
    code = """
import sys, ensue.cli
good = ["--help"], ["train", "--help"], [], ["cache"], ["--version"], ["recipes"], ["recipes", "char-lstm"]
for arguments in *good, ["predict", "nosuch"]:
    sys.argv[1:] = arguments
    try:
        ensue.cli.main()
    except SystemExit as end:
        assert (end.code or 0) == (0 if arguments in good else 2)
    print("imported:", *sorted({"torch", "numpy"} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line for line in result.stdout.splitlines() if line.startswith("imported:")] == ["imported:"] * 8
    assert result.stderr == "ensue: nosuch: no such run directory\n"


def test_help_takes_little_time() -> None:
    """The time is that of the processor, in seconds of the reference machine, and the least of several."""
    speed = MachineSpeed()

    def seconds() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", ENTRY, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        total = after.children_user + after.children_system - before.children_user - before.children_system
        return speed.in_reference_seconds(total)

    assert any(seconds() < 0.3 for _ in range(6))


def test_help_names_every_command(ensue: Ensue) -> None:
    result = ensue("--help").succeeded()
    for command in ("quickstart", "train", "evaluate", "score", "generate", "recipes"):
        assert f"  {command} " in result.out
    assert ensue().out == result.out
    assert ensue("--version").out == f"ensue {package.__version__}\n"
    assert "..." not in result.out.partition("Commands:")[2], "a command whose first sentence is too long for the list"


def test_train_shows_its_progress_and_the_next_commands(ensue: Ensue, text: Path) -> None:
    result = ensue("train", "char-lstm", "--train", text, "--out", "my run", *SMALL)
    assert (result.status, result.out) == (0, "")
    assert "cpu, 1 thread, float32" in result.err
    assert "validation: read once from beginning to end, state carried" in result.err
    assert "step 3  validation" in result.err
    assert result.err.endswith("try\n  ensue generate 'my run'\n")
    assert "Traceback" not in result.err


def test_recipes_take_a_budget_in_minutes(ensue: Ensue, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that a solver trains in one step needs no budget."""
    recipes: list[Recipe] = []

    def stop(recipe: Recipe, *_: object, **__: object) -> None:
        recipes.append(recipe)
        raise EnsueError("not trained")

    monkeypatch.setattr("ensue.cli.training.train_recipe", stop)
    for name in recipe_names():
        result = ensue("train", name, "--train", str(text), "--minutes", "0.5", "--out", "run")
        assert "not trained" in result.err, result.err
        has_effect = "--minutes has no effect" not in result.err
        assert (recipes[-1].train.seconds, recipes[-1].train.steps) == ((30, None) if has_effect else (None, 1))
    Path("new.toml").write_text('task = "language-modeling"\nencoder.kind = "lstm"\ntrain.learning_rate = 0.1')
    assert "not trained" in ensue("train", "new.toml", "--train", str(text), "--minutes", "0.5", "--out", "run").err
    assert "exactly one of steps" in ensue("train", "new.toml", "--train", str(text), "--out", "run").err


def test_evaluate_json_is_one_object(ensue: Ensue, trained: Path, text: Path) -> None:
    for model in ("lstm", "transformer"):
        result = ensue("evaluate", trained / model, text, "--json")
        scores = json.loads(result.out)
        assert result.out.count("\n") == 1
        assert {"nats_per_token", "perplexity", "bits_per_character", "tokens", "characters"} <= scores.keys()
        assert scores["tokens"] == scores["characters"] == len(text.read_text())
        assert scores["perplexity"] == pytest.approx(math.exp(scores["nats_per_token"]))
        assert "read once from beginning to end" in result.err
    table = ensue("evaluate", trained / "lstm", text)
    assert "perplexity" in table.out


def test_scores_of_several_runs_are_shown_as_a_table(
    ensue: Ensue, refused: Callable[..., str], trained: Path, tmp_path: Path
) -> None:
    lstm, other_run = trained / "lstm", trained / "transformer"
    text = write_file(tmp_path / "text.txt", 'the "cat"\nsat, ')
    tables = [
        list(csv.DictReader(io.StringIO(ensue("score", lstm, text, "--csv", *more).out)))
        for more in ((), ("--beside", other_run))
    ]
    scored = [list(map(json.loads, ensue("score", run, text, "--json").out.splitlines())) for run in (lstm, other_run)]
    assert tables[0] == [
        {"position": str(number), "token": scores["token"], "nats": str(scores["nats"])}
        for number, scores in enumerate(scored[0], 1)
    ]
    assert tables[1] == [
        {
            "position": str(number),
            "token": a["token"],
            f"nats {lstm}": str(a["nats"]),
            f"nats {other_run}": str(b["nats"]),
        }
        for number, (a, b) in enumerate(zip(*scored, strict=True), 1)
    ]
    assert "expected one" in refused("score", lstm, text, "--csv", "--json")
    assert "--beside RUN needs --csv" in refused("score", lstm, text, "--beside", other_run)
    assert "occurs twice" in refused("score", lstm, text, "--csv", "--beside", lstm)
    assert "found stdin" in refused("score", lstm, "--csv", "--beside", other_run, stdin=b"the")


def test_runs_with_different_tokens_have_no_table() -> None:
    lines = ['{"token": "a", "nats": 1}', '{"token": "b", "nats": 2}']
    with pytest.raises(EnsueError, match=r'position 2: ."token": "b". and nothing'):
        list(csv_lines({"x": lines, "y": lines[:1]}))
    with pytest.raises(EnsueError, match="at position 1"):
        list(csv_lines({"x": lines, "y": lines[1:]}))
    pairs = ['{"source": "a", "target": "b", "nats": 1.5, "tokens": 2}']
    assert list(csv_lines({"x": pairs})) == ["position,source,target,nats", "1,a,b,1.5"]


@pytest.mark.parametrize("model", some_slow(["lstm", "transformer"], "lstm"))
def test_generate_writes_the_same_text_for_the_same_seed(model: str, ensue: Ensue, trained: Path) -> None:
    options = ["--prompt", "the ", "--max-tokens", 40, "--temperature", 0.8, "--top-p", 0.95]
    first, same, other = (ensue("generate", trained / model, *options, "--seed", s).out for s in (1, 1, 2))
    assert first == same != other
    assert first.startswith("the ")
    assert len(first) == 4 + 40 + 1
    lm = package.load(trained / model, device="cpu")
    assert first == "the " + "".join(lm.generate("the ", max_tokens=40, temperature=0.8, top_p=0.95, seed=1)) + "\n"
    assert ensue("generate", trained / model, *options[2:], "--seed", 1, "--prompt", "-", stdin=b"the ").out == first


def test_generate_can_use_beam_search(ensue: Ensue, trained: Path) -> None:
    run, options = trained / "lstm", ["--prompt", "the ", "--max-tokens", 12]
    first, second = package.load(run, device="cpu").search("the ", beams=4, n_best=2, max_tokens=12)
    assert ensue("generate", run, *options, "--beams", 4).out == f"the {first.text}\n"
    assert ensue("generate", run, *options, "--beams", 4, "--n-best", 2).out == (
        f"--- 1 ({first.nats:.2f} nats)\nthe {first.text}\n\n--- 2 ({second.nats:.2f} nats)\nthe {second.text}\n"
    )


def test_recipes_are_listed_and_shown(ensue: Ensue) -> None:
    listed = ensue("recipes").out.splitlines()
    assert sorted(line.split()[0] for line in listed if re.match("  [a-z]", line)) == sorted(recipe_names())
    assert max(map(len, listed)) <= 80
    assert "tagger: sentences with a label for each word" in listed
    assert any(re.match(r"  char-lstm +5 min  Characters with one LSTM", line) for line in listed)
    for name in recipe_names()[::8]:
        Path("shown.toml").write_text(ensue("recipes", name).out, encoding="utf-8")
        assert read_recipe("shown.toml") == read_recipe(name)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_quickstart_ends_with_samples_and_three_working_commands(encoding: str, ensue: Ensue, text: Path) -> None:
    Path("own.txt").write_text(text.read_text(encoding="utf-8"), encoding=encoding)
    result = ensue("quickstart", "own.txt", "--seconds", 1, "--threads", 1, "--encoding", encoding).succeeded()
    assert "--- sample 1\n" in result.out
    assert "--- sample 2\n" in result.out
    assert "quickstart/curve.png" in result.err
    assert Path("quickstart/curve.png").is_file()
    commands = [shlex.split(line) for line in result.err.splitlines() if line.startswith("  ensue ")][-3:]
    assert [command[1] for command in commands] == ["generate", "score", "train"]
    for command in (*commands[:2], [*commands[2], *SMALL]):
        assert ensue(*command[1:]).status == 0


@pytest.mark.slow
def test_ctrl_c_before_the_first_validation_ends_quickstart_with_one_line(
    ensue: Ensue, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ConsoleReporter, "stepped", lambda self, report: signal.raise_signal(signal.SIGINT))
        result = ensue("quickstart", text, "--seconds", 60, "--threads", 1)
    assert result.status == 130
    assert "resume with\n  ensue train --resume --out quickstart\nor decay the learning rate to zero in " in result.err
    assert result.out == ""
    program, *command = result.err.splitlines()[-1].split()
    assert program == "ensue"
    assert "finished at step 2 " in ensue(*command).err


@pytest.mark.parametrize("is_terminal", [False, True])
def test_work_before_training_is_shown(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.console.reporter.SECONDS_BETWEEN_LINES", 0)
    shown = io.StringIO()
    with ConsoleReporter(Console(file=shown, force_terminal=is_terminal, width=80)) as reporter:
        for share in (0.25, 1.0, 0.5):  # the second data set begins
            reporter.working("layers of [a] run", share)
    assert "layers of [a] run" in shown.getvalue()
    assert ("25%" in shown.getvalue()) == (not is_terminal)
    assert "50 %" in shown.getvalue() or not is_terminal
