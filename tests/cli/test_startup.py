"""Predictions of a trained model import only what they need."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from multiprocessing import SimpleQueue
from pathlib import Path
from typing import Literal

import pytest
import torch

from ensue.recipe import TrainRecipe
from ensue.training.optimizer import build_optimizer
from forked import FORK
from training.tiny import words

UNWANTED = {"torch._dynamo", "torch._inductor", "sympy", "matplotlib"}
PROGRAM = """
import gc, io, sys
import ensue.cli

taggers, models, text = sys.argv[1:]
commands = [
    ["predict", taggers + "/names"],
    ["predict", taggers + "/topics"],
    ["evaluate", taggers + "/names", taggers + "/names.txt"],
    *(["generate", models + "/" + name, "--max-tokens", "3"] for name in ("lstm", "transformer")),
    *(["score", models + "/" + name, text] for name in ("lstm", "transformer")),
    ["evaluate", models + "/lstm", text],
]
for sys.argv[1:] in commands:
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"Who was it ?\\n"))
    try:
        ensue.cli.main()
    except SystemExit as end:
        assert not end.code, end.code
    assert gc.isenabled()
assert gc.get_freeze_count() > 100_000
import torch
from ensue.nn import GRU, LSTM
assert len(ensue.load(taggers + "/names").predict(["Anna sees Lima."])[0]) == 4
assert ensue.load(models + "/lstm").score("warm rain")
x = torch.randn(2, 3, 8, requires_grad=True)
for layer in (LSTM(8, 4), GRU(8, 4)):
    layer(x)[0].sum().backward()
assert {name for name in sys.modules if name.startswith("ensue.training.")} == {"ensue.training.device"}
print("imported:", *sys.modules)
"""


class Watcher:
    """An import finder that finds no module and records requests of unwanted ones."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name in UNWANTED:
            self.asked.append(name)
        return None


def unwanted_imports(action: Callable[[], object]) -> list[str]:
    """Return the unwanted modules that a function imports, in a process without them."""
    answers: SimpleQueue[list[str]] = FORK.SimpleQueue()

    def watched() -> None:
        for name in [name for name in sys.modules if any(f"{name}.".startswith(f"{one}.") for one in UNWANTED)]:
            del sys.modules[name]
        sys.meta_path.insert(0, watcher := Watcher())
        try:
            action()
        finally:
            answers.put(watcher.asked)

    process = FORK.Process(target=watched)
    process.start()
    asked = answers.get()
    process.join()
    assert process.exitcode == 0
    return asked


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
def test_a_step_of_an_optimizer_imports_no_compiler(name: Literal["sgd", "adamw", "muon"]) -> None:
    def train() -> None:
        layer = torch.nn.Linear(2, 2)
        optimizer = build_optimizer(layer, TrainRecipe(optimizer=name, steps=1))
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.load_state_dict(optimizer.state_dict())

    assert unwanted_imports(train) == []


@pytest.mark.slow
def test_predictions_import_no_compiler(runs: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text(words(30))
    paths = map(str, (runs, trained, tmp_path / "few.txt"))
    result = subprocess.run([sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not UNWANTED & set(result.stdout.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "generate"])
def test_a_first_answer_takes_little_longer_than_to_import_torch(command: str, runs: Path, trained: Path) -> None:
    """The times are those of the processor, taken in turns, the least of several."""
    run = runs / "names" if command == "predict" else trained / "lstm"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds(*arguments: object) -> float:
        before, python = os.times(), [sys.executable, *map(str, arguments)]
        subprocess.run(python, input=b"Who?\n", stdout=subprocess.DEVNULL, env=environment, check=True)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    turns = [(seconds("-m", "ensue", command, run), seconds("-c", "import torch")) for _ in range(3)]
    prediction_seconds, torch_seconds = map(min, zip(*turns, strict=True))
    assert prediction_seconds < 1.3 * torch_seconds
