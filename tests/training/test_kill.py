"""Real processes that end: `kill -9` and Ctrl-C, then --resume, then the same bits."""

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
from training.tiny import kept, run_tiny


def undisturbed(text: Path, run: Path, settings: list[str]) -> None:
    run_tiny(read_recipe("char-lstm", [*settings, f"data.train={text}"]), run)


def wait_for(run: Forked, words: str) -> None:
    """Read what it says until these words come."""
    said = []
    for line in run.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"it never said {words!r}: {''.join(said)}")


def kill_while_it_writes(running: Forked, run: Path) -> None:
    """Kill it in the middle of a checkpoint, or after half a minute.

    It is stopped before the second look, so that it cannot finish the checkpoint between the look and the end.
    """
    partial = str(run / "checkpoints/.step-*.partial/*")  # Path.glob raises where a folder goes while it looks
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
def test_kill_9_and_ctrl_c_then_resume_ends_in_the_same_bits(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed(text, tmp_path / "whole", settings_of())
    run = tmp_path / "my run"
    with forked(command(text, run, settings_of())) as running:
        wait_for(running, "1 thread, float32")
        kill_while_it_writes(running, run)
    assert not (run / "README.md").exists()

    with forked(["train", "--resume", "--out", str(run)]) as running:
        wait_for(running, "  validation: ")
        running.signal(signal.SIGINT)
        said = running.stderr.read().splitlines()
        assert running.ended() == 130
    saved = re.fullmatch(r"saved at step (\d+); resume with", said[-4])
    assert saved
    assert (run / "checkpoints" / f"step-{saved[1]}").is_dir()
    assert said[-3] == f"  ensue train --resume --out '{run}'"
    assert re.fullmatch(r"or decay the learning rate to zero in about \d+ s of training with", said[-2])
    assert said[-1] == f"{said[-3]} --set train.steps={math.ceil(int(saved[1]) * 1.2)}"
    assert not any("Traceback" in line for line in said)

    monkeypatch.setattr(sys, "argv", shlex.split(said[-3]))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert kept(run) == kept(tmp_path / "whole")
