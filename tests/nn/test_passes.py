"""Passes in C: dropout and rotations are bit-identical to torch, losses are close, and torch is the fallback."""

import importlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.twins import needs_compiler
from ensue.engine import c_functions, executing
from ensue.nn import Rotary, draws
from ensue.nn.attention.positions import _Rotation, rotate
from ensue.nn.draws import RowSlice, apply_dropout, drawing_rows

linear = importlib.import_module("ensue.nn.heads.softmax")  # the package's attribute is the function
pytestmark = needs_compiler
DTYPES = [torch.float32, torch.bfloat16]


def assert_bit_identical(function: Callable[[], tuple[Tensor, ...]]) -> None:
    """Assert that compiled code and torch give the same bits and leave the generator in the same state."""
    results = []
    for execution in ("compiled", "plain"):
        torch.manual_seed(3)
        with executing(execution):  # type: ignore[arg-type]
            results.append((*function(), torch.rand(())))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (1, 1), (7, 33), (3, 2, 259), (0, 4)])
def test_dropout_masks_are_bit_identical_to_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype).requires_grad_()
    rows = (shape or (1,))[0]
    for part in (None, RowSlice(slice(2, 2 + rows), 20), RowSlice(torch.arange(rows).flip(0) * 2, 20)):
        for p in (0.001, 0.3, 0.99999):

            def function(part: RowSlice | None = part, p: float = p) -> tuple[Tensor, ...]:
                with drawing_rows(part):
                    y = apply_dropout(x, p)
                return y, *torch.autograd.grad(y, x, 3 * torch.ones_like(x))

            assert_bit_identical(function)


def random_heads(dtype: torch.dtype, d: int) -> Tensor:
    """Return queries, keys and values (2, 5, 3, 2, d) that require gradients."""
    return torch.randn(2, 5, 3, 2, d, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [2, 6, 32, 34])
@pytest.mark.parametrize("rows", [1, 2])
def test_rotations_with_first_and_second_gradients_are_bit_identical(rows: int, d: int, dtype: torch.dtype) -> None:
    heads = random_heads(dtype, d)
    table = Rotary(d).table(torch.arange(5) + torch.arange(rows).unsqueeze(1) * 300, dtype)

    def function() -> tuple[Tensor, ...]:
        queries, keys = rotate(table, *(part.transpose(1, 2) for part in heads.unbind(2)[:2]))
        loss = queries.square().sum() + (3 * keys).exp().sum()
        (first,) = torch.autograd.grad(loss, heads, create_graph=True)
        return queries, keys, first, *torch.autograd.grad(first.pow(3).sum(), heads)

    assert_bit_identical(function)
    strided = heads.expand(2, 5, 3, 2, d).repeat_interleave(2, 4)[..., ::2]  # features are not contiguous
    for back in (False, True):
        assert_bit_identical(lambda back=back: rotate(table, strided[:, :, 0].transpose(1, 2), back=back))


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x, heads = torch.randn(70, 1001), random_heads(torch.float32, 8)[:, :, 0].transpose(1, 2)
    table = Rotary(8).table(torch.arange(5).unsqueeze(0), torch.float32)

    def results() -> tuple[Tensor, ...]:
        torch.manual_seed(3)
        return apply_dropout(x, 0.1), *rotate(table, heads)

    expected = results()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(a, b) for a, b in zip(expected, results(), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_replace_by_gradient_gives_the_nats_and_gradients_of_torch(
    smoothing: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    scores = (20 * torch.randn(7, 1003)).to(dtype)
    scores[3, 5:900] = -torch.inf if smoothing == 0 else -90.0
    targets = torch.tensor([0, 1002, 3, 1, 900, 1001, 17])
    exact = scores.double().requires_grad_()
    nats = F.cross_entropy(exact, targets, reduction="sum", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(nats, exact)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(linear, "worth_threads", lambda x, threads=threads: threads)
        replaced = scores.clone()
        results.append((linear._replace_by_gradient(replaced, targets, smoothing), replaced))
        torch.testing.assert_close(results[-1][0], nats.float())
        torch.testing.assert_close(replaced, gradient.to(dtype))
    assert torch.equal(results[0][1], results[1][1])
    scores[2, 2] = torch.nan
    assert linear._replace_by_gradient(scores, targets, smoothing).isnan()
    assert scores.isnan().any(1).tolist() == [row == 2 for row in range(7)]


@pytest.mark.parametrize("target", [-1, 5])
def test_targets_outside_the_vocabulary_are_refused(target: int) -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        linear._replace_by_gradient(torch.zeros(2, 5), torch.tensor([0, target]), 0.0)


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def test_torch_is_used_where_c_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    assert c_functions(x) is not None
    with executing("plain"):
        assert c_functions(x) is None
    with Watching():
        assert c_functions(x) is None
    others = x.double(), x.half(), x[:0], torch.view_as_complex(x.view(3, 2, 2)).conj().imag, x.to("meta")
    assert [c_functions(other) for other in others] == [None] * len(others)
    monkeypatch.setattr("ensue.engine.execution._load_c_functions", lambda: None)  # no compiler
    torch.manual_seed(3)
    y = apply_dropout(x, 0.5)
    assert (y == 0).any()


def test_tables_and_rows_that_do_not_fit_are_refused() -> None:
    x = torch.randn(2, 1, 5, 4)
    cos, sin = Rotary(4).table(torch.arange(5).unsqueeze(0), torch.float32)
    for tables in ((cos, sin[:, :4]), (cos[:, :4], sin[:, :4]), (cos.repeat(3, 1, 1), sin), (cos[..., :1], sin)):
        with pytest.raises(ValueError, match="angles is expected as"):
            _Rotation.apply(c_functions(x), tables, False, x)
    with pytest.raises(TypeError, match=r"angles is expected in torch\.float32"):
        _Rotation.apply(c_functions(x), (cos.double(), sin), False, x)
    with drawing_rows(RowSlice(torch.arange(3), 4)), pytest.raises(ValueError, match="the rows is expected as"):
        apply_dropout(x, 0.1)


def test_c_continues_the_generator_where_torch_would() -> None:
    draws.uniform((3, 3))
    assert_bit_identical(lambda: (apply_dropout(torch.ones(4, 4), 0.5),))
