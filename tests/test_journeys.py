"""Each page of docs/journeys runs from top to bottom with tiny models, on data that the page writes."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from ensue.cli import command_line
from ensue.recipe import Recipe
from ensue.training.run import train_run
from page_data import tiny
from pages import JOURNEYS, Block, blocks

QUICK = ("names",)
"""The pages that are run by default; the slow tests run all."""
MAX_LINES = 90
RUN_UNTIL_STOPPED = {"serve"}
"""Commands that run until they are stopped."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page.stem in QUICK else pytest.mark.slow, id=page.stem) for page in JOURNEYS],
)
@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")
def test_a_journey_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("training.run", "extensions.annotating.doubts"):
        monkeypatch.setattr(f"ensue.{module}.train_run", train_tiny)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python", "sh"):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), namespace)
            continue
        for command in commands(block):
            arguments, _, out = " ".join(command).partition(" > ")
            assert command[:1] == ["ensue"]
            if command[1] not in RUN_UNTIL_STOPPED:
                command_line()(command[1 : -2 if out else None], standalone_mode=False)
                output = capsys.readouterr()
                assert output.out or output.err, arguments
                (tmp_path / (out or "answers")).write_text(output.out, encoding="utf-8")


def commands(block: Block) -> list[list[str]]:
    return [shlex.split(line) for line in block.text.replace("\\\n", " ").splitlines()]


def train_tiny(recipe: Recipe, out: Path, **options: Any) -> object:
    return train_run(tiny(recipe), out, **options | {"threads": 1})


@pytest.mark.parametrize("page", JOURNEYS, ids=lambda page: page.stem)
def test_a_journey_is_short_and_writes_its_data_first(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    assert next(blocks(page, "python", "sh")).language == "python"


def test_all_journeys_are_in_the_index() -> None:
    index = (JOURNEYS[0].parents[1] / "index.md").read_text(encoding="utf-8")
    assert [page.stem for page in JOURNEYS if f"](journeys/{page.name})" not in index] == []
