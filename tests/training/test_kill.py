"""Real processes ended by `kill -9` and Ctrl-C are resumed with bit-identical results."""

import glob
import math
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from ensue.cli import main
from ensue.recipe import read_recipe
from forked import Forked, forked
from training.command_lines import command, settings_of
from training.tiny import reproducible_state, run_tiny


def train_undisturbed(text: Path, run: Path, settings: list[str]) -> None:
    run_tiny(read_recipe("char-lstm", [*settings, f"data.train={text}"]), run)


def wait_for(run: Forked, words: str) -> None:
    """Read the standard error of a run until a line has these words."""
    lines = []
    for line in run.stderr:
        lines.append(line)
        if words in line:
            return
    raise AssertionError(f"{words!r} is not in the output: {''.join(lines)}")


def kill_while_writing(running: Forked, run: Path) -> None:
    """Kill a run while it writes a checkpoint, or after half a minute.

    The process is stopped before the second check, so that it cannot finish the checkpoint in between.
    """
    partial = str(run / "checkpoints/.step-*.partial/*")  # Path.glob raises if a folder is removed meanwhile
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and running.process.is_alive():
        if glob.glob(partial):
            running.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, running.process.pid or 0, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if glob.glob(partial):
                break
            running.signal(signal.SIGCONT)
    running.process.kill()


@pytest.mark.slow
def test_a_run_after_kill_9_and_ctrl_c_is_resumed_bit_identically(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_undisturbed(text, tmp_path / "full", settings_of())
    run = tmp_path / "my run"
    with forked(command(text, run, settings_of())) as running:
        wait_for(running, "1 thread, float32")
        kill_while_writing(running, run)
    assert not (run / "README.md").exists()

    with forked(["train", "--resume", "--out", str(run)]) as running:
        wait_for(running, "  validation: ")
        running.signal(signal.SIGINT)
        lines = running.stderr.read().splitlines()
        assert running.exit_status() == 130
    saved = re.fullmatch(r"saved at step (\d+); resume with", lines[-4])
    assert saved
    assert (run / "checkpoints" / f"step-{saved[1]}").is_dir()
    assert lines[-3] == f"  ensue train --resume --out '{run}'"
    assert re.fullmatch(r"or decay the learning rate to zero in about \d+ s of training with", lines[-2])
    assert lines[-1] == f"{lines[-3]} --set train.steps={math.ceil(int(saved[1]) * 1.2)}"
    assert not any("Traceback" in line for line in lines)

    monkeypatch.setattr(sys, "argv", shlex.split(lines[-3]))
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    assert reproducible_state(run) == reproducible_state(tmp_path / "full")
