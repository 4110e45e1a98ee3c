"""Law: a file that predict writes from several files can be read again, in every format."""

import json
from pathlib import Path

import pytest

from command_fixtures import Ensue

LABELED = {
    "a.tsv": "label\ttext\na\tgoal team\nb\tcoach medal\n",
    "a.csv": '\ufefflabel,text\r\na,"goal, team"\r\nb,coach medal\r\n',
    "b.csv": "label;text\na;goal team\nb;coach medal\n",
    "a.jsonl": '{"label":"a","text":"goal team"}\n{"label":"b","text":"coach medal"}\n',
    "a.json": '[{"label":"a","text":"goal team"},\n{"label":"b","text":"coach medal"}]\n',
    "fasttext.txt": "__label__a goal team\n__label__b coach medal\n",
}
TAGGED = {
    "a.conll": "Anna O\nsees O\n\nLima O\n",
    "a.jsonl": '{"tokens": ["Anna", "sees"], "labels": ["O", "O"]}\n{"tokens": ["Lima"], "labels": ["O"]}\n',
    "a.json": '\ufeff[{"tokens": ["Anna", "sees"], "labels": ["O", "O"]},\n {"tokens": ["Lima"], "labels": ["O"]}\n]',
}


@pytest.mark.parametrize(
    ("run", "name", "text"),
    [*(("topics", *item) for item in LABELED.items()), *(("names", *item) for item in TAGGED.items())],
)
def test_predictions_of_two_files_can_be_read_as_one_file(
    run: str, name: str, text: str, ensue: Ensue, runs: Path, in_tmp_path: None
) -> None:
    files = [Path(f"{place}{name}") for place in (1, 2)]
    for file in files:
        file.write_bytes(text.encode())
    result = ensue("predict", runs / run, *files).succeeded()
    assert result.out.startswith("\ufeff") == text.startswith("\ufeff")
    assert result.out.count("\ufeff") == text.startswith("\ufeff")
    if name.endswith(".json"):
        assert len(json.loads(result.out.removeprefix("\ufeff"))) == 4
    Path(f"new{name}").write_bytes(result.out.encode())
    predicted_again = ensue("predict", runs / run, f"new{name}", "--json")
    assert predicted_again.out.count("\n") == 4
    scores = json.loads(ensue("evaluate", runs / run, f"new{name}", "--json").out)
    assert scores["accuracy"] == 1.0
