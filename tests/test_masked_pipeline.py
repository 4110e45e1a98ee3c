"""Masked language models from text to use: they learn, fill masks, score, and give vectors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.tasks.masked_language_modeling import token_windows
from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline
from ensue.tasks.texts.framing import text_windows
from training.tiny import assert_refused, run_tiny
from training.tiny_masked import PAIRS, masked_recipe, paragraphs
from training.tiny_texts import Listener

LONG = "the cat sees a dog , and the dog runs . " * 5


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("masked") / "text.txt"
    path.write_text(paragraphs(60))
    return path


@pytest.fixture(scope="module")
def run(text: Path, steps_to_learn: Callable[[int], int]) -> Path:
    learns = {"steps": steps_to_learn(70), "batch_size": 16, "learning_rate": 0.02, "validations": 1}
    run_tiny(masked_recipe(text, encoder={"d_model": 32}, train=learns), text.parent / "run")
    return text.parent / "run"


@pytest.fixture(scope="module")
def pipeline(run: Path) -> MaskedLanguagePipeline:
    return ensue.load(run, device="cpu", kind=MaskedLanguagePipeline)


@pytest.mark.slow
def test_it_learns_the_rule_and_fills_masks(pipeline: MaskedLanguagePipeline, text: Path) -> None:
    scores = pipeline.evaluate(text).as_json()
    assert scores == pipeline.evaluate(text).as_json()
    items = pipeline.scored_items(text).compute()
    assert items == pytest.approx({name: scores[name] for name in items})
    assert scores["masked_nats"] < 2  # without the words around it, 2.4
    assert scores["perplexity"] == pytest.approx(np.exp(scores["masked_nats"]))
    assert 0.3 < scores["accuracy"] < 1
    assert 0.12 < scores["masked"] / scores["tokens"] < 0.17
    (filled,) = pipeline.with_search(n_best=3).predict(["the cat is a cat, [MASK] cat and cat [MASK] ."])
    assert filled.text == "the cat is a cat, cat cat and cat cat ."
    assert [len(fills) for fills in filled.masks] == [3, 3]
    for fills in filled.masks:
        shares = [fill.probability for fill in fills]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-9


@pytest.mark.slow
def test_lines_are_filled_and_scored(pipeline: MaskedLanguagePipeline, tmp_path: Path) -> None:
    path = tmp_path / "masks.txt"
    path.write_text("the [MASK] sees a dog\nThe cat [MASK] .\n")
    options: dict[str, Any] = {"format": None, "encoding": "utf-8", "color": False}
    plain = list(pipeline.prediction_lines(str(path), as_json=False, **options))
    records = [json.loads(line) for line in pipeline.prediction_lines(str(path), as_json=True, **options)]
    assert [record["prediction"] + "\n" for record in records] == plain
    assert [record["text"] for record in records] == path.read_text().splitlines()
    assert [len(record["masks"][0]) for record in records] == [5, 5]
    scores = [json.loads(line) for line in pipeline.score_lines(str(path), as_json=True)]
    assert {"token", "nats"} == set(scores[0])
    path.write_text("the [MASK]\nno mask here\n")
    lines = pipeline.prediction_lines(str(path), as_json=False, **options)
    next(lines)
    with pytest.raises(DataError, match=r'masks.txt:2: no \[MASK\] to fill in; found "no mask here"'):
        next(lines)


def test_a_text_longer_than_the_context_is_an_error_of_one_line(pipeline: MaskedLanguagePipeline) -> None:
    with pytest.raises(EnsueError, match=r"tokens; this model reads up to 16 \(encoder.context 18 without") as raised:
        pipeline.predict([LONG + "[MASK]"])
    assert "\n" not in str(raised.value)


def test_scores_are_pseudo_log_likelihoods(pipeline: MaskedLanguagePipeline) -> None:
    text = "the dog sees a cat"
    scores = pipeline.score(text)
    coder, model = pipeline.coder, pipeline.model
    ids = torch.from_numpy(coder.add_frame(coder.encode(text)))
    for place, (symbol, nats) in enumerate(scores, start=1):
        hidden = ids.clone()
        hidden[place] = coder.mask_id
        with torch.no_grad():
            logits = model.logits(hidden[None], torch.arange(len(ids))[None] == place)
        assert symbol == coder.symbol(int(ids[place]))
        assert nats == pytest.approx(-float(logits.log_softmax(1)[0, ids[place]]), abs=1e-4)
    assert pipeline.score("") == []


def test_minimal_pairs_count_ties_as_one_half(pipeline: MaskedLanguagePipeline, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    pairs = [("the cat is a cat", "the cat is a cat"), ("the cat is a cat .", "the cat is dog mouse .")]
    path.write_text("".join(json.dumps({"sentence_good": a, "sentence_bad": b}) + "\n" for a, b in pairs))
    assert pipeline.minimal_pairs(path).total.num_correct == 1.5


def test_results_do_not_depend_on_the_batch(pipeline: MaskedLanguagePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the cat", LONG, "", "a dog runs .", LONG[7:90], "\x00"]
    together = pipeline.embed(texts), pipeline.embed_words([text.split() for text in texts])
    scores = [[token.nats for token in pipeline.score(text)] for text in texts]
    monkeypatch.setattr(token_windows, "MAX_CALL_TOKENS", 30)
    assert together[0].shape == (6, 32)
    assert together[0].dtype == np.float32
    for text, vector, words, score in zip(texts, *together, scores, strict=True):
        np.testing.assert_allclose(pipeline.embed([text])[0], vector, atol=1e-5)
        np.testing.assert_allclose(pipeline.embed_words([text.split()])[0], words, atol=1e-5)
        assert [token.nats for token in pipeline.score(text)] == pytest.approx(score, abs=1e-4)
    assert pipeline.embed([]).shape == (0, 32)


def test_poolings_and_layers_are_those_of_the_model(pipeline: MaskedLanguagePipeline) -> None:
    coder, model = pipeline.coder, pipeline.model
    ids = torch.from_numpy(coder.add_frame(coder.encode("the cat runs")))[None]
    with torch.no_grad():
        layers = [layer[0].numpy() for layer in model.layers_of(ids)]
    for layer in (0, 1, 2, -1):
        expected = {"mean": layers[layer].mean(0), "max": layers[layer].max(0), "first": layers[layer][0]}
        expected["last"] = layers[layer][-1]
        for pooling, vector in expected.items():
            vector_of_text = pipeline.embed(["the cat runs"], pooling=pooling, layer=layer)[0]
            np.testing.assert_allclose(vector_of_text, vector, atol=1e-5)
    (words,) = pipeline.embed_words([["the", "\x00", "cat", "runs"]], pooling="last", layer=1)
    ends = np.cumsum([len(coder.encode(word)) for word in ("the", "cat", "runs")])
    np.testing.assert_allclose(words[[0, 2, 3]], layers[1][ends], atol=1e-5)
    assert not words[1].any()
    with pytest.raises(EnsueError, match='no pooling "men"; did you mean "mean"'):
        pipeline.embed(["a"], pooling="men")
    with pytest.raises(EnsueError, match="layer is 3; expected a whole number from -3 to 2"):
        pipeline.embed(["a"], layer=3)


@pytest.mark.parametrize(("size", "max_tokens"), [(0, 8), (5, 8), (8, 8), (9, 8), (30, 8), (31, 7), (100, 16)])
def test_windows_keep_each_token_once_and_far_from_edges(size: int, max_tokens: int) -> None:
    plan = text_windows(0, size, max_tokens)
    assert [place for window in plan for place in range(window.first, window.last)] == list(range(size))
    for window in plan:
        assert window.size <= max_tokens
        assert window.begin <= window.first <= window.last <= window.end <= size
        if size > max_tokens:
            assert window.size == max_tokens
            assert window.begin == 0 or window.first - window.begin >= max_tokens // 4
            assert window.end == size or window.end - window.last >= max_tokens // 4


def test_gradient_accumulation_gives_the_weights_of_full_batches(text: Path, tmp_path: Path) -> None:
    """The loss of sentence pairs is the sum of two means, over masked tokens and over pairs."""
    for parts in (1, 4):
        recipe = masked_recipe(text, train={"steps": 2, "accumulate": parts, "validations": 1}, **PAIRS)
        run_tiny(recipe, tmp_path / str(parts))
    one, four = (ensue.load(tmp_path / str(parts), device="cpu").model.state_dict() for parts in (1, 4))
    for name, weight in one.items():
        torch.testing.assert_close(weight, four[name], atol=2e-4, rtol=1e-3)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "nothing": ("", {}, "text.txt: the text is empty"),
    "blanks": ("  \n\n ", {}, "nothing to learn"),
    "short": ("the cat and the dog run", {}, r"tokens; a block has 16 \(encoder.context 18 without"),
    "one document": ("the cat runs .\n" * 40, PAIRS, "pairs need at least two documents"),
}


@pytest.mark.parametrize("case", BAD)
def test_texts_that_are_too_short_are_errors_of_one_line(case: str, tmp_path: Path) -> None:
    content, tables, message = BAD[case]
    (tmp_path / "text.txt").write_text(content)
    data = {"valid_fraction": 0.0} | tables.get("data", {})
    recipe = masked_recipe(tmp_path / "text.txt", **{**tables, "data": data})
    assert_refused(recipe, tmp_path / "run", message)


def test_too_few_examples_and_words_are_noted(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sees the dog and " * 30)
    listener = Listener()
    recipe = masked_recipe(
        tmp_path / "text.txt", tokenizer={"max_size": 9000}, train={"steps": 1, "batch_size": 100, "validations": 1}
    )
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    assert listener.facts is not None
    notes = " ".join(listener.facts.notes)
    assert "the text gives a vocabulary of" in notes
    assert "not 9,000 (tokenizer.max_size)" in notes
    assert "examples for a batch, not 100" in notes


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"encoder": {"context": 4}}, "encoder.context of 4; expected at least 8"),
        ({"data": {"next_sentence": True}}, "needs input.segments = 2"),
        (
            {"data": {"next_sentence": True, "documents": "lines"}, "input": {"segments": 2}},
            'expected data.documents = "blank-lines"',
        ),
        ({"masking": {"masked": 0.9, "random": 0.2}}, "together more than 1"),
        ({"masking": {"share": 0}}, "masking.share"),
        ({"tokenizer": {"kind": "characters"}}, "tokenizer.kind"),
        ({"encoder": {"kind": "lstm"}}, "encoder.kind"),
    ],
)
def test_contradicting_settings_are_errors_of_one_line(tables: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message) as raised:
        masked_recipe(tmp_path, **tables)
    assert "\n" not in str(raised.value)
