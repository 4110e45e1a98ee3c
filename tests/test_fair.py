"""The benchmark `fair.py` continues after a kill, and its results become a page."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pages import REPOSITORY
from training.tiny import words

FOLDER = REPOSITORY / "benchmarks"
BUDGET = "--trials 2 --trial-seconds 0.2 --seconds 0.3 --seeds 0 --parameters 9000"


@pytest.mark.slow
def test_the_benchmark_continues_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(words(4_000))
    file = tmp_path / "fair.jsonl"
    arguments = ["--characters", "text.txt", "--kinds", "gru", "--results", file.name, *BUDGET.split()]
    command = [sys.executable, FOLDER / "fair.py", *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        while not file.exists() and process.poll() is None:
            time.sleep(0.02)
        process.kill()
    begun = file.read_text()
    assert begun.count("\n") < 3
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    text = file.read_text()
    assert text.startswith(begun)  # finished trials are not repeated
    *trials, run = (json.loads(line) for line in text.splitlines())
    assert [(trial["what"], trial["number"]) for trial in trials] == [("trial", 0), ("trial", 1)]
    assert run["values"] == min(trials, key=lambda trial: trial["score"])["values"]
    assert 0.8 < run["parameters"] / 9000 < 1.2  # widths are multiples of 8, here of up to four layers
    assert str(tmp_path) not in text

    monkeypatch.syspath_prepend(FOLDER)
    importlib.import_module("fair").write_page(file, tmp_path)
    assert f"| gru | Cho et al. | 2014 | {run['model']} " in (tmp_path / "fair.md").read_text()
    assert (tmp_path / "fair.svg").exists()
