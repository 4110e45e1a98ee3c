"""A terminal of 80 columns shows full labels and numbers, and cuts or wraps texts between words."""

import re
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.console.tables import shorten_text, show_rows
from ensue.recipe import read_recipe, recipe_names
from kept_runs.make import unpacked

HEADER = ("place", "probability", "given", "proposed", "text")
LONG = "Das Gerät fällt seit Dienstag immer wieder aus, und niemand im Werk kann sagen, woran das liegt."
ROWS = [
    ("tickets.csv:1023", "0.0003", "Lob", "Rechnungswesen", LONG),
    ("tickets.csv:7", "0.0117", "Rechnungswesen", "Lob", "prima"),
    ("tickets.csv:9", "0.0200", "Lob", "故障", "设备停止工作" * 9),
]
SCREEN = """\
place             probability  given           proposed        text
tickets.csv:1023  0.0003       Lob             Rechnungswesen  Das Gerät fällt …
tickets.csv:7     0.0117       Rechnungswesen  Lob             prima
tickets.csv:9     0.0200       Lob             故障            设备停止工作设 …
"""
WIDE = """\
place  probability  given  proposed
  text
a_folder_with_a_long_name/exports/tickets.csv:1023  0.0003  Lob  Rechnungswesen
  Das Gerät fällt seit Dienstag immer wieder aus, und niemand im Werk kann …
"""


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_doubts_fit_the_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.console.tables.MIN_TEXT_WIDTH", 12)
    show_rows([HEADER, *ROWS])
    assert capsys.readouterr().out == SCREEN


def test_a_table_without_space_for_texts_is_wider(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([HEADER, (f"a_folder_with_a_long_name/exports/{ROWS[0][0]}", *ROWS[0][1:])])
    assert capsys.readouterr().out == WIDE


@pytest.mark.parametrize("width", [*range(12, 40), 97])
def test_a_text_is_cut_between_words(width: int) -> None:
    cut = shorten_text(LONG, width)
    assert len(cut) <= width
    assert (LONG + " ").startswith(cut.removesuffix("…").strip() + " ")


TICKETS = "".join(
    f"{number};Das Gerät Nummer {number} fällt seit {number % 7} Tagen aus;{label}\n"
    for number, label in enumerate(["Störung", "Stoerung", "Lob", ""] * 30)
)
SCREENS = {
    "data": ("data", "tickets.csv"), "data-names": ("data", "names.conll"), "recipes": ("recipes",),
    "compare": ("compare", "classify-bag", "classify-lstm"),
}  # fmt: skip
"""Commands whose screens are the files `screens/NAME.txt`."""


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_equals_its_stored_file(
    name: str, ensue: Ensue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen is that of a terminal without colors."""
    monkeypatch.chdir(tmp_path)
    Path("tickets.csv").write_text(f"Ticketnummer;Beschreibung;Kategorie\n{TICKETS}", encoding="utf-8")
    Path("names.conll").write_text("Ann B-PER\nleft O\nBad B-LOC\nKötzting I-LOC\n\nIt O\nrains O\n\n" * 30)
    for run in SCREENS[name][1:] if name == "compare" else ():
        unpacked(run, tmp_path)
    monkeypatch.setattr("ensue.extensions.surveying.report.sys.stdout.isatty", lambda: True)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", ensue(*SCREENS[name]).out).splitlines()]
    screen, path = "\n".join([*lines, ""]), Path(__file__).parent / "screens" / f"{name}.txt"
    assert max(len(line) for line in lines if not line.startswith("next: ")) <= 80  # a command to copy
    assert screen == path.read_text(encoding="utf-8")


def test_the_list_of_recipes_wraps_descriptions_between_words(ensue: Ensue) -> None:
    screen = ensue("recipes").out
    assert max(map(len, screen.splitlines())) <= 80
    assert "…" not in screen
    plain = re.sub(r"\s+", " ", screen)
    for name in recipe_names():
        assert f" {name} " in plain
        assert " ".join(read_recipe(name).about.split()) in plain
