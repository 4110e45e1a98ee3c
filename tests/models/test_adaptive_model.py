"""Adaptive models equal their equations in numpy and torch's SGD."""

import copy
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.models.adaptation import Adaptation
from ensue.models.adaptive_model import AdaptiveModel
from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.types import concatenate_rows, detach, leaves, select_rows
from layer_tables import layers

V, T = 7, 24


def plain_model(kind: str = "lstm", **options: Any) -> LanguageModel:
    torch.manual_seed(3)
    model = build_language_model(**layers(kind=kind, d_embedding=6, d_model=6, **options), vocabulary_size=V).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model.eval()


def ids_of(rows: int = 1, length: int = T) -> Tensor:
    return torch.from_numpy(np.random.default_rng(rows).integers(0, V, (rows, length + 1)))


CACHE = Adaptation(cache=9, cache_weight=0.3, cache_flatness=0.7)
DYNAMIC = Adaptation(dynamic=0.4, dynamic_decay=0.1, dynamic_segment=5)
BOTH = Adaptation(**{**CACHE.__dict__, "dynamic": 0.4, "dynamic_decay": 0.1, "dynamic_segment": 5})


@pytest.mark.parametrize("kind", ["lstm", "window"])
def test_cache_probabilities_equal_their_equation(kind: str) -> None:
    model, ids = plain_model(kind, **({"size": 3} if kind == "window" else {})), ids_of()[0]
    h = model.read(ids[None, :-1])[0][0].detach().numpy()
    p = torch.softmax(model(ids[None, :-1])[0][0], -1).detach().numpy()
    probabilities = AdaptiveModel(model, CACHE)(ids[None, :-1])[0][0].exp().numpy()
    for t in range(T):
        seen = range(max(0, t - CACHE.cache), t)  # h_i, which precedes token i + 1
        expected = p[t].copy()
        if seen:
            shares = np.exp([CACHE.cache_flatness * h[t] @ h[i] for i in seen])
            expected *= 1 - CACHE.cache_weight
            for i, share in zip(seen, shares / shares.sum(), strict=True):
                expected[ids[i + 1]] += CACHE.cache_weight * share
        np.testing.assert_allclose(probabilities[t], expected, atol=1e-12)
    nats = AdaptiveModel(model, CACHE).nats(ids[None, :-1], ids[None, 1:])[0][0].numpy()
    np.testing.assert_allclose(nats, -np.log(probabilities[np.arange(T), ids[1:].numpy()]), atol=1e-12)


@pytest.mark.parametrize("by_torch", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dynamic_evaluation_equals_sgd(by_torch: bool) -> None:
    """A copy of the model is trained by written-out steps or by torch's optimizer, with the decay written out."""
    model, ids = plain_model(), ids_of()
    adapted, trained = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.SGD(adapted.parameters(), lr=DYNAMIC.dynamic) if by_torch else None
    state, expected = None, []
    for start in range(0, T, 5):
        inputs, targets = ids[:, start : min(start + 5, T)], ids[:, start + 1 : min(start + 5, T) + 1]
        segment_nats, after = adapted.nats(inputs, targets, state)
        adapted.zero_grad()
        segment_nats.mean().backward()
        with torch.no_grad():
            back = [
                DYNAMIC.dynamic_decay * (end - now)
                for now, end in zip(adapted.parameters(), trained.parameters(), strict=True)
            ]
            if optimizer:
                optimizer.step()
            else:
                for parameter in adapted.parameters():
                    parameter.sub_(0 if parameter.grad is None else DYNAMIC.dynamic * parameter.grad)
            torch._foreach_add_(list(adapted.parameters()), back)
        state = detach(after)
        expected.append(segment_nats.detach())
    nats, _ = AdaptiveModel(model, DYNAMIC).nats(ids[:, :-1], ids[:, 1:])
    torch.testing.assert_close(nats, torch.cat(expected, 1), atol=1e-10, rtol=0)
    for now, before in zip(model.parameters(), trained.parameters(), strict=True):
        assert torch.equal(now, before)
    assert not torch.allclose(nats, model.nats(ids[:, :-1], ids[:, 1:])[0])


@pytest.mark.parametrize("adaptation", [CACHE, DYNAMIC, BOTH])
def test_segments_of_a_text_give_the_nats_of_the_full_text(adaptation: Adaptation) -> None:
    model, ids = AdaptiveModel(plain_model(), adaptation), ids_of()
    expected, end = model.nats(ids[:, :-1], ids[:, 1:])
    for cuts in ([4, 17], [0, 23], list(range(T))):
        state, parts = None, []
        for start, stop in zip([0, *cuts], [*cuts, T], strict=True):
            nats, state = model.nats(ids[:, start:stop], ids[:, start + 1 : stop + 1], state)
            parts.append(nats)
        torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-10, rtol=0)
        for leaf, expected_leaf in zip(leaves(state), leaves(end), strict=True):
            torch.testing.assert_close(leaf, expected_leaf, atol=1e-10, rtol=0)


