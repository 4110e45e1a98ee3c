"""torchrun starts the processes, and starts them again when one was killed: the run ends as an undisturbed one."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from training.command_lines import command, settings_of
from training.tiny import kept

pytestmark = pytest.mark.slow
NUM_WORDS = 3000
RESTARTS = (
    "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "9", "-m", "ensue",
)  # fmt: skip


@contextmanager
def started(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, *arguments], stdout=file, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()  # which also ends its workers
            process.wait(60)


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that torchrun has started."""
    try:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(number) for number in found.split()]


def wait_for_step(run: Path, least: int, process: subprocess.Popen[bytes]) -> None:
    """Waits for a checkpoint of this step or a later one."""
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        if any(int(path.name[5:]) >= least for path in run.glob("checkpoints/step-*")):
            return
        time.sleep(0.02)
    raise AssertionError("no such checkpoint")


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_killed_ranks_go_on_bit_for_bit(text: Path, tmp_path: Path) -> None:
    settings, choose = settings_of(steps=250), random.Random(0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with started([*RESTARTS, *command(text, whole, settings), "--resume"], tmp_path / "whole.log") as process:
        assert process.wait(240) == 0
    with started([*RESTARTS, *command(text, killed, settings), "--resume"], tmp_path / "killed.log") as process:
        for least in (60, 150):
            wait_for_step(killed, least, process)
            time.sleep(choose.random() / 10)
            os.kill(choose.choice(workers(process)), signal.SIGKILL)
        assert process.wait(240) == 0
    assert len(re.findall("resumed from step", (tmp_path / "killed.log").read_text())) == 2
    assert kept(killed) == kept(whole)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_sigterm_saves_and_another_number_of_processes_goes_on(text: Path, tmp_path: Path) -> None:
    settings = [*settings_of(steps=4000), "train.deterministic=true"]
    run, log = tmp_path / "run", tmp_path / "log"
    with started(["-m", "ensue", *command(text, run, settings), "--processes", "2"], log) as process:
        wait_for_step(run, 10, process)
        process.terminate()
        assert process.wait(60) == 130
    said = log.read_text()
    assert len(re.findall(r"saved at step \d+; resume with\n  ensue train --resume --out", said)) == 1
    assert "Traceback" not in said


def test_a_mistake_is_one_line(text: Path, tmp_path: Path) -> None:
    arguments = ["-m", "ensue", *command(text.with_name("none.txt"), tmp_path / "run", []), "--processes", "3"]
    found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert re.fullmatch(r"ensue: .*none\.txt: no such file or folder.*\n", found.stderr)
