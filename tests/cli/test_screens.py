"""What a terminal of 80 columns shows: labels and numbers are whole, texts alone are cut or wrapped, between words."""

import re

import pytest

from command_fixtures import Ensue
from ensue.console.tables import shortened, show_rows
from ensue.recipe import read_recipe, recipe_names

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


def test_the_table_of_doubts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.console.tables.MIN_TEXT_WIDTH", 12)
    show_rows([HEADER, *ROWS])
    assert capsys.readouterr().out == SCREEN


def test_a_table_without_room_for_texts(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([HEADER, (f"a_folder_with_a_long_name/exports/{ROWS[0][0]}", *ROWS[0][1:])])
    assert capsys.readouterr().out == WIDE


@pytest.mark.parametrize("width", [*range(12, 40), 97])
def test_a_text_is_cut_between_words(width: int) -> None:
    cut = shortened(LONG, width)
    assert len(cut) <= width
    assert (LONG + " ").startswith(cut.removesuffix("…").strip() + " ")


def test_the_list_of_recipes_wraps_descriptions_between_words(ensue: Ensue) -> None:
    shown = ensue("recipes").out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    plain = re.sub(r"\s+", " ", shown)
    for name in recipe_names():
        assert f" {name} " in plain
        assert " ".join(read_recipe(name).about.split()) in plain
