"""Run directories: their files, the checks when they are read, and files that are never overwritten."""

import json
import re
from pathlib import Path

import pytest
import torch

from ensue.errors import DataError, EnsueError, RunError, TrainingError
from ensue.parsing import MAX_LINE_BYTES
from ensue.recipe import read_recipe
from ensue.runs import pictures
from ensue.runs.checkpoint import complete_checkpoints, load_checkpoint, save_checkpoint
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import MetricsLog
from ensue.runs.schema import Progress
from ensue.runs.weights import read_tensors, write_tensors
from ensue.training import run as run_module
from ensue.training.optimizer import build_optimizer
from training.tiny import Recorder, reproducible_state, run_tiny, seal, tiny_recipe, words
from training.tiny_texts import tagging
from written_files import write_file


def test_a_run_has_all_files_and_scores_of_a_model(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", pictures.draw_curve)
    test_text = write_file(tmp_path / "test.txt", words(100, seed=5))
    recorder = Recorder()
    recipe = tiny_recipe(text, data={"test": str(test_text)})
    outcome = run_tiny(recipe, tmp_path / "my run", reporter=recorder)
    run = tmp_path / "my run"
    assert {p.name for p in run.iterdir()} == {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "README.md", "curve.png",
        "checkpoints", "manifest.json", ".lock",
    }  # fmt: skip
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert read_recipe(run / "recipe.toml") == recipe
    config = json.loads((run / "config.json").read_text())
    assert (config["format_version"], config["task"], config["runtime"]["threads"]) == (3, "language-modeling", 1)
    card = (run / "README.md").read_text()
    best = recorder.validations[-1]
    assert outcome.valid == best.scores
    assert outcome.test is not None
    for scores in (outcome.valid, outcome.test):
        assert f"{scores['nats_per_token']:.4f} | {scores['perplexity']:.4f}" in card
    assert f"step {outcome.best_step} of 12" in card
    assert "generate '" in card  # paths with blanks are quoted
    assert str(test_text) in card


def test_metrics_have_a_line_for_each_report(text: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    run_tiny(tiny_recipe(text), tmp_path / "run", reporter=recorder)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    train = [r for r in records if r["kind"] == "train"]
    assert [r["loss"] for r in train] == [report.loss for report in recorder.steps]
    assert train[-1]["tokens"] == 12 * 4 * 12
    valid = [r for r in records if r["kind"] == "valid"]
    assert [(r["step"], r["best"], r["scores"], r["sample"]) for r in valid] == [
        (v.step, v.best, v.scores, v.sample) for v in recorder.validations
    ]
    assert all(len(r["sample"]) == 8 for r in valid)


def test_reports_are_means_since_the_last_one(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.loop.NUM_REPORTS", 4)
    recorder = Recorder()
    run_tiny(tiny_recipe(text, steps=12), tmp_path / "run", reporter=recorder)
    train = [r for r in MetricsLog(tmp_path / "run" / "metrics.jsonl").records() if r["kind"] == "train"]
    assert [r["step"] for r in train] == [3, 6, 9, 12]
    expected = sum(report.loss for report in recorder.steps[6:9]) / 3
    assert train[2]["loss"] == pytest.approx(expected, rel=1e-6)


def test_a_log_is_rewound_to_an_earlier_entry(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    line = {"seconds": 0.5, "tokens": 7, "loss": 1.5, "learning_rate": 0.1}
    log.rewind(None)
    log.append("train", step=1, **line)
    start = log.entry()
    log.append("train", step=2, **line)
    good = log.path.read_text()
    log.path.write_text(good + '{"kind": "tra')
    assert [r["step"] for r in log.records()] == [1, 2]  # the third line is incomplete
    log.rewind(start)
    assert [r["step"] for r in log.records()] == [1]
    log.path.write_text(good.replace("1.5", "1.6"))
    with pytest.raises(RunError, match=r"metrics.jsonl: altered since it was written"):
        log.rewind(start)
    log.path.write_text(good + " " * MAX_LINE_BYTES)  # read line by line, in bounded memory
    with pytest.raises(RunError, match=r"metrics.jsonl:2: damaged: a line of 16,777,216 bytes or more"):
        [*log.records()]
    log.path.write_text("")
    with pytest.raises(RunError, match=r"metrics.jsonl: damaged: 0 bytes"):
        log.rewind(start)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_checkpoint_is_restored_exactly(name: str, tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, optimizer=name).train

    def build(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 2)
        return model, build_optimizer(model, recipe)

    model, optimizer = build(0)
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    state = ((torch.rand(2, 3), None), torch.rand(2, 1))
    progress = Progress(step=3, seconds=1.25, tokens=7, best=1 / 3, best_step=2, stale=1, total_nats=0.1)
    write_tensors(tmp_path / "best", {"weight": torch.ones(1)})
    path = save_checkpoint(tmp_path, model, optimizer, state, progress, best=tmp_path / "best")
    assert (path / "best.safetensors").read_bytes() == (tmp_path / "best").read_bytes()
    other, other_optimizer = build(1)
    empty = ((torch.zeros(2, 3), None), torch.zeros(2, 1))
    after, counters = load_checkpoint(path, other, other_optimizer, empty)
    assert counters == progress
    torch.testing.assert_close(after, state, rtol=0, atol=0)
    for m, o in ((model, optimizer), (other, other_optimizer)):
        o.zero_grad()
        m(torch.ones(1, 3)).sum().backward()
        o.step()
    torch.testing.assert_close(dict(other.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0)


def test_two_checkpoints_are_kept_and_partial_ones_removed(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = build_optimizer(model, tiny_recipe(tmp_path).train)
    (tmp_path / ".step-1.partial").mkdir()
    for step in (2, 9, 10, 11):
        save_checkpoint(tmp_path, model, optimizer, None, Progress(step=step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-10", "step-11"]
    assert [p.name for p in complete_checkpoints(tmp_path)] == ["step-10", "step-11"]


def test_only_one_process_trains_a_run(text: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(text, steps=2)
    run_tiny(recipe, tmp_path / "run")
    before = reproducible_state(tmp_path / "run")
    with RunDirectory(tmp_path / "run").lock():
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match="another process is training"):
                run_tiny(recipe, tmp_path / "run", **options)
    assert reproducible_state(tmp_path / "run") == before


def test_a_run_that_appears_while_the_text_is_read_is_not_overwritten(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(text, steps=2)
    original = run_module.begin_job

    def slow(*args: object) -> object:
        monkeypatch.setattr(run_module, "begin_job", original)
        run_tiny(recipe, tmp_path / "run")
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "begin_job", slow)
    with pytest.raises(RunError, match="in the meantime"):
        run_tiny(tiny_recipe(text, steps=3), tmp_path / "run")
    assert reproducible_state(tmp_path / "run")["checkpoint"] == "step-2"


@pytest.mark.parametrize("name", ["README.md", "recipe.toml", "notes"])
@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_a_folder_with_other_files_is_refused(name: str, options: dict[str, bool], text: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_text("mine")
    with pytest.raises(RunError, match=f"not a run directory .found {name}"):
        run_tiny(tiny_recipe(text), tmp_path / "folder", **options)
    assert [p.name for p in (tmp_path / "folder").iterdir()] == [name]


def test_the_model_of_another_program_is_not_overwritten(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["SomethingElse"]}')
    (folder / "model.safetensors").write_text("precious")
    with pytest.raises(RunError, match="not a run directory"):
        run_tiny(tiny_recipe(text), folder, overwrite=True)
    assert (folder / "model.safetensors").read_text() == "precious"


def test_an_empty_folder_and_an_incomplete_run_are_accepted(text: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with RunDirectory(tmp_path / "run").lock():
        (tmp_path / "run" / "recipe.toml").write_text("half")
        (tmp_path / "run" / "config.json.partial").write_text("half")
    assert run_tiny(tiny_recipe(text, steps=2), tmp_path / "run").step == 2


def test_overwrite_keeps_other_files_and_the_run_if_data_are_bad(text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text), tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = reproducible_state(tmp_path / "run")
    short = write_file(tmp_path / "short.txt", "too short")
    for bad, error in ((tmp_path / "missing.txt", DataError), (short, TrainingError)):
        with pytest.raises(error):
            run_tiny(tiny_recipe(bad), tmp_path / "run", overwrite=True)
        assert reproducible_state(tmp_path / "run") == before
    run_tiny(tiny_recipe(text, steps=3), tmp_path / "run", overwrite=True)
    assert reproducible_state(tmp_path / "run")["checkpoint"] == "step-3"
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_clear_removes_only_files_of_the_run(names: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run_tiny(tagging(names, encoder="none", steps=1), run.path)
    for name in ("curve.png", "confusion.png", "notes.txt", "labels.json.partial", "mine.partial"):
        (run.path / name).touch()
    run.clear()
    assert {path.name for path in run.path.iterdir()} == {".lock", "notes.txt", "mine.partial"}


def test_an_altered_byte_of_a_weights_file_is_detected(text: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run_tiny(tiny_recipe(text, steps=2), run.path)
    good = run.weights.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    places = [*range(0, header, header // 10), *range(header, len(good), len(good) // 10)]
    for place in places:
        altered = bytearray(good)
        altered[place] ^= 1 << (place % 7)
        run.weights.write_bytes(altered)
        with pytest.raises(RunError, match=re.escape(str(run.weights))):
            run.model(torch.device("cpu"))
    for length in (0, 5, header // 2, header, len(good) - 1):
        run.weights.write_bytes(good[:length])
        with pytest.raises(RunError, match="damaged"):
            run.model(torch.device("cpu"))


def test_weights_of_another_type_are_detected(text: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run_tiny(tiny_recipe(text, steps=1), run.path)
    write_tensors(run.weights, {n: t.view(torch.int32) for n, t in read_tensors(run.weights).items()})
    seal(run.path)
    with pytest.raises(RunError, match=r"altered: .* should be torch.float32, is torch.int32"):
        run.model(torch.device("cpu"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.safetensors", "progress.json"])
def test_a_damaged_checkpoint_is_refused(file: str, text: Path, tmp_path: Path) -> None:
    run_tiny(tiny_recipe(text), tmp_path / "run")
    path = complete_checkpoints(tmp_path / "run" / "checkpoints")[-1] / file
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(EnsueError, match=rf"{file}: .*damaged"):
        run_tiny(None, tmp_path / "run", resume=True)
