"""The package of docs/extending.md is built, tested, installed, used for training and serving, and removed."""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import REPOSITORY
from extensions.serving.running import Running
from pages import blocks

PAGE = REPOSITORY / "docs" / "extending.md"
TASK_PAGE = REPOSITORY / "docs" / "adding-a-task.md"
TRACKER_PAGE = REPOSITORY / "docs" / "many-runs.md"
SHORT = ["--threads", "1", "--device", "cpu", "--set", "train.steps=20"]


class Environment:
    """A virtual environment for ensue as a wheel, which sees the other packages of the current environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, str(folder / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")

    def command(self, program: str, *arguments: str) -> list[str]:
        if program == "pip":
            offline = {"wheel": ["--no-build-isolation"], "install": ["--no-deps"], "uninstall": ["--yes"]}
            options = ["--quiet", "--disable-pip-version-check", *offline[arguments[0]]]
            index = [] if arguments[0] == "uninstall" else ["--no-index"]
            return [sys.executable, "-m", "pip", "--python", str(self.folder), *arguments, *options, *index]
        script = [str(self.folder / "bin" / "ensue")] if program == "ensue" else [self.python, "-m", program]
        return [*script, *arguments, *(SHORT if arguments[0] == "train" else [])]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False)


def write_package() -> None:
    """Write the files of the three pages; those of the task become a folder of the package."""
    files = {name: text for page in (PAGE, TRACKER_PAGE, TASK_PAGE) for name, text in files_of(page)}
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    row = re.search(r"`(tasks=\{.*?\})`", PAGE.read_text(encoding="utf-8"))
    assert row
    declaration = Path("ensue_leaky/__init__.py")
    declaration.write_text(declaration.read_text().replace("\n)", f"\n    {row[1]},\n)"))
    project = files["pyproject.toml"]
    Path("pyproject.toml").write_text(project.replace('"ensue_leaky"]', '"ensue_leaky", "ensue_leaky.parity"]'))


def files_of(page: Path) -> list[tuple[str, str]]:
    files = re.findall(r"```\w+ file=(\S+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if page != TASK_PAGE:
        return files
    return [
        (
            f"ensue_leaky/parity/{name}" if name.endswith(".py") else name,
            text.replace("ensue.tasks.parity", "ensue_leaky.parity"),
        )
        for name, text in files
    ]


def write_data() -> None:
    Path("book.txt").write_text("The sea was calm. Nobody spoke, and the sea was calm.\n" * 60)
    Path("reviews.rec").write_text(
        "\n\n".join(f"text: a {word} film {n}\nlabel: {word}" for n in range(20) for word in ("good", "bad"))
    )
    Path("bits.txt").write_text("0110\teven\n1\todd\n10110\todd\n00\teven\n" * 8)


def test_the_page_is_short() -> None:
    assert PAGE.read_text(encoding="utf-8").count("\n") <= 120


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pip") is None or find_spec("setuptools") is None, reason="needs pip and setuptools")
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    source, package = tmp_path / "ours", tmp_path / "package"
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    package.mkdir()
    monkeypatch.chdir(package)
    write_package()
    write_data()
    environment = Environment(tmp_path / "environment")
    wheel = environment.run("pip", "wheel", "--no-deps", str(source), "--wheel-dir", str(tmp_path))
    assert wheel.returncode == 0, wheel.stderr
    installed = environment.run("pip", "install", *map(str, tmp_path.glob("ensue-*.whl")))
    assert installed.returncode == 0, installed.stderr

    (block,) = blocks(PAGE, "sh")
    *lines, last = map(shlex.split, block.text.splitlines())
    for words in lines:
        if words[:2] == ["ensue", "serve"]:
            serve(environment, words[2:])
            continue
        if words[:2] == ["pip", "uninstall"]:
            use_task(environment)
        result = environment.run(*words)
        assert result.returncode == 0, (words, result.stdout, result.stderr)
    assert (package / "run" / "losses.txt").read_text().startswith("train ")
    assert 'needs = [\n    "ensue-leaky>=0.1",\n]' in (package / "run" / "recipe.toml").read_text()

    error = re.search(r"ends with the error `(.*?)`", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert error
    needed = " ".join(error[1].split())
    for words, message in ((last, needed), (["ensue", "predict", "odd"], needed.replace("run/recipe.toml", "odd"))):
        result = environment.run(*words)
        assert (result.returncode, result.stderr.strip()) == (2, message)


def serve(environment: Environment, runs: list[str]) -> None:
    with Running(*map(Path, runs), python=environment.python) as server:
        written = server.post("/v1/completions", {"model": "run", "prompt": "The ", "max_tokens": 4})
        assert written["choices"][0]["text"]
        assert server.post("/v1/predict", {"model": "mood", "inputs": ["a good film"]})["outputs"]


def use_task(environment: Environment) -> None:
    trained = environment.run("ensue", "train", "parity.toml", "--train", "bits.txt", "--out", "odd")
    assert trained.returncode == 0, trained.stderr
    result = subprocess.run(
        environment.command("ensue", "predict", "odd"), input="1\n", capture_output=True, text=True, check=False
    )
    assert result.stdout.startswith("1\t"), result.stderr
