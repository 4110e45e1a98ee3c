"""Cutters learn the ends of words and sentences, and with a tagger convert raw text to CoNLL-U."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ensue.cli.options import split_tagger
from ensue.data.lines import Lines
from ensue.data.sentences.conllu import Conllu
from ensue.errors import DataError, EnsueError
from ensue.library import load
from ensue.tasks.contract.pipeline import Predictor
from training.tiny import run_tiny
from training.tiny_texts import TREEBANK, cutting, tagging


@pytest.mark.slow
def test_raw_text_becomes_conllu(tmp_path: Path) -> None:
    gold, raw = tmp_path / "gold.conllu", tmp_path / "raw.txt"
    gold.write_text(TREEBANK * 8)
    raw.write_text("Dogs don't . Go!\n\nGo!\n")
    run_tiny(cutting(gold), tmp_path / "cutter")
    columns = {"labels": ["upos", "lemma"], "valid": str(gold), "format": "conllu"}
    run_tiny(tagging(gold, data=columns, steps=40), tmp_path / "tagger")
    cutter, tagger = load(tmp_path / "cutter", device="cpu"), load(tmp_path / "tagger", device="cpu")
    assert {name: score.f1 for name, score in cutter.evaluate(gold).scores.items()} == {
        "tokens": 1, "sentences": 1, "words": 1,
    }  # fmt: skip
    both = cutter.before(tagger)
    scores = both.evaluate(gold)
    assert scores.as_json()["upos"] == scores.as_json()["lemmas"] == 1.0
    lines = list(both.prediction_lines(str(raw)))
    assert "".join(lines[:1]).startswith("# newpar\n# sent_id = 1-1\n# text = Dogs don't .\n1\tDogs\tdog\tNOUN\t")
    assert "2-3\tdon't" + "\t_" * 8 + "\n2\tdo\tdo\tAUX" in lines[0]
    assert [line.split("\n")[0] for line in lines] == ["# newpar", "# sent_id = 1-2", "# newpar"]
    assert [sentence.words for sentence in Conllu().read(Lines(lines, ""))][1:] == [("Go", "!")] * 2
    (answer,) = cutter.predict_json(["Go!"])
    assert answer["sentences"][0]["tokens"][1] == {"text": "!", "start": 2, "end": 3, "words": ["!"]}
    assert [json.loads(line)["text"] for line in cutter.prediction_lines(str(raw), as_json=True)][1:] == ["Go!"] * 2
    assert [[word.label for word in sentence] for sentence in both.predict(["Go!"])[0]] == [["VERB", "PUNCT"]]
    with pytest.raises(EnsueError, match="expected a tagger of words after a cutter"):
        cutter.before(cutter)
    with pytest.raises(EnsueError, match="a cutter has one result"):
        cutter.with_search(n_best=2)


def test_a_paragraph_that_is_too_long_is_refused() -> None:
    refused = (
        "a paragraph of 100,001 characters; this model .* reads up to 100,000: end paragraphs with a blank line, or"
    )
    with pytest.raises(DataError, match=f"^x.txt:3: {refused}"):
        cutting(Path("x")).check_length(100_001, "x.txt", 3)


def test_a_run_after_a_cutter_is_distinguished_from_texts(tmp_path: Path) -> None:
    run, text = tmp_path / "tagger", tmp_path / "text.txt"
    run.mkdir()
    (run / "config.json").write_text("{}")
    other = tmp_path / "other.txt"
    for path in (text, other):
        path.write_text("a\n")
    assert split_tagger([str(run), str(text)]) == (run, str(text))
    assert split_tagger([str(run)]) == (run, "")
    assert split_tagger([str(text)]) == (None, str(text))
    assert split_tagger(None) == (None, "")
    assert split_tagger([str(run), str(text), str(other)])[0] == run
    for wrong in ([str(text), str(run)], [str(run), str(run)]):
        with pytest.raises(EnsueError, match=r"tagger: a run; expected data \(for a cutter: the run"):
            split_tagger(wrong)
    with pytest.raises(EnsueError, match="first: the model is not a cutter; tagger needs a cutter before it"):
        Predictor.before(SimpleNamespace(run="first"), SimpleNamespace(run="tagger"))  # type: ignore[arg-type]
