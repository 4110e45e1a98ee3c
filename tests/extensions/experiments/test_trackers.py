"""Trackers record each line of the log once, also if a run is resumed; the failure of a tracker does not end a run."""

import csv
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ensue.errors import EnsueError
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import MetricsLog
from ensue.trackers import trackers_of
from ensue.trackers.tracker import Record, TrackedReporter, Tracker, numbers
from training.resuming import At, Killed, die
from training.tiny import Recorder, run_tiny, tiny_recipe, words
from training.tiny_texts import Listener


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("ensue.trackers.tracker.SECONDS_BETWEEN_READS", 0)
    (tmp_path / "text.txt").write_text(words(300))
    return tmp_path / "text.txt"


class Fragile(Tracker):
    name = "fragile"

    def begin(self, run: RunDirectory) -> None:
        self.num_records = 0

    def record(self, record: Record) -> None:
        self.num_records += 1
        if self.num_records == 3:
            raise OSError("cannot reach\nhttps://tracker.invalid")

    def flush(self) -> None:
        pass

    def end(self) -> None:
        raise AssertionError("a disabled tracker is not called")


def killed_and_resumed(text: Path, out: Path, name: str) -> list[Record]:
    recipe = tiny_recipe(text)
    with pytest.raises(Killed):
        run_tiny(recipe, out, reporter=TrackedReporter(At(7, die), out, trackers_of([name])))
    run_tiny(recipe, out, reporter=TrackedReporter(Recorder(), out, trackers_of([name])), resume=True)
    return [*MetricsLog(out / "metrics.jsonl").records()]


@pytest.mark.slow
def test_the_csv_file_has_each_record_once(text: Path, tmp_path: Path) -> None:
    records = killed_and_resumed(text, tmp_path / "run", "csv")
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["kind"], int(row["step"])) for row in rows] == [(r["kind"], r["step"]) for r in records]
    for row, record in zip(rows, records, strict=True):
        for name, value in numbers(record):
            assert float(row[name]) == value
    run_tiny(tiny_recipe(text), tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_tracker_that_fails_is_disabled_with_one_note(text: Path, tmp_path: Path) -> None:
    listener = Listener()
    outcome = run_tiny(
        tiny_recipe(text), tmp_path / "run", reporter=TrackedReporter(listener, tmp_path / "run", [Fragile()])
    )
    assert outcome.reason == "finished"
    assert len(listener.validations) == 3
    assert [note for note in listener.notes if "tracker" in note] == [
        "the tracker fragile has failed and is disabled: cannot reach\\nhttps://tracker.invalid"
    ]


def test_unknown_trackers_and_missing_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnsueError, match=r'^no tracker "cvs"; did you mean "csv"\?; known: csv, tensorboard, wandb$'):
        trackers_of(["cvs"])
    monkeypatch.setattr("ensue.extensions.experiments.trackers.WeightsAndBiases.package", "no_such_package")
    with pytest.raises(EnsueError, match=r"needs the package no_such_package: pip install 'ensue\[wandb\]'$"):
        trackers_of(["wandb"])


class Service:
    """The functions of wandb that ensue uses. Without a reachable server, `init` raises."""

    def __init__(self, *, is_there: bool = True) -> None:
        self.is_there, self.logged, self.ids = is_there, list[int](), list[str]()
        self.summary = dict[str, float]()

    def Settings(self, **settings: Any) -> Any:
        return settings

    def init(self, **options: Any) -> Any:
        if not self.is_there:
            raise TimeoutError("no answer from the server within 30 seconds")
        self.ids.append(options["id"])
        return SimpleNamespace(
            log=lambda scores, step: self.logged.append(step), summary=self.summary, finish=lambda exit_code: None
        )


def test_weights_and_biases_logs_each_step_once(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service)  # type: ignore[arg-type]
    monkeypatch.setattr("ensue.trackers.find_spec", lambda name: True)
    records = killed_and_resumed(text, tmp_path / "run", "wandb")
    assert service.logged == [record["step"] for record in records if record["kind"] != "test"]
    assert len(set(service.ids)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "[1]", '{"x": 1}'])
def test_a_damaged_record_of_logged_steps_logs_again(
    content: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, out, listener = Service(), tmp_path / "run", Listener()
    monkeypatch.setitem(sys.modules, "wandb", service)  # type: ignore[arg-type]
    monkeypatch.setattr("ensue.trackers.find_spec", lambda name: True)
    run_tiny(tiny_recipe(text), out, reporter=TrackedReporter(listener, out, trackers_of(["wandb"])))
    once = list(service.logged)
    (out / "wandb" / "told.json").write_text(content)
    run_tiny(None, out, resume=True, reporter=TrackedReporter(listener, out, trackers_of(["wandb"])))
    assert service.logged == once * 2
    assert not any("tracker" in note for note in listener.notes)


def test_an_unreachable_server_disables_its_tracker(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", Service(is_there=False))  # type: ignore[arg-type]
    monkeypatch.setattr("ensue.trackers.find_spec", lambda name: True)
    listener, out = Listener(), tmp_path / "run"
    assert run_tiny(tiny_recipe(text), out, reporter=TrackedReporter(listener, out, trackers_of(["wandb"]))).step == 12
    assert [note for note in listener.notes if "tracker" in note] == [
        "the tracker wandb has failed and is disabled: no answer from the server within 30 seconds"
    ]


@pytest.mark.slow
def test_tensorboard_has_each_point_once(text: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.event_file_writer import event_pb2  # noqa: PLC0415

    records = killed_and_resumed(text, tmp_path / "run", "tensorboard")
    (path,) = (tmp_path / "run" / "tensorboard").iterdir()
    points, content = [], path.read_bytes()
    while content:  # a length of eight bytes, its checksum, the event, its checksum
        size = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + size])
        points += [(value.tag, event.step) for value in event.summary.value if value.HasField("simple_value")]
        content = content[16 + size :]
    assert points == [(name, record["step"]) for record in records for name, _ in numbers(record)]
