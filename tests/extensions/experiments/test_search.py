"""Searches: invalid spaces, trials that are runs, and a killed search that resumes to the same trials."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w

from ensue.errors import EnsueError, RunError
from ensue.extensions.experiments import search as searching
from ensue.extensions.experiments.space import Choice, Range, Space, _read_range, read_space
from ensue.recipe import Recipe, read_recipe
from training.tiny import tiny_recipe, words

SPACE = """
[train]
learning_rate = { low = 1e-4, high = 0.3, log = true }
batch_size = { low = 2, high = 4 }
[encoder]
d_model = { low = 4, high = 12, step = 4 }
kind = ["lstm", "gru"]
"""

SEARCH = [sys.executable, "-m", "ensue", "search", "tiny.toml", "--device", "cpu", "--threads", "1"]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "text.txt").write_text(words(300))
    return tiny_recipe(tmp_path / "text.txt", steps=6, validations=3)


def space_of(folder: Path, text: str) -> Path:
    path = folder / "space.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.learnig_rate = [0.1]", 'unknown key "train.learnig_rate" in train; did you mean "learning_rate"?'),
        ("train.learning_rate = { low = 0.1, hihg = 1 }", 'unknown key "hihg"; did you mean "high"?'),
        ("train.learning_rate = { low = 0.1 }", "train.learning_rate: expected low and high, found low alone"),
        ("train.learning_rate = { low = 0.1, high = 0.1 }", "expected low below high, found 0.1 and 0.1"),
        ("train.learning_rate = { low = 0.0, high = 0.1, log = true }", "log = true requires low above 0"),
        ("train.learning_rate = { low = 0.1, high = 1, step = 2 }", "step: expected a number above 0, up to 0.9"),
        ("train.learning_rate = { low = 0.1, high = nan }", "high: expected a number, found nan"),
        ("train.batch_size = { low = 0, high = 4 }", "train.batch_size = 0: the recipe: train.batch_size: input"),
        ("train.batch_size = [2, 2.5]", "train.batch_size = 2.5: the recipe: train.batch_size: input"),
        ("train.batch_size = [2026-01-01]", 'train.batch_size = "2026-01-01": the recipe: train.batch_size: input'),
        ("train.batch_size = 4", "train.batch_size: expected a list of choices, or { low, high }; found 4"),
        ("train.batch_size = []", "expected a list of choices, or { low, high }; found []"),
        ("train.steps = [1, 2]\ntrain.seconds = [1, 2]", "train.steps and train.seconds: expected at most one budget"),
        ("", "no keys; expected keys like train.learning"),
        ("[train", "not TOML"),
    ],
)  # fmt: skip
def test_invalid_spaces_are_refused_in_one_line(recipe: Recipe, tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(EnsueError) as caught:
        read_space(space_of(tmp_path, text), recipe)
    assert str(caught.value).startswith(f"{tmp_path / 'space.toml'}: ")
    assert expected in str(caught.value)


def test_a_folder_with_another_search_is_refused(tmp_path: Path) -> None:
    plan = {"recipe": {"train.steps": 3}, "space": {"encoder.d_model": [4, 8]}, "seed": 0}
    searching.begin_search(tmp_path / "out", plan)
    searching.begin_search(tmp_path / "out", plan)
    for other, expected in (
        ({"space": {"encoder.d_model": [4, 9]}}, r"\(found space: encoder.d_model = \[4, 8\]; expected \[4, 9\]\)"),
        ({"space": {"train.seed": [1]}}, r"\(found space: train.seed = null; expected \[1\]\)"),
        ({"recipe": {"train.steps": 4}}, r"\(found recipe: train.steps = 3; expected 4\)"),
        ({"seed": 1}, r"\(found seed = 0; expected 1\); choose another out$"),
    ):
        with pytest.raises(RunError, match=expected):
            searching.begin_search(tmp_path / "out", {**plan, **other})
    (tmp_path / "photo.jpg").write_text("precious")
    with pytest.raises(RunError, match=r"not empty, and not a search \(found out\)"):
        searching.begin_search(tmp_path, plan)


def test_without_optuna_one_line_names_the_extra(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.extensions.experiments.space.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match=r"^search needs the package optuna: pip install 'ensue\[search\]'$"):
        searching.search(recipe, {}, tmp_path / "out", trials=1)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["[]", "null", '{"op_code": 99}', '{"op_code": 4, "worker_id": "x"}', "{}"])
def test_a_damaged_journal_is_refused_in_one_line(line: str, recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "journal.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunError, match=r"journal.jsonl: damaged: ") as caught:
        searching.Study(tmp_path, {}, seed=0, prune=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (Range(1, 64, log=True), ("int", 1, 64, {"log": True, "step": 1})),
        (Range(1, 64, step=3), ("int", 1, 64, {"log": False, "step": 3})),
        (Range(0, 1, step=0.25), ("float", 0, 1, {"log": False, "step": 0.25})),
        (Range(1e-4, 1e-2, log=True), ("float", 1e-4, 1e-2, {"log": True, "step": None})),
        (Choice((1, [2, "b"])), [2, "b"]),
    ],
)
def test_values_are_suggested_by_the_type_of_the_range(values: Range | Choice, expected: object) -> None:
    trial = SimpleNamespace(
        suggest_int=lambda key, *bounds, **options: ("int", *bounds, options),
        suggest_float=lambda key, *bounds, **options: ("float", *bounds, options),
        suggest_categorical=lambda key, choices: choices[-1],
    )
    assert values.suggest(trial, "train.steps") == expected


def test_a_step_may_be_the_whole_range() -> None:
    assert _read_range({"low": 1, "high": 3, "step": 2}, "k") == Range(1, 3, step=2)


def trials_of(folder: Path) -> list[Any]:
    """Return the parts of the trials that must be equal in equal searches."""
    import optuna  # noqa: PLC0415

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "journal.jsonl")))
    study = optuna.load_study(study_name="search", storage=storage)
    return [(t.number, t.state.name, t.params, t.value, t.intermediate_values) for t in study.get_trials()]


def weights_of(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("trials/*/model.safetensors")}


@pytest.mark.slow
def test_trials_are_runs_and_the_best_is_a_recipe(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space, out, results = read_space(space_of(tmp_path, SPACE), recipe), tmp_path / "out", list[searching.TrialResult]()
    options = {"device": "cpu", "threads": 1}

    def check_page(result: searching.TrialResult) -> None:
        results.append(result)
        page = (out / "README.md").read_text()  # the page is updated after each trial
        assert page.count("`trials/") == len(results)
        assert (out / "best.toml").exists()

    assert searching.search(recipe, space, out, trials=7, on_trial=check_page, **options)
    assert [result.number for result in results] == list(range(7))
    complete = [result for result in results if result.state == "complete"]
    best = min(complete, key=lambda result: result.score or 0)
    chosen = read_recipe(out / "best.toml")
    assert {key: chosen.values()[key] for key in space} == best.values
    assert read_recipe(best.run / "recipe.toml").values() == {**chosen.values(), "about": ""}
    page = (out / "README.md").read_text()
    assert f"The best trial is {best.number}, with the lowest score, {best.score:.4f}." in page
    assert page.count("`trials/") == 7
    assert (out / "search.png").stat().st_size
    assert searching.search(recipe, space, out, trials=8, on_trial=results.append, **options)
    assert [result.number for result in results] == list(range(8))


def test_tables_are_shown_by_their_differing_keys(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    table = {"kind": "transformer", "num_heads": 4, "positions": "rotary", "dropout_attention": 0.0}
    sizes = [{"d_model": 208, "num_layers": 1}, {"d_model": 144, "num_layers": 2}, {"d_model": 104, "num_layers": 4}]
    space: Space = {
        "encoder": Choice(tuple({**table, **size} for size in sizes)),
        "data.train": Choice(("a/" * 60, "b")),
    }
    trials: list[Any] = [
        SimpleNamespace(number=k, value=k / 2, params={key: json.dumps(part.samples[k % len(part.samples)])
                                                       for key, part in space.items()})
        for k in range(4)
    ]  # fmt: skip
    searching.draw_trials(
        tmp_path / "search.png", trials, space, {"encoder": 0.9}
    )  # matplotlib warns where names leave no room
    assert searching.format_value({**table, **sizes[1]}, space["encoder"]) == "d_model 144, num_layers 2"


@pytest.mark.slow
def test_a_trial_with_values_that_cannot_be_trained_fails(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    attends = tiny_recipe(tmp_path / "text.txt", model="transformer", steps=2, validations=1)
    space = read_space(space_of(tmp_path, "encoder.num_heads = [2, 3]"), attends)
    results = list[searching.TrialResult]()
    assert searching.search(
        attends, space, tmp_path / "out", trials=6, on_trial=results.append, device="cpu", threads=1
    )
    for result in results:
        expected = (
            "complete"
            if result.values["encoder.num_heads"] == 2
            else "model: 8 features cannot be divided among 3 heads"
        )
        assert result.state == expected
    assert len({result.state for result in results}) == 2


@pytest.mark.slow
def test_a_search_that_is_killed_twice_has_the_undisturbed_trials(recipe: Recipe, tmp_path: Path) -> None:
    """Twelve trials by the command line; SIGKILL comes while a trial is trained, and while its values are chosen."""
    pytest.importorskip("optuna")
    (tmp_path / "tiny.toml").write_text(tomli_w.dumps(recipe.model_dump(exclude_unset=True)))
    space = space_of(tmp_path, SPACE)

    def started(out: str) -> subprocess.Popen[bytes]:
        command = [*SEARCH, "--space", space, "--trials", "12", "--out", out]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, env=os.environ)

    assert started("undisturbed").wait() == 0
    for is_time in (lambda n, last: n > 30 and '"op_code":7' in last, lambda n, last: n > 70 and '"op_code":5' in last):
        process = started("killed")
        wait_until(tmp_path / "killed" / "journal.jsonl", is_time)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    with (tmp_path / "killed" / "journal.jsonl").open("a") as journal:
        journal.write('{"op_code":8,')  # a truncated line, as after a power cut
    assert started("killed").wait() == 0
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert trials_of(killed) == trials_of(undisturbed)
    assert {state for _, state, *_ in trials_of(killed)} == {"COMPLETE", "PRUNED"}
    assert weights_of(killed) == weights_of(undisturbed)
    assert (killed / "best.toml").read_text() == (undisturbed / "best.toml").read_text()


def wait_until(journal: Path, is_time: Callable[[int, str], bool]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        lines = journal.read_text().splitlines() if journal.exists() else []
        if lines and is_time(len(lines), lines[-1]):
            return
    raise AssertionError("timeout")


@pytest.mark.slow
def test_two_processes_share_the_trials(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "tiny.toml").write_text(tomli_w.dumps(recipe.model_dump(exclude_unset=True)))
    command = [*SEARCH, "--space", space_of(tmp_path, SPACE), "--trials", "6", "--out", "out"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    trials = trials_of(tmp_path / "out")
    assert [number for number, *_ in trials] == list(range(6))
    assert {state for _, state, *_ in trials} <= {"COMPLETE", "PRUNED"}
    assert len(list((tmp_path / "out" / "trials").iterdir())) == 6
    assert all("trial " in lines for lines in outputs)
    assert json.loads((tmp_path / "out" / "search.json").read_text())["seed"] == 0
