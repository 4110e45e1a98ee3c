"""Fixtures: the command `ensue` as a function, and small trained runs with their data."""

import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import torch
import typer

from ensue.cli import main
from ensue.recipe import read_recipe
from ensue.training import machine
from ensue.training.machine import Machine, Profile, Workload, machine_profile
from training.tiny import plain_profile, run_tiny, tiny_recipe, words
from training.tiny_pairs import LEARNED, pair_recipe, pairs
from training.tiny_texts import labelers, with_pictures


class CommandResult(NamedTuple):
    status: int
    out: str
    err: str

    def succeeded(self) -> Self:
        assert self.status == 0, self.err
        return self


Ensue = Callable[..., CommandResult]

command = cache(typer.main.get_command)
"""Cached, since typer derives the command from signatures at each call."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, in_tmp_path: None) -> Path:
    """The current working directory."""
    return tmp_path


@pytest.fixture
def hasty() -> Iterator[None]:
    """Switch threads every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from inspection.browser import browsing  # noqa: PLC0415

    with browsing(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def ensue(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ensue]:
    """Return a function that runs a command in this process; `stdin` holds the bytes of its standard input."""
    threads = torch.get_num_threads()
    monkeypatch.setattr("typer.main.get_command", command)

    def run(*arguments: object, stdin: bytes | None = None) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["ensue", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        return CommandResult(caught.value.code or 0, *capsys.readouterr())  # type: ignore[arg-type]

    yield run
    torch.set_num_threads(threads)


@pytest.fixture
def refused(ensue: Ensue) -> Callable[..., str]:
    """Return a function that runs a command, asserts that it fails with an error of one line, and returns this line."""

    def run(*arguments: object, stdin: bytes | None = None) -> str:
        result = ensue(*arguments, stdin=stdin)
        assert result.status == 2, result.err
        assert result.out == ""
        assert result.err.startswith("ensue: ")
        assert result.err.count("\n") == 1, result.err
        return result.err[7:-1]

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, new_cache: Callable[[], Path]) -> Path:
    """A folder with text.txt and the finished runs `lstm` and `transformer`."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENSUE_CACHE", str(new_cache()))
        (folder / "text.txt").write_text(words(800))
        for model in ("lstm", "transformer"):
            run_tiny(tiny_recipe(folder / "text.txt", model=model), folder / model)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, new_cache: Callable[[], Path]) -> Path:
    """A folder with finished taggers and classifiers, and their data; tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENSUE_CACHE", str(new_cache()))
        return labelers(tmp_path_factory.mktemp("labelers"))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run `lstm` that a test may damage."""
    return Path(shutil.copytree(trained / "lstm", tmp_path / "run"))


@pytest.fixture
def text(trained: Path) -> Path:
    return trained / "text.txt"


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs and the run `learned` of a translator that has learned their rule; tests only read it."""
    folder = tmp_path_factory.mktemp("learned")
    (folder / "train.tsv").write_text(pairs(200))
    (folder / "test.tsv").write_text(pairs(40, seed=1))
    run_tiny(pair_recipe(folder / "train.tsv", train=LEARNED), folder / "learned")
    return folder


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Remove the machine profile and return the list of machines measured afterwards; each gets a plain profile."""
    machine_profile().machine.path.unlink()
    measured: list[Machine] = []

    def measure(computer: Machine, workloads: Sequence[Workload]) -> Profile:
        measured.append(computer)
        changes = {"machine": computer, "date": f"measurement {len(measured)}", "load": 0.5 * len(measured)}
        return plain_profile().model_copy(update=changes)

    monkeypatch.setattr(machine, "measure", measure)
    return measured


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of this test draw their pictures."""
    with_pictures(monkeypatch)


SMALL = [
    part
    for setting in (
        "encoder.d_model=8", "tokens.d_embedding=6", "train.steps=3", "train.batch_size=4", "train.segment_length=12",
        "train.validations=1", "train.sample_tokens=8", "train.precision=float32",
    )
    for part in ("--set", setting)
] + ["--threads", "1", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the translators `one` and `two` on the same pairs, and `other` on other pairs."""
    folder = tmp_path_factory.mktemp("translators")
    (folder / "train.tsv").write_text(pairs(40))
    (folder / "test.tsv").write_text(pairs(3, seed=1))
    (folder / "other.tsv").write_text("a b\tc d\ne f\tg h\n")
    for name, data, seed in (("one", "train", 0), ("two", "train", 1), ("other", "other", 0)):
        run_tiny(
            pair_recipe(folder / f"{data}.tsv", train={"steps": 4, "validations": 1, "samples": 0, "seed": seed}),
            folder / name,
        )
    return folder


SETTINGS = {"vectors.d_words": 8, "tokenizer.min_count": 1, "train.epochs": 1, "train.validations": 1}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "text.txt").write_text("salt in the oven\npiano and choir\n" * 9, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ensue.training.run.make_optional", lambda *arguments: None)
        recipe = read_recipe("vectors-cbow", {"data.train": str(folder / "text.txt"), **SETTINGS})
        run_tiny(recipe, folder / "run")
    return folder / "run"
