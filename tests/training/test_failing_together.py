"""An error in one of several processes ends all of them, and one process reports it in one line."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from ensue.errors import EnsueError
from ensue.training import processes
from ensue.training.loop import Trainer
from ensue.training.processes import join_process_group
from training.tiny import reproducible_state, run_tiny, tiny_recipe, words
from training.together import SILENT, STATUS_OF_A_MISTAKE, free_port, statuses_with_lost_rank, together

pytestmark = pytest.mark.slow


def messages_of(log: Path) -> list[str]:
    """Return the messages of all processes that wrote to their standard error."""
    return [path.read_text().strip() for path in sorted(log.iterdir())]


def test_differences_are_found_at_the_start_and_named(tmp_path: Path) -> None:
    for rank, content in enumerate((words(300), words(300, seed=1))):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "text.txt").write_text(content)
    out = tmp_path / "run"

    def with_other_files(rank: int) -> None:
        os.chdir(tmp_path / str(rank))
        run_tiny(tiny_recipe(Path("text.txt")), out)

    def with_other_recipes(rank: int) -> None:
        run_tiny(tiny_recipe(tmp_path / "0" / "text.txt", learning_rate=(0.01, 0.02)[rank]), out)

    assert sorted(together(2, with_other_files, log=tmp_path / "files")) == [STATUS_OF_A_MISTAKE, SILENT]
    assert "process 1 differs in the training data" in messages_of(tmp_path / "files")[0]
    assert sorted(together(2, with_other_recipes, log=tmp_path / "recipes")) == [STATUS_OF_A_MISTAKE, SILENT]
    expected = "process 1 differs in recipe: train.learning_rate: 0.02, process 0 has 0.01"
    assert messages_of(tmp_path / "recipes") == [expected]
    assert not out.exists()


def test_more_processes_than_rows_are_refused(text: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(text, batch_size=2)
    statuses = together(3, lambda rank: run_tiny(recipe, tmp_path / "run") and None, log=tmp_path / "log")
    assert sorted(map(int, statuses)) == [STATUS_OF_A_MISTAKE, SILENT, SILENT]
    assert messages_of(tmp_path / "log") == [
        "3 processes need at least as many rows in a batch; found 2 (train.batch_size)"
    ]


def test_a_port_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, str(value))
        expected = rf"localhost:{port}: the port is in use; choose another MASTER_PORT"
        with pytest.raises(EnsueError, match=expected), join_process_group():
            pass


def test_missing_processes_are_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RENDEZVOUS_SECONDS", 1)
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}.items():
        monkeypatch.setenv(name, str(value))
    with (
        pytest.raises(EnsueError, match="process 1 of 2 cannot connect to the store at localhost:") as raised,
        join_process_group(),
    ):
        pass
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_of_a_process_end_all(failing: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(text)

    def train(rank: int) -> None:
        def fail() -> None:
            raise EnsueError("no more of this")

        if rank == failing:
            monkeypatch.setattr(Trainer, "save", lambda self: fail())
        run_tiny(recipe, tmp_path / "run")

    statuses = together(3, train, log=tmp_path / "log")
    assert sorted(map(int, statuses)) == [STATUS_OF_A_MISTAKE, SILENT, SILENT]
    assert messages_of(tmp_path / "log") == ["no more of this"]


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGKILL, "has ended"), (signal.SIGSTOP, "not answered for 5")]
)
def test_a_killed_or_stopped_process_ends_all(
    number: int, expected: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, line = statuses_with_lost_rank(tiny_recipe(text), 3, number, tmp_path, monkeypatch)
    assert sorted((statuses[0], statuses[2])) == [STATUS_OF_A_MISTAKE, SILENT]
    assert line.startswith("process 1 of 3 has ")
    assert expected in line


def test_the_killed_one_of_four_processes_is_named(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two others are delayed, and reach the next all-reduce later."""
    recipe, step = tiny_recipe(text), Trainer.step

    def train(rank: int) -> None:
        def late(trainer: Trainer) -> None:
            if trainer.progress.step == 4 and rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if trainer.progress.step == 4 and rank in (0, 3):
                time.sleep(2 * processes.LIVENESS_SECONDS)
            step(trainer)

        monkeypatch.setattr(Trainer, "step", late)
        run_tiny(recipe, tmp_path / "run")

    statuses = together(4, train, log=tmp_path / "log", seconds=60)
    assert sorted(map(int, statuses)) == [-signal.SIGKILL, STATUS_OF_A_MISTAKE, SILENT, SILENT]
    assert messages_of(tmp_path / "log") == ["process 2 of 4 has ended"]


def test_a_signal_stops_all_processes_at_one_step(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, reasons = tiny_recipe(text), tmp_path / "reasons"
    reasons.mkdir()
    step = Trainer.step

    def step_and_raise_signal(trainer: Trainer) -> None:
        step(trainer)
        if trainer.progress.step == 4:
            signal.raise_signal(signal.SIGTERM)

    def train(rank: int) -> None:
        if rank == 1:
            monkeypatch.setattr(Trainer, "step", step_and_raise_signal)
        outcome = run_tiny(recipe, tmp_path / "run", resume=True)
        (reasons / str(rank)).write_text(f"{outcome.reason} at {outcome.step}")

    assert together(2, train, log=tmp_path / "log") == [0, 0]
    assert {path.read_text() for path in reasons.iterdir()} == {"interrupted at 5"}
    run_tiny(recipe, tmp_path / "run", resume=True)
    assert reproducible_state(tmp_path / "run")["checkpoint"] == "step-12"
