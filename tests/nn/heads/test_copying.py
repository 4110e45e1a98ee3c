"""The pointer-generator against See et al.'s equations in loops, and as a head with a state."""

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


def made(*, coverage: bool) -> CopyingHead:
    head = CopyingHead(D, SoftmaxHead(5, V), d_memory=D_MEMORY, d_attention=3, coverage=coverage).double()
    with torch.no_grad():
        for number, parameter in enumerate(head.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number))
    return head


@pytest.fixture(params=[False, True], ids=["plain", "coverage"])
def head(request: pytest.FixtureRequest) -> CopyingHead:
    return made(coverage=request.param)


H, OUTPUTS = numbers(B, S, D_MEMORY, seed=98), numbers(B, T, D, seed=99)
MEMORY = Memory(H, REAL)


def equations(head: CopyingHead, row: int) -> tuple[list[list[float]], list[float]]:
    """The probabilities of all words at each position of a row, and the coverage losses."""
    attention, length = head.attention, LENGTHS[row]
    covered, found, losses = [0.0] * length, [], []
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
        found.append(words)
        losses.append(sum(min(x, y) for x, y in zip(a, covered, strict=True)) if head.cover is not None else 0.0)
        covered = [x + y for x, y in zip(covered, a, strict=True)]
    return found, losses


def test_equations(head: CopyingHead) -> None:
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


def test_a_step_is_a_position(head: CopyingHead) -> None:
    """Values, gradients of everything, and the state, also where the text is cut, and where rows end."""
    memory = Memory(H.clone().requires_grad_(), REAL)
    outputs = OUTPUTS.clone().requires_grad_()
    sources = [outputs, memory.values, *head.parameters()]
    found = []
    for way in ("whole", "steps", "cut"):
        state = head.init_state(B, memory, IDS)
        if way == "steps":
            columns = []
            for s_t in outputs.unbind(1):
                column, state = head.step(s_t, state)
                columns.append(column)
            scores = torch.stack(columns, dim=1)
        elif way == "cut":
            first, state = head(outputs[:, :3], state)
            last, state = head(outputs[:, 3:], state)
            scores = torch.cat((first, last), dim=1)
        else:
            scores, state = head(outputs, state)
        total = (scores.exp() * numbers(*scores.shape)).sum()
        found.append([scores, *torch.autograd.grad(total, sources), *([state.coverage] if head.cover else [])])
    same(found[1], found[0])
    same(found[2], found[0])


def test_rows_that_end_cover_no_more(head: CopyingHead) -> None:
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


def test_padding_of_the_source_reaches_nothing(head: CopyingHead) -> None:
    found = []
    for number, id in ((0.0, 0), (torch.nan, 3), (9.0, -5)):
        values = H.masked_fill(~REAL.unsqueeze(2), number).requires_grad_()
        state = head.init_state(B, Memory(values, REAL), IDS.masked_fill(~REAL, id))
        (nats, repeated), _ = head.nats(OUTPUTS, TARGETS, state)
        (dvalues,) = torch.autograd.grad((nats + repeated).sum(), values)
        assert not dvalues[~REAL].any()
        found.append([nats, repeated, dvalues])
    same(found[1], found[0])
    same(found[2], found[0])


def test_gradients(head: CopyingHead) -> None:
    names = [name for name, _ in head.named_parameters()]

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            state = head.init_state(B, Memory(values, REAL), IDS)
            (nats, repeated), _ = head.nats(outputs, TARGETS, state, mask=MASK)
            return nats, repeated

    whole = Whole()

    def function(outputs: Tensor, values: Tensor, *parameters: Tensor) -> Any:
        given = {f"head.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}
        return torch.func.functional_call(whole, given, (outputs, values))

    sources = [OUTPUTS.clone().requires_grad_(), H.clone().requires_grad_(), *head.parameters()]
    assert torch.autograd.gradcheck(function, sources, fast_mode=True)


def test_a_word_that_is_not_there_is_impossible(head: CopyingHead) -> None:
    """Its surprisal is infinite, and no gradient is NaN for that."""
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


def test_without_a_memory_all_is_generated(head: CopyingHead) -> None:
    scores, state = head(OUTPUTS, head.init_state(B))
    assert scores.shape == (B, T, V)
    nothing = torch.zeros(B, T, D_MEMORY, dtype=torch.float64)
    same(scores, head.head(head.combine(torch.cat((OUTPUTS, nothing), dim=2))).log_softmax(2))
    same(head.step(OUTPUTS[:, 0], head.init_state(B))[0], scores[:, 0])
    (nats, _), _ = head.nats(OUTPUTS, TARGETS % V, state)
    same(nats, -scores.gather(2, TARGETS.unsqueeze(2) % V).squeeze(2))


def test_empty_batches_and_texts(head: CopyingHead) -> None:
    scores, _ = head(OUTPUTS[:, :0], head.init_state(B, MEMORY, IDS))
    assert scores.shape == (B, 0, V + S)
    scores, _ = head(OUTPUTS[:0], head.init_state(0, Memory(H[:0]), IDS[:0]))
    assert scores.shape == (0, T, V + S)


plain = made(coverage=False)
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
        lambda: made(coverage=True)(OUTPUTS, plain.init_state(B)),
    ),
]


@pytest.mark.parametrize(("kind", "message", "call"), WRONG, ids=[message for _, message, _ in WRONG])
@pytest.mark.usefixtures("unchecked_types")
def test_what_does_not_fit_is_named(kind: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()
