"""The pointer-generator equals the equations of See et al. in loops, and is consistent as a head with a state."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.nn import CopyingHead, SoftmaxHead
from ensue.types import Memory, compacted, select_rows

B, T, S, D, D_MEMORY, V = 3, 4, 5, 6, 4, 7
LENGTHS = [5, 2, 0]
REAL = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
IDS = torch.tensor([[2, 7, 2, 8, 0], [6, 7, 9, 9, 9], [1, 1, 1, 1, 1]])
TARGETS = torch.tensor([[2, 8, 3, 0], [7, 6, 1, 6], [4, 4, 0, 6]])
MASK = torch.arange(T) < torch.tensor([[4], [2], [3]])
same = torch.testing.assert_close


def numbers(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(*, coverage: bool) -> CopyingHead:
    head = CopyingHead(D, SoftmaxHead(5, V), d_memory=D_MEMORY, d_attention=3, coverage=coverage).double()
    with torch.no_grad():
        for number, parameter in enumerate(head.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number))
    return head


@pytest.fixture(params=[False, True], ids=["plain", "coverage"])
def head(request: pytest.FixtureRequest) -> CopyingHead:
    return build(coverage=request.param)


H, OUTPUTS = numbers(B, S, D_MEMORY, seed=98), numbers(B, T, D, seed=99)
MEMORY = Memory(H, REAL)


def equations(head: CopyingHead, row: int) -> tuple[list[list[float]], list[float]]:
    """Return the probabilities of all words at each position of a row, and the coverage losses."""
    attention, length = head.attention, LENGTHS[row]
    covered, probabilities, losses = [0.0] * length, [], []
    for s in OUTPUTS[row]:
        e = []
        for i in range(length):
            z = attention.project_memory.weight @ H[row, i] + attention.project_in.weight @ s
            z = z + attention.project_memory.bias
            if head.cover is not None:
                z = z + head.cover.weight[:, 0] * covered[i]
            e.append(math.exp((attention.vector.weight[0] @ torch.tanh(z)).item()))
        a = [part / sum(e) for part in e]
        context = torch.zeros(D_MEMORY, dtype=torch.float64)
        for i in range(length):
            context = context + a[i] * H[row, i]
        joined = torch.cat((s, context))
        p_generate = torch.sigmoid(head.generate(joined)).item() if length else 1.0
        of_vocabulary = head.head(head.combine(joined)).softmax(-1).tolist()
        words = [p_generate * p for p in of_vocabulary] + [0.0] * S
        for i in range(length):
            words[int(IDS[row, i])] += (1 - p_generate) * a[i]
        probabilities.append(words)
        losses.append(sum(min(x, y) for x, y in zip(a, covered, strict=True)) if head.cover is not None else 0.0)
        covered = [x + y for x, y in zip(covered, a, strict=True)]
    return probabilities, losses


def test_scores_and_losses_equal_the_equations(head: CopyingHead) -> None:
    scores, _ = head(OUTPUTS, head.init_state(B, MEMORY, IDS))
    (nats, repeated), _ = head.nats(OUTPUTS, TARGETS, head.init_state(B, MEMORY, IDS))
    assert scores.shape == (B, T, V + S)
    for row in range(B):
        words, losses = equations(head, row)
        same(scores[row].exp(), torch.tensor(words, dtype=torch.float64))
        assert repeated[row].tolist() == pytest.approx(losses)
        for t in range(T):
            assert nats[row, t].item() == pytest.approx(-math.log(words[t][TARGETS[row, t]]))
    same(scores.exp().sum(2), torch.ones(B, T, dtype=torch.float64))


def test_steps_and_segments_equal_the_full_sequence(head: CopyingHead) -> None:
    """Values, gradients and the final coverage are compared."""
    memory = Memory(H.clone().requires_grad_(), REAL)
    outputs = OUTPUTS.clone().requires_grad_()
    sources = [outputs, memory.values, *head.parameters()]
    results = []
    for mode in ("full", "steps", "segments"):
        state = head.init_state(B, memory, IDS)
        if mode == "steps":
            columns = []
            for s_t in outputs.unbind(1):
                column, state = head.step(s_t, state)
                columns.append(column)
            scores = torch.stack(columns, dim=1)
        elif mode == "segments":
            first, state = head(outputs[:, :3], state)
            last, state = head(outputs[:, 3:], state)
            scores = torch.cat((first, last), dim=1)
        else:
            scores, state = head(outputs, state)
        total = (scores.exp() * numbers(*scores.shape)).sum()
        results.append([scores, *torch.autograd.grad(total, sources), *([state.coverage] if head.cover else [])])
    same(results[1], results[0])
    same(results[2], results[0])


def test_coverage_does_not_change_after_the_end_of_a_row(head: CopyingHead) -> None:
    _, state = head(OUTPUTS.masked_fill(~MASK.unsqueeze(2), torch.nan), head.init_state(B, MEMORY, IDS), mask=MASK)
    for row, length in enumerate(MASK.sum(1).tolist()):
        _, alone = head(
            OUTPUTS[row : row + 1, :length], select_rows(head.init_state(B, MEMORY, IDS), torch.tensor([row]))
        )
        if head.cover is not None:
            assert state.coverage is not None
            same(state.coverage[row : row + 1], alone.coverage)
    (nats, repeated), _ = head.nats(OUTPUTS, TARGETS, head.init_state(B, MEMORY, IDS), mask=MASK)
    assert not nats[~MASK].any()
    assert not repeated[~MASK].any()


def test_beams_share_a_source(head: CopyingHead) -> None:
    state = head.init_state(B, MEMORY, IDS)
    for rows in (torch.arange(B).repeat_interleave(2), torch.tensor([2, 0, 0]), torch.tensor([1, 1])):
        copied = head.init_state(len(rows), Memory(H[rows], REAL[rows]), IDS[rows])
        expected, after = head(OUTPUTS[rows], copied)
        for shared in (select_rows(state, rows), compacted(select_rows(state, rows))):
            scores, shared_after = head(OUTPUTS[rows], shared)
            same(scores, expected)
            again = torch.arange(len(rows)).roll(1)
            same(
                head.step(OUTPUTS[rows, 0], select_rows(shared_after, again))[0],
                head.step(OUTPUTS[rows, 0], select_rows(after, again))[0],
            )


def test_padding_of_the_source_changes_no_result(head: CopyingHead) -> None:
    results = []
    for number, id in ((0.0, 0), (torch.nan, 3), (9.0, -5)):
        values = H.masked_fill(~REAL.unsqueeze(2), number).requires_grad_()
        state = head.init_state(B, Memory(values, REAL), IDS.masked_fill(~REAL, id))
        (nats, repeated), _ = head.nats(OUTPUTS, TARGETS, state)
        (dvalues,) = torch.autograd.grad((nats + repeated).sum(), values)
        assert not dvalues[~REAL].any()
        results.append([nats, repeated, dvalues])
    same(results[1], results[0])
    same(results[2], results[0])


def test_gradients_equal_finite_differences(head: CopyingHead) -> None:
    names = [name for name, _ in head.named_parameters()]

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            state = head.init_state(B, Memory(values, REAL), IDS)
            (nats, repeated), _ = head.nats(outputs, TARGETS, state, mask=MASK)
            return nats, repeated

    loss = Loss()

    def function(outputs: Tensor, values: Tensor, *parameters: Tensor) -> Any:
        renamed = {f"head.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}
        return torch.func.functional_call(loss, renamed, (outputs, values))

    sources = [OUTPUTS.clone().requires_grad_(), H.clone().requires_grad_(), *head.parameters()]
    assert torch.autograd.gradcheck(function, sources, fast_mode=True)


def test_a_word_outside_vocabulary_and_source_is_impossible(head: CopyingHead) -> None:
    """The surprisal is infinite, and all gradients are finite."""
    outputs = OUTPUTS.clone().requires_grad_()
    state = head.init_state(B, MEMORY, IDS)
    (nats, _), _ = head.nats(outputs, torch.full((B, T), V + S - 1), state)
    assert bool(nats.isinf().all())
    gradients = torch.autograd.grad(
        nats.sum(), [outputs, *head.parameters()], materialize_grads=True, allow_unused=True
    )
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    scores, _ = head(outputs, state)
    assert scores[2, :, V:].isinf().all()
    (gradient,) = torch.autograd.grad(scores[scores.isfinite()].sum(), outputs)
    assert bool(gradient.isfinite().all())


def test_without_a_memory_words_are_only_generated(head: CopyingHead) -> None:
    scores, state = head(OUTPUTS, head.init_state(B))
    assert scores.shape == (B, T, V)
    nothing = torch.zeros(B, T, D_MEMORY, dtype=torch.float64)
    same(scores, head.head(head.combine(torch.cat((OUTPUTS, nothing), dim=2))).log_softmax(2))
    same(head.step(OUTPUTS[:, 0], head.init_state(B))[0], scores[:, 0])
    (nats, _), _ = head.nats(OUTPUTS, TARGETS % V, state)
    same(nats, -scores.gather(2, TARGETS.unsqueeze(2) % V).squeeze(2))


def test_batches_and_texts_may_be_empty(head: CopyingHead) -> None:
    scores, _ = head(OUTPUTS[:, :0], head.init_state(B, MEMORY, IDS))
    assert scores.shape == (B, 0, V + S)
    scores, _ = head(OUTPUTS[:0], head.init_state(0, Memory(H[:0]), IDS[:0]))
    assert scores.shape == (0, T, V + S)


plain = build(coverage=False)
WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (
        ValueError,
        "CopyingHead.init_state expects source_ids from 0 to 11, found 12",
        lambda: plain.init_state(B, MEMORY, IDS + 4),
    ),
    (TypeError, "CopyingHead.forward expects state as CopyingState, found NoneType", lambda: plain(OUTPUTS, None)),
    (
        ValueError,
        "CopyingHead.nats expects targets of (3, 4), found (3, 3)",
        lambda: plain.nats(OUTPUTS, TARGETS[:, 1:], plain.init_state(B)),
    ),
    (
        TypeError,
        "CopyingHead.forward expects state.coverage as a tensor, found None",
        lambda: build(coverage=True)(OUTPUTS, plain.init_state(B)),
    ),
]


@pytest.mark.parametrize(("kind", "message", "call"), WRONG, ids=[message for _, message, _ in WRONG])
@pytest.mark.usefixtures("unchecked_types")
def test_invalid_arguments_are_named(kind: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()
