"""Texts longer than a model can read are errors of one line, in training and use, before anything is computed."""

from pathlib import Path
from typing import Any

import pytest

from ensue.data.examples import Pair
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError
from ensue.library import load
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.contract.chunks import MAX_ATTENTION_TOKENS
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.sequence_to_sequence import task as pair_length
from training.tiny import run_tiny
from training.tiny_pairs import SMALL, pair_recipe, pairs
from training.tiny_texts import classifying, columns, documents, sentences, tagging, tsv

LSTM = {"kind": "lstm", "d_model": 8}


def test_the_bound_depends_on_the_model(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    attention = {"kind": "transformer", "d_model": 8, "num_heads": 2}
    rotary, learned = attention | {"positions": "rotary"}, attention | {"positions": "learned", "context": 7}
    assert tagging(path).max_words == LabelingRecipe.max_recurrent_words
    assert classifying(path).max_words == ClassificationRecipe.max_recurrent_words
    assert tagging(path, encoder=rotary).max_words == MAX_ATTENTION_TOKENS
    assert classifying(path, encoder=learned).max_words == 7
    classifying(path, encoder=learned).check_length(7)
    with pytest.raises(
        DataError, match=r"^x:3: a text of 8 words; this model \(transformer\) reads up to 7 \(encoder.c"
    ):
        classifying(path, encoder=learned).check_length(8, "x", 3)


def test_the_bounds_of_pairs_depend_on_the_model(tmp_path: Path) -> None:
    path, pair = tmp_path / "x.tsv", Pair(("a",), ("b",), "x", 3)
    plain = {"encoder": LSTM, "decoder": LSTM, "attention": {"kind": "none"}}
    attending = plain | {"attention": {"kind": "dot"}}
    for tables, max_tokens in (
        (plain, pair_length.MAX_SOURCE_TOKENS),
        (attending, MAX_ATTENTION_TOKENS),
        ({}, MAX_ATTENTION_TOKENS),
    ):
        recipe = pair_recipe(path, **tables)
        pair_length.check_lengths(recipe, pair, max_tokens, max_tokens)
        assert pair_length.max_output_tokens(recipe) is None
        with pytest.raises(
            DataError, match=rf"^x:3: a source of {max_tokens + 1:,} tokens; this model .* up to {max_tokens:,}: cut"
        ):
            pair_length.check_lengths(recipe, pair, max_tokens + 1)
        with pytest.raises(DataError, match=rf"^x:3: a target of {max_tokens + 1:,} tokens"):
            pair_length.check_lengths(recipe, pair, 1, max_tokens + 1)


def test_pairs_that_are_too_long_are_refused_and_outputs_end_with_the_context(tmp_path: Path) -> None:
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
    with pytest.raises(EnsueError, match="min_tokens is 10; expected at most max_tokens = 9"):
        pipeline.with_search(min_tokens=10).predict(["the cat"])


@pytest.mark.parametrize("task", ["labeling", "classification"])
def test_a_text_that_is_too_long_is_refused(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, long, text = tmp_path / "x", tmp_path / "long", "the " * 60
    recipe_of: Any = tagging if task == "labeling" else classifying
    path.write_text(columns(sentences(30)) if task == "labeling" else tsv(documents(30)))
    long.write_text(path.read_text() + ("\n" + "the DET O\n" * 60 if task == "labeling" else f"music\t{text}\n"))
    line = len(path.read_text().splitlines()) + (2 if task == "labeling" else 1)
    run_tiny(recipe_of(path, steps=2), tmp_path / "run")
    monkeypatch.setattr(LabelingRecipe if task == "labeling" else ClassificationRecipe, "max_recurrent_words", 50)
    pipeline: Any = load(tmp_path / "run", device="cpu")
    refused = "a (sentence|text) of 60 words; this model .* reads up to 50: (end sentences with|cut it, or train)"
    uses = [lambda: pipeline.predict([text]), lambda: pipeline.inspect(text)]
    if task == "labeling":
        words = ("the",) * 60
        uses += [lambda: pipeline.predict([words]), lambda: pipeline.inspect(Sentence(words))]
    for use in uses:
        with pytest.raises(DataError, match=f"^{refused}"):
            use()
    for read in (lambda: pipeline.evaluate(long), lambda: run_tiny(recipe_of(long), tmp_path / "other")):
        with pytest.raises(DataError, match=rf"long:{line}: {refused}"):
            read()
    assert not (tmp_path / "other").exists()
    if task == "classification":
        run_tiny(classifying(long, steps=1, data={"max_tokens": 30}), tmp_path / "cut")
