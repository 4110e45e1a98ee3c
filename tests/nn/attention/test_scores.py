"""Attention weights in C, and attention in bfloat16, are close to float64."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.twins import needs_compiler
from ensue.engine import c_functions, executing
from ensue.nn.attention import scores as module
from ensue.nn.attention.scores import MAX_BFLOAT16_KEYS, _Weights, attention_weights, fused_attention

B, H, T = 3, 2, 5
NEAR = {torch.float32: {"rtol": 2e-6, "atol": 1e-6}, torch.bfloat16: {"rtol": 0.02, "atol": 0.01}}
ALLOWED: dict[str, Callable[[int], Tensor | None]] = {
    "all": lambda _: None,
    "padding": lambda keys: (torch.arange(keys) < torch.tensor([[keys], [1], [0]]))[:, None, None],
    "causal": lambda keys: torch.ones(1, 1, T, keys, dtype=torch.bool).tril(),
    "each": lambda keys: torch.rand(B, 1, T, keys) < 0.4,
    "with gaps": lambda keys: (torch.rand(B, 1, keys, T) < 0.4).transpose(2, 3),
}


def expected_weights(scores: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """Return the weights of each query, over its allowed keys."""
    weights = torch.zeros_like(scores)
    seen = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed.expand(scores.shape)
    for place in torch.ones(scores.shape[:3]).nonzero().tolist():
        keys = seen[*place]
        weights[*place, keys] = (scale * scores[*place, keys]).softmax(0)
    return weights


@needs_compiler
@pytest.mark.parametrize("keys", [1, 10, 16, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALLOWED)
def test_weights_and_their_derivatives_equal_their_definition(name: str, dtype: torch.dtype, keys: int) -> None:
    torch.manual_seed(0)
    allowed = ALLOWED[name](keys)
    scores = (3 * torch.randn(B, H, T, keys)).to(dtype).requires_grad_()
    exact = scores.detach().double().requires_grad_()
    error = torch.randn(B, H, T, keys).to(dtype)
    expected = expected_weights(exact, allowed, 0.7)
    weights = attention_weights(scores, allowed, 0.7)
    assert weights.dtype == dtype
    assert weights.grad_fn is not None
    assert "Weights" in weights.grad_fn.name()
    torch.testing.assert_close(weights, expected.to(dtype))
    (expected_gradient,) = torch.autograd.grad(expected, exact, error)
    (gradient,) = torch.autograd.grad(weights, scores, error)
    tolerances = {} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.01}
    torch.testing.assert_close(gradient, expected_gradient.to(dtype), **tolerances)
    with executing("plain"):
        plain = attention_weights(scores, allowed, 0.7)
    torch.testing.assert_close(weights, plain, **NEAR[dtype])


@needs_compiler
def test_weights_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, error = torch.randn(7, 3, 4, 9, requires_grad=True), torch.randn(7, 3, 4, 9)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(module, "worth_threads", lambda x, threads=threads: threads)
        weights = attention_weights(scores, torch.rand(7, 1, 1, 9, generator=torch.Generator().manual_seed(0)) < 0.5)
        results.append((weights, *torch.autograd.grad(weights, scores, error)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@needs_compiler
def test_weights_of_nan_and_infinite_scores_are_nan() -> None:
    scores = torch.randn(1, 1, 3, 20)
    scores[0, 0, 1, 18], scores[0, 0, 2, 3] = torch.nan, torch.inf
    weights = attention_weights(scores, None)
    assert weights.isnan().any(3).flatten().tolist() == [False, True, True]
    allowed = torch.ones(1, 1, 1, 20, dtype=torch.bool)
    allowed[..., 3] = allowed[..., 18] = False
    assert attention_weights(scores, allowed).isfinite().all()


@needs_compiler
def test_masks_of_other_shapes_and_types_are_refused() -> None:
    scores = torch.zeros(3, 1, 2, 4)
    for sizes in ((2, 1, 1, 4), (3, 1, 3, 4), (3, 2, 2, 4), (3, 1, 1, 1), (3, 1, 1, 5)):
        with pytest.raises(ValueError, match="allowed is expected as"):
            _Weights.apply(c_functions(scores), torch.ones(sizes, dtype=torch.bool), 1.0, scores)
    with pytest.raises(TypeError, match=r"allowed is expected in torch\.bool"):
        _Weights.apply(c_functions(scores), torch.ones(3, 1, 1, 4), 1.0, scores)


@pytest.mark.parametrize("keys", [T, MAX_BFLOAT16_KEYS + 1])
@pytest.mark.parametrize("name", ["all", "padding", "causal", "with a bias"])
def test_attention_in_bfloat16_is_close_to_float64(name: str, keys: int) -> None:
    torch.manual_seed(0)
    sources = [torch.randn(B, size, H, 8).bfloat16().transpose(1, 2).requires_grad_() for size in (T, keys, keys)]
    bias = torch.randn(1, H, T, keys) if name == "with a bias" else None
    allowed = ALLOWED["padding"](keys) if name in ("padding", "with a bias") else None
    is_causal = name == "causal"
    heads = fused_attention(*sources, allowed, dropout=0.0, is_causal=is_causal, bias=bias)
    exact = [part.detach().double().requires_grad_() for part in sources]
    scores = exact[0] @ exact[1].transpose(2, 3) / math.sqrt(8)
    scores = scores if bias is None else scores + bias
    seen = ALLOWED["causal"](keys) if is_causal else allowed
    expected = expected_weights(scores, seen, 1.0) @ exact[2]
    assert heads.dtype == torch.bfloat16
    torch.testing.assert_close(heads.double(), expected, rtol=0.03, atol=0.03)
    error = torch.randn(heads.shape).bfloat16()
    gradients = torch.autograd.grad(heads, sources, error)
    expected_gradients = torch.autograd.grad(expected, exact, error.double())
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert F.cosine_similarity(gradient.double().flatten(), expected_gradient.flatten(), dim=0) > 0.999
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0.05, atol=0.05)
