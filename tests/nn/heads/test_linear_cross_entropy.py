"""The fused loss equals torch's cross-entropy over all logits."""

import importlib
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding, linear_cross_entropy
from ensue.nn.heads.softmax import LARGE_VOCABULARY, WordSample

N, D, V = 150, 5, 11
module = importlib.import_module("ensue.nn.heads.softmax")  # the package's attribute is the function


def problem(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """Return h, weight and bias, and targets."""
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((N, D), (V, D), (V,))], torch.randint(
        V, (N,)
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk_rows", [1, 64, 75, 149, 150, 1000])
def test_values_and_gradients_equal_torch(chunk_rows: int, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 0)
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk_rows)
    sources, targets = problem()
    h, weight, bias = sources
    total = linear_cross_entropy(h, weight, bias, targets, label_smoothing=smoothing)
    expected = F.cross_entropy(F.linear(h, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * total, sources), torch.autograd.grad(3 * expected, sources))


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_only_if_enabled(without_gradients: type, monkeypatch: pytest.MonkeyPatch) -> None:
    flags, chunked = [], module._sum_by_chunks

    def recorded(*args: object, with_gradients: bool) -> object:
        flags.append(with_gradients)
        return chunked(*args, with_gradients=with_gradients)

    monkeypatch.setattr(module, "_sum_by_chunks", recorded)
    sources, targets = problem()
    expected = linear_cross_entropy(*sources, targets)
    with without_gradients():
        assert torch.equal(linear_cross_entropy(*sources, targets), expected)
    assert flags == [True, False]


def test_no_rows_have_zero_nats() -> None:
    (h, weight, bias), targets = problem()
    total = linear_cross_entropy(h[:0], weight, bias, targets[:0])
    total.backward()
    assert total.item() == 0
    assert weight.grad is not None
    assert not weight.grad.any()


def test_autocast_is_close_to_float32() -> None:
    sources, targets = problem(torch.float32)
    h, weight, bias = sources
    exact = linear_cross_entropy(h, weight, bias, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(h, weight, bias, targets)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=5e-3, atol=0)
    pairs = zip(*(torch.autograd.grad(nats, sources) for nats in (rounded, exact)), strict=True)
    for gradient, expected in pairs:
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 2e-2 * expected.norm()


def exact_problem(scale: float, vocabulary_size: int = 50_000) -> tuple[list[Tensor], Tensor]:
    """Return a problem whose logits are exact in bfloat16, so that errors of the nats come from their sums."""
    torch.manual_seed(0)
    h, weight = torch.randint(-8, 9, (24, 3)).float(), scale * torch.randint(-2, 3, (vocabulary_size, 3)).float()
    sources = [part.requires_grad_() for part in (h, weight, torch.zeros(vocabulary_size))]
    return sources, torch.randint(vocabulary_size, (24,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scale", [0.0, 0.125, 4.0])
def test_sums_under_autocast_are_in_float32(scale: float) -> None:
    """Gradients may have the error of probabilities rounded once to bfloat16."""
    sources, targets = exact_problem(scale)
    with torch.autocast("cpu", torch.bfloat16):
        total = linear_cross_entropy(*sources, targets)
    expected = F.cross_entropy(F.linear(*(part.double() for part in sources)), targets, reduction="sum")
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    pairs = zip(*(torch.autograd.grad(nats, sources) for nats in (total, expected)), strict=True)
    for gradient, expected_gradient in pairs:
        assert (gradient - expected_gradient).norm() <= 4e-3 * expected_gradient.norm() + 1e-5


def test_a_nearly_certain_target_has_a_gradient() -> None:
    """Its probability is rounded to 1 in bfloat16; 1 - p is not rounded to 0."""
    sources = [torch.tensor([[1.0]]), torch.tensor([[8.0], [0.0]]), torch.zeros(2, requires_grad=True)]
    with torch.autocast("cpu", torch.bfloat16):
        total = linear_cross_entropy(*sources, torch.tensor([0]))
    missing = 1 / (1 + math.exp(8))
    assert total.item() == pytest.approx(-math.log1p(-missing), rel=1e-3)
    assert torch.autograd.grad(total, sources[2])[0].tolist() == pytest.approx([-missing, missing], rel=4e-3)


def test_a_layer_in_half_precision_sums_in_float32() -> None:
    sources, targets = problem(torch.bfloat16)
    total = linear_cross_entropy(*sources, targets)
    expected = linear_cross_entropy(*(part.float() for part in sources), targets)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=1e-3, atol=0)
    assert {part.dtype for part in torch.autograd.grad(total, sources)} == {torch.bfloat16}


def test_an_impossible_target_has_a_finite_loss_and_the_full_gradient() -> None:
    h = torch.tensor([[1.0]], requires_grad=True)
    weight, bias, target = torch.tensor([[200.0], [-200.0]]), torch.zeros(2), torch.tensor([1])
    total = linear_cross_entropy(h, weight, bias, target)
    total.backward()
    assert total.isfinite()
    assert h.grad is not None
    assert h.grad.item() == pytest.approx(400)


@pytest.mark.parametrize("kind", ["own", "tied", "tied and projected"])
def test_heads_agree_with_their_logits(kind: str) -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(V, 4)
    head = SoftmaxHead(4, V) if kind == "own" else TiedSoftmaxHead(4 if kind == "tied" else 6, embedding)
    h, targets = torch.randn(2, 3, head.d_in), torch.randint(V, (2, 3))
    expected = -F.log_softmax(head(h), dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(head.nats(h, targets), expected)
    torch.testing.assert_close(head.total_nats(h, targets), expected.sum())


@pytest.mark.parametrize("words", [10, LARGE_VOCABULARY])
@pytest.mark.parametrize("target", [-100, -1, None])
@pytest.mark.parametrize("use", ["nats", "total_nats", "sampled", "linear_cross_entropy"])
def test_targets_outside_the_vocabulary_are_refused(use: str, target: int | None, words: int) -> None:
    """Small and large vocabularies have different code."""
    head, h = SoftmaxHead(4, words), torch.randn(3, 4)
    targets = torch.tensor([0, words if target is None else target, 1])
    sample = WordSample(torch.arange(4), torch.zeros(4))
    calls: dict[str, Callable[[], object]] = {
        "nats": lambda: head.nats(h, targets),
        "total_nats": lambda: head.total_nats(h, targets),
        "sampled": lambda: head.total_nats(h, targets, sample=sample),
        "linear_cross_entropy": lambda: linear_cross_entropy(h, head.weight, head.bias, targets),
    }
    with pytest.raises(ValueError, match=f"expects targets from 0 to {words - 1}, found {targets[1]}$"):
        calls[use]()
