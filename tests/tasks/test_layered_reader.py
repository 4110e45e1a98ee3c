"""Vectors of words from language models and translators depend on no token of other words and no other sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue.models.build_text import build_language_model
from ensue.models.specification import Tokens
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.texts.framing import Framing
from ensue.tasks.vectors import contextual
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.text.tokenizer import Tokenizer
from ensue.text.tokenizers import train_tokenizer
from training.tiny import run_tiny, tiny_recipe
from training.tiny_pairs import pair_recipe, pairs

TEXT = "the old bird sees a warm house .\nAnna and Boris find the river , don't they ?\n" * 5
WORDS = ["the", "", "old", "\x00", "bird", "\u00a0", "naïve", "日本", "🙂", "e\u0301", "a b", "\ud800", "sees"]
LONG = ["bird", "house", "the"] * 9
KINDS = ("characters", "bytes", "words", "bpe")
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "d_model": 6, "num_layers": 2, "dropout": 0.3},
    "projected": {"kind": "projected", "d_model": 4, "d_cell": 7, "dropout_input": 0.2},
    "learned": {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 2, "context": 10},
    "post norm": {"kind": "transformer", "d_model": 8, "num_heads": 2, "context": 16, "norm": "post"},
}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(kind, [TEXT], max_size=300) for kind in KINDS}


@pytest.fixture(scope="module")
def pipeline_of(tokenizers: dict[str, Tokenizer]) -> Callable[[str, str], LanguagePipeline]:
    def build(kind: str, encoder: str) -> LanguagePipeline:
        recipe = tiny_recipe(Path("text"), model=ENCODERS[encoder] | {"d_embedding": 5})
        assert isinstance(recipe, LanguageModelingRecipe)
        torch.manual_seed(0)
        tokenizer, tokens = tokenizers[kind], Tokens(d_embedding=5)
        size = tokenizer.vocabulary_size
        return LanguagePipeline(build_language_model(tokens, recipe.encoder, vocabulary_size=size), tokenizer)

    return build


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> ContextualPipeline:
    folder = tmp_path_factory.mktemp("layered")
    (folder / "pairs.tsv").write_text(pairs(30))
    tables = {"encoder": {"kind": "lstm", "d_model": 8, "num_layers": 2}, "decoder": {"kind": "lstm", "d_model": 8}}
    recipe = pair_recipe(folder / "pairs.tsv", train={"steps": 1, "validations": 1}, **tables)
    run_tiny(recipe, folder / "run")
    return ensue.load(folder / "run", device="cpu", kind=ContextualPipeline)


ANY_WORDS = st.lists(st.text(max_size=6) | st.sampled_from(WORDS), max_size=8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
@given(words=ANY_WORDS)
def test_every_word_has_separate_tokens(kind: str, tokenizers: dict[str, Tokenizer], words: list[str]) -> None:
    """Tokens of words and of the blanks between words are those of the sentence, unless a word contains blanks."""
    tokenizer = tokenizers[kind]
    split = Framing.with_separate_words(tokenizer).split(words)
    assert len(split.counts) == len(words)
    assert sum(split.counts) == (~split.is_gap).sum()
    pieces = np.split(split.ids[~split.is_gap], np.cumsum(split.counts))
    for word, piece in zip(words, pieces, strict=False):
        if not word.strip():
            assert not len(piece)
        elif not tokenizer.joins_blanks:
            assert piece.tolist() == tokenizer.encode(word).tolist()
    real = [word for word in words if word.strip()]
    if all(word == word.strip() and len(word.split()) == 1 for word in real):
        assert split.ids.tolist() == tokenizer.encode(" ".join(real)).tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_no_sentence_depends_on_another(
    kind: str, encoder: str, pipeline_of: Callable[[str, str], LanguagePipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_of(kind, encoder)
    sentences = [WORDS, [], LONG, ["the"], ["", " "]]
    together = pipeline.layers_of_words(sentences)
    shapes = [(pipeline.num_layers, len(words), pipeline.d_layers) for words in sentences]
    assert [vectors.shape for vectors in together] == shapes
    monkeypatch.setattr(contextual, "MAX_CALL_TOKENS", 20)
    for words, vectors in zip(sentences, together, strict=True):
        np.testing.assert_allclose(pipeline.layers_of_words([words])[0], vectors, atol=1e-5)
        empty = [not word.strip() for word in words]
        assert not vectors[:, empty].any()
        assert vectors[:, np.logical_not(empty)].any(-1).all()


@pytest.mark.parametrize("encoder", ["lstm", "projected", "learned"])
def test_a_language_model_reads_from_the_start_up_to_the_word(
    encoder: str, pipeline_of: Callable[[str, str], LanguagePipeline]
) -> None:
    pipeline = pipeline_of("words", encoder)
    model, tokenizer = pipeline.model, pipeline.tokenizer
    words = ["the", "old", "bird", "sees"]
    (vectors,) = pipeline.layers_of_words([words], pooling="last")
    ids = torch.from_numpy(np.array([[tokenizer.start_id, *tokenizer.encode(" ".join(words))]], np.int64))
    with torch.no_grad():
        h, _ = model.read(ids)
    d = h.shape[-1]
    np.testing.assert_allclose(vectors[-1][:, :d], h[0, 1:].numpy(), atol=1e-6)
    assert not vectors[-1][:, d:].any()
    if encoder != "learned":
        embedded = model.features(ids)[0, 1:].detach().numpy()
        np.testing.assert_allclose(vectors[0][:, :5], embedded, atol=1e-6)
    (changed,) = pipeline.layers_of_words([[*words[:2], "house"]], pooling="last")
    np.testing.assert_allclose(changed[:, :2], vectors[:, :2], atol=1e-6)


def test_a_long_sentence_is_read_in_windows(pipeline_of: Callable[[str, str], LanguagePipeline]) -> None:
    """A window has 9 words and the start, and each word is read after at least 4 others."""
    pipeline = pipeline_of("words", "learned")
    (vectors,) = pipeline.layers_of_words([LONG])
    np.testing.assert_allclose(vectors[:, :9], pipeline.layers_of_words([LONG[:9]])[0], atol=1e-5)
    np.testing.assert_allclose(vectors[:, 9:13], pipeline.layers_of_words([LONG[4:13]])[0][:, 5:], atol=1e-5)


@pytest.mark.slow
def test_the_encoder_of_a_translator_reads_in_both_directions(translator: ContextualPipeline) -> None:
    assert (translator.num_layers, translator.d_layers) == (3, 32)
    words = ["the", "red", "cat", "", "sees"]
    (vectors,) = translator.layers_of_words([words])
    assert vectors.shape == (3, 5, 32)
    assert not vectors[:, 3].any()
    model, coder = translator.model, translator.coder  # type: ignore[attr-defined]
    ids = torch.from_numpy(np.append(coder.source.encode("the red cat sees"), coder.source.end_id)[None])
    with torch.no_grad():
        memory = model.encode(ids).values[0]
    np.testing.assert_allclose(vectors[2][[0, 1, 2, 4], :16], memory[:4].numpy(), atol=1e-6)
    alone = translator.layers_of_words([words, ["a", "big", "door"]])[0]
    np.testing.assert_allclose(alone, vectors, atol=1e-6)