@pytest.mark.parametrize("adaptation", [CACHE, BOTH])
def test_rows_do_not_depend_on_the_batch(adaptation: Adaptation) -> None:
    """Rows are ragged, or concatenated and selected before steps."""
    model, ids = AdaptiveModel(plain_model(), adaptation), ids_of(3)
    lengths = [T, 4, 11]
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    _, together = model.read(ids[:, :-1], mask=mask)
    alone = [model.read(row[None, :n])[1] for row, n in zip(ids, lengths, strict=True)]
    order, next_ids = torch.tensor([2, 0, 0, 1]), ids[:, -1]
    for state in (together, concatenate_rows(alone)):
        scores, after = model.step(next_ids[order], select_rows(state, order))
        scores, _ = model.step(next_ids[order], after)
        for row, number in enumerate(order.tolist()):
            _, state_alone = model.step(next_ids[number, None], alone[number])
            expected, _ = model.step(next_ids[number, None], state_alone)
            torch.testing.assert_close(scores[row], expected[0], atol=1e-10, rtol=0)


def test_steps_with_a_cache_equal_the_full_sequence() -> None:
    model, ids = AdaptiveModel(plain_model(), CACHE), ids_of(2)
    scores, _ = model(ids[:, :-1])
    state = None
    for t in range(T):
        stepped, state = model.step(ids[:, t], state)
        torch.testing.assert_close(stepped, scores[:, t], atol=1e-10, rtol=0)


def test_a_weight_or_rate_of_zero_changes_no_score() -> None:
    model, ids = plain_model(), ids_of()
    expected, _ = model.nats(ids[:, :-1], ids[:, 1:])
    for off in (Adaptation(cache=5, cache_weight=0), Adaptation(dynamic=0, dynamic_decay=0.5)):
        assert torch.equal(AdaptiveModel(model, off).nats(ids[:, :-1], ids[:, 1:])[0], expected)


def test_finish_segments_trains_on_an_incomplete_segment() -> None:
    model, ids = AdaptiveModel(plain_model(), DYNAMIC), ids_of()
    _, state = model.read(ids[:, :3])
    settled = model.finish_segments(state, ids[:, 3])
    assert torch.equal(state.adapted.weights.content[0], model.trained)
    assert not torch.equal(settled.adapted.weights.content[0], model.trained)
    weights = settled.adapted.weights.content.clone()
    _, after = model.step(ids[:, 3], settled)
    assert torch.equal(after.adapted.weights.content, weights)


@pytest.mark.slow
def test_threads_adapt_independently() -> None:
    model, ids = AdaptiveModel(plain_model(), BOTH), ids_of(4)
    expected = [model.nats(row[None, :-1], row[None, 1:])[0] for row in ids]
    results: dict[int, Tensor] = {}

    def read(number: int) -> None:
        with torch.inference_mode():
            results[number] = model.nats(ids[number, None, :-1], ids[number, None, 1:])[0]

    threads = [Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, nats in enumerate(expected):
        torch.testing.assert_close(results[number], nats, atol=1e-12, rtol=0)


def test_attention_in_windows_is_refused() -> None:
    model = plain_model("transformer", context=8, num_heads=1)
    with pytest.raises(EnsueError, match="this model has a context of 8 tokens"):
        AdaptiveModel(model, CACHE)
