"""The evaluation protocol: fast scoring equals naive scoring of one token at a time."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from ensue.data.mapped_file import TokenFile
from ensue.errors import EnsueError
from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.models.modules import evaluating
from ensue.tasks.texts import scoring as reading
from ensue.tasks.texts.scoring import TextScorer, default_parts, describe_protocol, score_text
from layer_tables import layers
from training.tiny import some_slow

V, START = 11, 3
SIZES = {"d_embedding": 8, "d_model": 12, "num_layers": 2}
RECURRENT = {
    "window": layers(kind="window", size=4, **SIZES),
    "gru": layers(kind="gru", **SIZES),
    "lstm": layers(kind="lstm", dropout=0.5, **SIZES),
}


def attention(context: int, positions: str = "learned") -> dict[str, Any]:
    return layers(kind="transformer", context=context, positions=positions, num_heads=2, **SIZES)


def model_of(specification: dict[str, Any], scale: float = 1.5) -> LanguageModel:
    torch.manual_seed(2)
    model = build_language_model(**specification, vocabulary_size=V).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model.eval()


def text_of(length: int) -> TokenFile:
    ids = np.random.default_rng(length).integers(0, V, length)
    return TokenFile(ids, unknown=2, characters=3 * length)


def naive(model: LanguageModel, tokens: TokenFile) -> np.ndarray:
    """Return the nats of each token from a separate forward pass over the tokens that the protocol allows."""
    ids = tokens.read(0, len(tokens))
    inputs = np.concatenate(([START], ids[:-1]))
    nats = []
    for t, target in enumerate(ids):
        begin = 0
        if model.context is not None:
            stride = max(1, model.context // 2)
            while t >= begin + model.context:
                begin += stride
        with torch.no_grad():
            logits, _ = model(torch.from_numpy(inputs[begin : t + 1])[None])
        nats.append(-float(logits[0, -1].log_softmax(-1)[target]))
    return np.array(nats)


def streamed(model: LanguageModel, tokens: TokenFile) -> np.ndarray[Any, Any]:
    with evaluating(model):
        return TextScorer(model, start_id=START).feed(tokens.read(0, len(tokens)))


def close(a: object, b: object) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", RECURRENT)
def test_scores_with_carried_state_equal_naive_scores(name: str) -> None:
    model, tokens = model_of(RECURRENT[name]), text_of(90)
    expected = naive(model, tokens)
    assert close(streamed(model, tokens), expected)
    assert close(score_text(model, tokens, start_id=START, parts=1).total_nats, expected.sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("context", some_slow([1, 2, 5, 8], 1, 8))
@pytest.mark.parametrize("length", some_slow([0, 1, 4, 7, 8, 9, 12, 13, 40, 43], 0, 1, 8, 9, 43))
def test_windows_predict_each_token_once_from_at_least_half_a_context(
    context: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_CALL_TOKENS", 24)  # a few windows at a time
    model, tokens = model_of(attention(context)), text_of(length)
    expected, counts = naive(model, tokens), []
    scores = score_text(model, tokens, start_id=START, progress=counts.append)
    assert close(scores.total_nats, expected.sum())
    assert sum(counts) == scores.tokens == length
    assert close(streamed(model, tokens), expected)


def test_windows_of_rotary_positions_equal_naive_scores() -> None:
    model, tokens = model_of(attention(6, "rotary")), text_of(31)
    assert close(score_text(model, tokens, start_id=START).total_nats, naive(model, tokens).sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("specification", [RECURRENT["lstm"], attention(6)])
@pytest.mark.parametrize("sizes", [[1] * 31, [31], [2, 0, 17, 12]])
def test_chunks_of_a_text_may_have_any_size(specification: dict[str, Any], sizes: list[int]) -> None:
    model, tokens = model_of(specification), text_of(31)
    ids, text = tokens.read(0, 31), TextScorer(model, start_id=START)
    bounds = np.cumsum([0, *sizes])
    nats = [text.feed(ids[a:b]) for a, b in itertools.pairwise(bounds)]
    assert [len(piece) for piece in nats] == sizes
    assert close(np.concatenate(nats), naive(model, tokens))


@pytest.mark.parametrize("parts", [2, 3, 7, 16])
def test_parts_warmed_up_on_all_text_before_them_are_exact(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_CALL_TOKENS", 64)
    model, tokens = model_of(RECURRENT["lstm"]), text_of(101)
    expected = score_text(model, tokens, start_id=START, parts=1)
    counts: list[int] = []
    scores = score_text(model, tokens, start_id=START, parts=parts, warm_up=1000, progress=counts.append)
    assert close(scores.total_nats, expected.total_nats)
    assert sum(counts) == 101


@pytest.mark.parametrize("name", RECURRENT)
def test_warmed_up_parts_agree_to_four_digits(name: str) -> None:
    model, tokens = model_of(RECURRENT[name], scale=1.0), text_of(1500)
    sequential = score_text(model, tokens, start_id=START, parts=1).nats_per_token
    parallel = score_text(model, tokens, start_id=START, parts=10, warm_up=100).nats_per_token
    cold = score_text(model, tokens, start_id=START, parts=10, warm_up=0).nats_per_token
    assert abs(parallel / sequential - 1) < 5e-5
    assert abs(parallel - sequential) < abs(cold - sequential) / 20  # so the warm-up matters


@pytest.mark.parametrize("parts", [1, 4, 64])
def test_texts_with_fewer_tokens_than_parts_are_scored(parts: int) -> None:
    model = model_of(RECURRENT["gru"])
    for length in (0, 1, 3, 5):
        scores = score_text(model, text_of(length), start_id=START, parts=parts, warm_up=9)
        assert close(scores.total_nats, naive(model, text_of(length)).sum())
        assert (scores.tokens, scores.characters, scores.unknown) == (length, 3 * length, 2)


def test_a_text_without_tokens_has_no_mean() -> None:
    assert math.isnan(score_text(model_of(RECURRENT["gru"]), text_of(0), start_id=START).nats_per_token)


def test_scoring_turns_dropout_off_and_restores_training_mode() -> None:
    model, tokens = model_of(RECURRENT["lstm"]), text_of(50)
    expected = score_text(model, tokens, start_id=START)
    model.train()
    assert score_text(model, tokens, start_id=START) == expected
    assert model.training


def test_the_default_number_of_parts_grows_with_the_text() -> None:
    assert [default_parts(n) for n in (0, 2047, 2048, 4096, 111_539, 10**7)] == [1, 1, 1, 2, 54, 64]


def test_less_than_one_part_is_refused() -> None:
    with pytest.raises(EnsueError, match="0 parts"):
        score_text(model_of(RECURRENT["gru"]), text_of(5), start_id=START, parts=0)


def test_the_protocol_is_described() -> None:
    lstm, transformer = model_of(RECURRENT["lstm"]), model_of(attention(8))
    assert describe_protocol(lstm) == "read once from beginning to end, state carried"
    assert describe_protocol(lstm, 32).endswith("in 32 parts, each warmed up on the 512 tokens before it")
    assert "windows of 8 tokens with a stride of 4" in describe_protocol(transformer, 32)
