"""Texts that are longer than a model reads whole: one line, in training and at use, before anything is computed."""

from pathlib import Path

import pytest

from ensue.data.examples import Pair
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError
from ensue.library import load
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.contract.chunks import MOST_ATTENDED
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.sequence_to_sequence import task as pair_length
from training.tiny import run_tiny
from training.tiny_pairs import SMALL, pair_recipe, pairs
from training.tiny_texts import classifying, columns, documents, sentences, tagging, tsv, without_pictures

LSTM = {"kind": "lstm", "d_model": 8}


def test_the_bound_depends_on_the_model(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    attention = {"kind": "transformer", "d_model": 8, "num_heads": 2}
    rotary, learned = attention | {"positions": "rotary"}, attention | {"positions": "learned", "context": 7}
    assert tagging(path).most_read == LabelingRecipe.most_words
    assert classifying(path).most_read == ClassificationRecipe.most_words
    assert tagging(path, encoder=rotary).most_read == MOST_ATTENDED
    assert classifying(path, encoder=learned).most_read == 7
    classifying(path, encoder=learned).check_length(7)
    with pytest.raises(
        DataError, match=r"^x:3: a text of 8 words; this model \(transformer\) reads up to 7 \(encoder.c"
    ):
        classifying(path, encoder=learned).check_length(8, "x", 3)


def test_the_bounds_of_pairs_depend_on_the_model(tmp_path: Path) -> None:
    path, pair = tmp_path / "x.tsv", Pair(("a",), ("b",), "x", 3)
    plain = {"encoder": LSTM, "decoder": LSTM, "attention": {"kind": "none"}}
    attending = plain | {"attention": {"kind": "dot"}}
    for tables, most in ((plain, pair_length.MOST_READ), (attending, MOST_ATTENDED), ({}, MOST_ATTENDED)):
        recipe = pair_recipe(path, **tables)
        pair_length.check_lengths(recipe, pair, most, most)
        assert pair_length.most_written(recipe) is None
        with pytest.raises(
            DataError, match=rf"^x:3: a source of {most + 1:,} tokens; this model .* up to {most:,}: cut"
        ):
            pair_length.check_lengths(recipe, pair, most + 1)
        with pytest.raises(DataError, match=rf"^x:3: a target of {most + 1:,} tokens"):
            pair_length.check_lengths(recipe, pair, 1, most + 1)


def test_pairs_that_are_too_long_are_one_line_and_outputs_end_with_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pictures(monkeypatch)
    path, long = tmp_path / "x.tsv", tmp_path / "long.tsv"
    path.write_text(pairs(20))
    long.write_text(pairs(1) + "the cat\t" + "die Katze " * 6 + "\n")
    bounded = {side: SMALL[side] | {"positions": "learned", "context": 10} for side in ("encoder", "decoder")}
    run_tiny(pair_recipe(path, train={"steps": 1}, **bounded), tmp_path / "run")
    pipeline = load(tmp_path / "run", device="cpu")
    source = r"^a source of 13 tokens; this model \(transformer\) reads up to 10 \(encoder.context\): cut it"
    target = r"a target of 13 tokens; this model \(transformer\) reads up to 10 \(decoder.context\): cut it"
    with pytest.raises(DataError, match=source):
        pipeline.predict(["the cat " * 6])
    with pytest.raises(DataError, match=source):
        pipeline.score("the cat " * 6, "die")
    with pytest.raises(DataError, match=rf"long.tsv:2: {target}"):
        pipeline.evaluate(long)
    with pytest.raises(DataError, match=rf"long.tsv:2: {target}"):
        run_tiny(pair_recipe(long, data={"valid": str(path)}, **bounded), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (output,) = pipeline.with_search(min_tokens=9).predict(["the cat sees a bird"])
    assert len(output.text.split()) == 9
    with pytest.raises(EnsueError, match="min_tokens is 10, and max_tokens is 9"):
        pipeline.with_search(min_tokens=10).predict(["the cat"])


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
