"""Pipelines of language models, tested with small random models."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ensue.decode.generation import search_ids
from ensue.decode.search import BeamSearch
from ensue.engine import has_bfloat16
from ensue.errors import ContextError, EnsueError, RunError
from ensue.library import load
from ensue.metrics.scores import LanguageScores
from ensue.models.build_text import build_language_model
from ensue.processor import InferencePrecision
from ensue.tasks.contract.token_scores import TokenScore
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.texts.scoring import TextScorer
from ensue.text.tokenizers import train_tokenizer
from kept_runs.make import unpacked
from language_pipelines import TEXT, pipeline_of
from layer_tables import layers
from training.tiny import needs_int8

KINDS = ["characters", "bytes", "words", "bpe"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_streamed_pieces_are_the_sampled_text(kind: str) -> None:
    pipeline = pipeline_of(kind)
    pieces = list(pipeline.generate("The sea", max_tokens=30, seed=4))
    assert all(pieces)
    assert "".join(pieces) == pipeline.samples("The sea", 1, max_tokens=30, seed=4)[0]
    assert "".join(pieces) != "".join(pipeline.generate("The sea", max_tokens=30, seed=5))


def test_samples_differ() -> None:
    texts = pipeline_of("characters").samples(num_samples=5, max_tokens=20, seed=0)
    assert [len(text) for text in texts] == [20] * 5
    assert len(set(texts)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_nats_of_search_results_equal_those_of_score(kind: str) -> None:
    pipeline = pipeline_of(kind)
    results = pipeline.search("The sea", beams=3, n_best=3, max_tokens=6)
    assert [result.nats for result in results] == sorted(result.nats for result in results)
    ids = pipeline.tokenizer.encode("The sea").tolist()
    (hypotheses,) = search_ids(
        pipeline.model, [ids], search=BeamSearch(3, 3, max_tokens=6), start_id=pipeline.tokenizer.start_id
    )
    for result, hypothesis in zip(results, hypotheses, strict=True):
        scorer = TextScorer(pipeline.model, start_id=pipeline.tokenizer.start_id)
        nats = scorer.feed(np.array([*ids, *hypothesis.ids]))[len(ids) :]
        assert result.nats == pytest.approx(nats.sum(), abs=1e-4)
        assert result.text == pipeline.tokenizer.decode([*ids, *hypothesis.ids])[len("The sea") :]


def test_a_blank_separates_a_generated_word_from_the_prompt() -> None:
    pipeline = pipeline_of("words")
    text = "".join(pipeline.generate("The sea", max_tokens=1, top_k=1))
    assert text[0] in " \n"


def test_settings_reach_the_sampler() -> None:
    pipeline = pipeline_of("characters")
    greedy = "".join(pipeline.generate("The", temperature=0, max_tokens=12))
    for setting in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        assert "".join(pipeline.generate("The", max_tokens=12, **setting)) == greedy
    penalized = "".join(pipeline.generate("", temperature=0, repetition_penalty=1e9, max_tokens=12))
    assert penalized != greedy


def test_invalid_settings_are_refused_before_the_first_piece() -> None:
    pipeline = pipeline_of("characters")
    with pytest.raises(EnsueError, match="top_p is 2"):
        pipeline.generate(top_p=2.0)
    with pytest.raises(EnsueError, match="num_samples is 0"):
        pipeline.samples(num_samples=0)
    transformer = layers(kind="transformer", context=4, d_model=8, d_embedding=8, num_heads=2)
    with pytest.raises(ContextError, match="the prompt has 7 tokens"):
        pipeline_of("characters", transformer).generate("The sea")


def test_zero_tokens_give_an_empty_text() -> None:
    assert list(pipeline_of("bytes").generate(max_tokens=0)) == []
    assert pipeline_of("bytes").samples(num_samples=2, max_tokens=0) == ["", ""]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_streamed_text_has_the_scores_of_the_full_text(kind: str, size: int) -> None:
    pipeline = pipeline_of(kind)
    expected = pipeline.score(TEXT)
    streamed = list(pipeline.score_stream(TEXT[start : start + size] for start in range(0, len(TEXT), size)))
    assert [token.symbol for token in streamed] == [token.symbol for token in expected]
    assert np.allclose([token.nats for token in streamed], [token.nats for token in expected], rtol=1e-4)
    tokenizer = pipeline.tokenizer
    assert [token.symbol for token in expected] == [tokenizer.symbol(id) for id in tokenizer.encode(TEXT)]


def test_scores_are_surprisals() -> None:
    pipeline = pipeline_of("characters")
    start = torch.tensor([[pipeline.tokenizer.start_id]])
    with torch.no_grad():
        logits, _ = pipeline.model(start)
    (token,) = pipeline.score("T")
    assert token.nats == pytest.approx(-float(logits[0, 0].log_softmax(-1)[int(pipeline.tokenizer.encode("T")[0])]))
    assert pipeline.score("") == []
    assert repr(TokenScore("T", 1.234)) == "'T' 1.23"


@pytest.mark.parametrize(("kind", "unknown"), [("words", "Fnord"), ("characters", "Ω"), ("wordpiece", "Ωmega")])
def test_an_unknown_token_has_the_text_that_it_replaces(kind: str, unknown: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(kind, [TEXT], lowercase=True)
    model = build_language_model(**layers(kind="lstm"), vocabulary_size=tokenizer.vocabulary_size)
    text = f"The sea was {unknown}."
    pipeline = LanguagePipeline(model, tokenizer)
    (unknown_token,) = [token for token in pipeline.score(text + " The") if token.text is not None][:1]
    assert unknown_token.text in (unknown, f"{unknown}.")
    assert unknown_token.symbol == tokenizer.symbol(tokenizer.unknown_id or 0)
    assert [token.text for token in pipeline.score("The sea")] == [None] * len(tokenizer.encode("The sea"))
    (tmp_path / "text.txt").write_text(text)
    lines = [line.split("\t") for line in pipeline.score_lines(str(tmp_path / "text.txt"))]
    assert [line[2] for line in lines if len(line) > 2] == [unknown_token.text]
    assert unknown_token.text in [token.get("text") for token in pipeline.score_json(text)["tokens"]]


def test_evaluate_sums_the_scores(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "§")
    pipeline = pipeline_of("characters")
    scores = pipeline.evaluate(path)
    assert scores.total_nats == pytest.approx(sum(token.nats for token in pipeline.score(TEXT + "§")), rel=1e-5)
    assert (scores.tokens, scores.characters, scores.unknown) == (len(TEXT) + 1, len(TEXT) + 1, 1)
    assert scores.bits_per_character == pytest.approx(scores.nats_per_token / math.log(2))
    assert pipeline.evaluate(str(path), parts=3).nats_per_token == pytest.approx(scores.nats_per_token, rel=1e-4)


def test_equal_sentences_of_a_minimal_pair_count_half(tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    path.write_text('{"sentence_good": "The sea.", "sentence_bad": "The sea."}\n')
    assert pipeline_of("words").minimal_pairs(path).total.accuracy == 0.5


def test_the_protocol_depends_on_the_length_of_the_text() -> None:
    pipeline = pipeline_of("bytes")
    assert "in 4 parts" in pipeline.protocol(LanguageScores(0.0, 4 * 2048, 0))
    assert (
        pipeline.protocol(LanguageScores(0.0, 4 * 2048, 0), parts=1) == "read once from beginning to end, state carried"
    )


def test_repr_is_short_and_describes_the_pipeline() -> None:
    pipeline = pipeline_of("bytes")
    parameters = f"{pipeline.num_parameters:,} parameters"
    assert repr(pipeline) == f"LanguagePipeline(lstm 1×12, {parameters}, bytes (256), run='runs/sea')"


def test_missing_runs_and_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run directory"):
        load(tmp_path / "nothing")
    with pytest.raises(EnsueError, match='no device "gpu"'):
        load(tmp_path, device="gpu")


LEARNED = {
    "char-transformer": "small.txt", "masked": "small.txt", "translate-transformer": "dev.en,dev.de",
    "summarize-lm": "dev.en,dev.de", "tag-transformer-crf": "names.txt", "classify-pretrained": "reviews.tsv",
    "char-lstm": "small.txt", "tag-lstm": "dev.conllu", "translate-lstm": "dev.en,dev.de", "mingru": "small.txt",
}  # fmt: skip


CHANGED = {"char-transformer", "masked", "translate-transformer", "summarize-lm"}
"""Runs whose scores differ between precisions."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=needs_int8)])
@pytest.mark.parametrize("name", LEARNED)
def test_a_lower_precision_changes_scores_only_a_little(
    name: str, precision: InferencePrecision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked(name, tmp_path)
    monkeypatch.setattr("ensue.library.has_bfloat16", lambda: True)
    location = ",".join(str(tmp_path / path) for path in LEARNED[name].split(","))
    exact, lower = (load(tmp_path / name, device="cpu", precision=kind) for kind in ("float32", precision))
    expected, scores = (pipeline.evaluate(location).as_json() for pipeline in (exact, lower))
    # without bfloat16, recurrent layers stay in float32
    if name in CHANGED or (name == "char-lstm" and (precision == "int8" or has_bfloat16())):
        assert expected != scores
    for score in {"nats_per_token", "masked_nats", "accuracy", "f1"} & set(expected):
        assert scores[score] == pytest.approx(expected[score], rel=0.01, abs=0.02)
    assert lower.num_parameters == exact.num_parameters
    if name in ("char-transformer", "char-lstm"):
        assert len("".join(lower.generate("The", max_tokens=9, seed=1))) == 9
    if name.startswith("translate"):
        assert lower.with_search(width=2).predict(["The sea is calm."])


def test_precisions_that_model_or_processor_lacks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked("classify-bag", tmp_path)
    run = tmp_path / "classify-bag"
    for precision in ("half", None):
        with pytest.raises(EnsueError, match=r"^the precision is .*; expected float32, bfloat16, int8$"):
            load(run, precision=precision)  # type: ignore[arg-type]
    messages: dict[InferencePrecision, str] = {"bfloat16": "this processor lacks bfloat16", "int8": "int8 needs a"}
    for precision, message in messages.items():
        monkeypatch.setattr(f"ensue.library.has_{precision}", lambda: True)
        with pytest.raises(
            EnsueError, match=f"classify-bag: only recurrent layers and Transformers can be in {precision}"
        ):
            load(run, device="cpu", precision=precision)
        monkeypatch.setattr(f"ensue.library.has_{precision}", lambda: False)
        with pytest.raises(EnsueError, match=f"^{message}"):
            load(run, device="cpu", precision=precision)
