"""Texts that are longer than a model reads whole: one line, in training and at use, before anything is computed."""

from pathlib import Path

import pytest

from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError
from ensue.library import load
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.words import length
from training.tiny import run_tiny
from training.tiny_texts import classifying, columns, documents, sentences, tagging, tsv, without_pictures


def test_the_bound_depends_on_the_model(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    attention = {"kind": "transformer", "d_model": 8, "num_heads": 2}
    rotary, learned = attention | {"positions": "rotary"}, attention | {"positions": "learned", "context": 7}
    assert length.most_words(tagging(path)) == LabelingRecipe.most_words
    assert length.most_words(classifying(path)) == ClassificationRecipe.most_words
    assert length.most_words(tagging(path, encoder=rotary)) == length.MOST_ATTENDED
    assert length.most_words(classifying(path, encoder=learned)) == 7
    length.check_length(7, classifying(path, encoder=learned))
    with pytest.raises(
        DataError, match=r"^x:3: a text of 8 words; this model \(transformer\) reads up to 7 \(encoder.c"
    ):
        length.check_length(8, classifying(path, encoder=learned), "x", 3)


def test_a_sentence_that_is_too_long_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, long = tmp_path / "x.txt", tmp_path / "long.txt"
    path.write_text(columns(sentences(30)))
    long.write_text(columns(sentences(1)) + "\n" + "the DET O\n" * 60)
    without_pictures(monkeypatch)
    run_tiny(tagging(path, steps=2), tmp_path / "run")
    monkeypatch.setattr(LabelingRecipe, "most_words", 50)
    pipeline, line = load(tmp_path / "run", device="cpu"), len(sentences(1)[0].words) + 2
    refused = "a sentence of 60 words; this model .* reads up to 50: end sentences with"
    with pytest.raises(DataError, match=rf"long.txt:{line}: {refused}"):
        pipeline.evaluate(long)
    for use in (lambda words: pipeline.predict([words]), pipeline.inspect, lambda w: pipeline.inspect(Sentence(w))):
        with pytest.raises(DataError, match=f"^{refused}"):
            use(("the",) * 60)
    with pytest.raises(DataError, match=rf"long.txt:{line}: {refused}"):
        run_tiny(tagging(long), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_text_that_is_too_long_is_one_line_unless_a_part_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, long = tmp_path / "x.tsv", tmp_path / "long.tsv"
    path.write_text(tsv(documents(30)))
    text, refused = "salt " * 300, "a text of 300 words; this model .* reads up to 250: cut it, or train with data.max"
    long.write_text(path.read_text() + f"music\t{text}\n")
    without_pictures(monkeypatch)
    run_tiny(classifying(path, steps=2), tmp_path / "run")
    monkeypatch.setattr(ClassificationRecipe, "most_words", 250)
    pipeline = load(tmp_path / "run", device="cpu")
    for use in (lambda: pipeline.predict([text]), lambda: pipeline.inspect(text)):
        with pytest.raises(DataError, match=f"^{refused}"):
            use()
    number = len(long.read_text().splitlines())
    with pytest.raises(DataError, match=rf"long.tsv:{number}: {refused}"):
        pipeline.evaluate(long)
    with pytest.raises(DataError, match=rf"long.tsv:{number}: {refused}"):
        run_tiny(classifying(long), tmp_path / "other")
    run_tiny(classifying(long, steps=1, data={"max_tokens": 100}), tmp_path / "cut")
