"""The fused loss against torch's cross-entropy over all logits."""

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
    """h, weight and bias, and targets."""
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((N, D), (V, D), (V,))], torch.randint(
        V, (N,)
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk_rows", [1, 64, 75, 149, 150, 1000])
def test_values_and_gradients(chunk_rows: int, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 0)
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk_rows)
    sources, targets = problem()
    h, weight, bias = sources
    total = linear_cross_entropy(h, weight, bias, targets, label_smoothing=smoothing)
    expected = F.cross_entropy(F.linear(h, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * total, sources), torch.autograd.grad(3 * expected, sources))


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_no_gradients_are_worked_out_where_none_are_wanted(
    without_gradients: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, chunked = [], module._sum_by_chunks

    def noted(*args: object, with_gradients: bool) -> object:
        asked.append(with_gradients)
        return chunked(*args, with_gradients=with_gradients)

    monkeypatch.setattr(module, "_sum_by_chunks", noted)
    sources, targets = problem()
    expected = linear_cross_entropy(*sources, targets)
    with without_gradients():
        assert torch.equal(linear_cross_entropy(*sources, targets), expected)
    assert asked == [True, False]


def test_no_rows_are_no_nats() -> None:
    (h, weight, bias), targets = problem()
    total = linear_cross_entropy(h[:0], weight, bias, targets[:0])
    total.backward()
    assert total.item() == 0
    assert weight.grad is not None
    assert not weight.grad.any()


def test_half_precision_is_close() -> None:
    sources, targets = problem(torch.float32)
    h, weight, bias = sources
    exact = linear_cross_entropy(h, weight, bias, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(h, weight, bias, targets)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=5e-3, atol=0)
    for found, expected in zip(torch.autograd.grad(rounded, sources), torch.autograd.grad(exact, sources), strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 2e-2 * expected.norm()


def exact_problem(scale: float, vocabulary_size: int = 50_000) -> tuple[list[Tensor], Tensor]:
    """Logits that bfloat16 holds exactly, so that what is wrong of the nats is wrong by their sums alone."""
    torch.manual_seed(0)
    h, weight = torch.randint(-8, 9, (24, 3)).float(), scale * torch.randint(-2, 3, (vocabulary_size, 3)).float()
    sources = [part.requires_grad_() for part in (h, weight, torch.zeros(vocabulary_size))]
    return sources, torch.randint(vocabulary_size, (24,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scale", [0.0, 0.125, 4.0])
def test_sums_are_not_in_half_precision(scale: float) -> None:
    """Nats to 1e-6; the gradient is that of shares which are each rounded once for the product."""
    sources, targets = exact_problem(scale)
    with torch.autocast("cpu", torch.bfloat16):
        total = linear_cross_entropy(*sources, targets)
    expected = F.cross_entropy(F.linear(*(part.double() for part in sources)), targets, reduction="sum")
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    for found, wanted in zip(torch.autograd.grad(total, sources), torch.autograd.grad(expected, sources), strict=True):
        assert (found - wanted).norm() <= 4e-3 * wanted.norm() + 1e-5


def test_a_target_that_is_nearly_certain_still_pulls() -> None:
    """Its probability is rounded to 1 in bfloat16; what is missing to 1 is not rounded away."""
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


def test_an_impossible_target_costs_a_finite_number_and_pulls_fully() -> None:
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
def test_a_target_that_is_no_word_is_refused(use: str, target: int | None, words: int) -> None:
    """At each size, in each function, in one line."""
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
