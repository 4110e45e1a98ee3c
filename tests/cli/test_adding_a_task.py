"""The task of docs/adding-a-task.md works: its folder is written, trained, killed, resumed and used."""

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ensue.tasks
from command_fixtures import Ensue
from conftest import REPOSITORY
from ensue.recipe import read_recipe
from training.resuming import At, Killed, die
from training.tiny import reproducible_state, run_tiny

PAGE = (REPOSITORY / "docs" / "adding-a-task.md").read_text()
MAX_LINES = 150


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the page's files, with its line in `TASKS`."""
    for name, content in re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL):
        path = tmp_path / (name if name.endswith(".toml") else f"tasks/parity/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(ensue.tasks, "__path__", [*ensue.tasks.__path__, str(tmp_path / "tasks")])
    ((name, module),) = re.findall(r'^    "(\w+)": "([\w.]+)",$', PAGE, re.MULTILINE)
    monkeypatch.setitem(ensue.tasks.TASKS, name, module)
    monkeypatch.chdir(tmp_path)
    choose = random.Random(0)
    rows = ["".join(choose.choices("01", k=choose.randint(1, 5))) for _ in range(300)]
    Path("bits.txt").write_text("".join(f"{row}\t{'odd' if row.count('1') % 2 else 'even'}\n" for row in rows))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("ensue.tasks.parity")]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_task_is_one_folder_and_one_line(parity: Path, ensue: Ensue, refused: Callable[..., str]) -> None:
    train = ["train", "parity.toml", "--train", "bits.txt", "--out", "run", "--threads", "1", "--device", "cpu"]
    result = ensue(*train, "--set", "train.precision=float32").succeeded()
    assert "ensue predict run" in result.err
    assert ensue("predict", "run", stdin=b"10110\n0\n1\n").out == "10110\todd\n0\teven\n1\todd\n"
    assert json.loads(ensue("evaluate", "run", "bits.txt", "--json").out)["accuracy"] == 1.0
    assert "parity model (lstm 1×16" in Path("run/README.md").read_text()
    assert (parity / "run" / "curve.png").stat().st_size
    assert "for predict and evaluate" in refused("generate", "run")
    Path("bits.txt").write_text("0110\teven\n012\todd\n")
    assert refused("evaluate", "run", "bits.txt").startswith("bits.txt:2: expected bits, a tab")
    assert 'unknown key "encoder.d_modell" in encoder (lstm)' in refused(*train, "--set", "encoder.d_modell=3")


@pytest.mark.slow
def test_the_run_is_resumed_after_a_kill(parity: Path) -> None:
    recipe = read_recipe(
        "parity.toml",
        {"train.steps": 40, "train.precision": "float32", "train.checkpoint_every": 10, "data.train": "bits.txt"},
    )
    run_tiny(recipe, parity / "undisturbed")
    with pytest.raises(Killed):
        run_tiny(recipe, parity / "killed", reporter=At(25, die))
    run_tiny(None, parity / "killed", resume=True)
    assert reproducible_state(parity / "killed") == reproducible_state(parity / "undisturbed")


def test_the_folder_has_few_lines() -> None:
    files = re.findall(r"```python file=\S+\n(.*?)```", PAGE, re.DOTALL)
    assert sum(file.count("\n") for file in files) <= MAX_LINES
