"""The CRF beside pytorch-crf (`torchcrf.CRF`): the loss with its gradients, and Viterbi, in turns in one process.

    python -m pip install --no-deps --target build/pytorch-crf pytorch-crf==0.7.2
    PYTHONPATH=build/pytorch-crf python benchmarks/crf.py

Both CRFs have the same emissions and transition scores. The loss is summed over the batch and differentiated with
respect to emissions and parameters; the best paths are lists. If a value, a gradient or a path differs, the script
fails with the difference.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from machine import describe_machine
from timing import time_in_turns
from torch import Tensor

from ensue.nn import LinearChainCRF

try:
    from torchcrf import CRF
except ImportError as error:
    raise SystemExit(f"{error}; the docstring of {__file__} has the command that installs it") from error

TAGS, ROWS, LENGTH = (17, 100), 32, 50
SEED = 0
SECONDS = 5.0
"""The time of each pair of measurements."""


class Calls(NamedTuple):
    """The calls of an implementation for a batch."""

    loss: Callable[[], list[Tensor]]
    """Return the summed loss and its gradients with respect to emissions, start, transitions and end."""
    best: Callable[[], list[list[int]]]


def draw_problem(num_tags: int, *, ragged: bool) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return random emissions and transition scores, tags, and a mask."""
    shapes = [(ROWS, LENGTH, num_tags), (num_tags,), (num_tags, num_tags), (num_tags,)]
    lengths = torch.randint(1, LENGTH + 1, (ROWS,)) if ragged else torch.full((ROWS,), LENGTH)
    lengths[0] = LENGTH
    mask = torch.arange(LENGTH) < lengths.unsqueeze(1)
    return [torch.randn(shape, requires_grad=True) for shape in shapes], torch.randint(num_tags, mask.shape), mask


def pytorch_crf_calls(scores: list[Tensor], tags: Tensor, mask: Tensor | None) -> Calls:
    crf = CRF(scores[0].shape[2], batch_first=True)
    crf.start_transitions, crf.transitions, crf.end_transitions = (torch.nn.Parameter(s.detach()) for s in scores[1:])
    sources = [scores[0], crf.start_transitions, crf.transitions, crf.end_transitions]

    def loss() -> list[Tensor]:
        total = -crf(scores[0], tags, mask=mask, reduction="sum")
        return [total, *torch.autograd.grad(total, sources)]

    return Calls(loss, torch.no_grad()(lambda: crf.decode(scores[0], mask=mask)))


def ensue_calls(scores: list[Tensor], tags: Tensor, mask: Tensor | None) -> Calls:
    crf = LinearChainCRF(scores[0].shape[2])
    crf.start, crf.transitions, crf.end = (torch.nn.Parameter(s.detach()) for s in scores[1:])
    sources = [scores[0], crf.start, crf.transitions, crf.end]
    lengths = [LENGTH] * ROWS if mask is None else mask.sum(1).tolist()

    def loss() -> list[Tensor]:
        total = crf.nats(scores[0], tags, mask).sum()
        return [total, *torch.autograd.grad(total, sources)]

    def best() -> list[list[int]]:
        paths = crf.best(scores[0], mask)[0].tolist()
        return [path[:length] for path, length in zip(paths, lengths, strict=True)]

    return Calls(loss, best)


def check_equal(theirs: Calls, ours: Calls) -> None:
    """Raise SystemExit if results differ."""
    for name, a, b in zip(
        ("loss", "d emissions", "d start", "d transitions", "d end"), theirs.loss(), ours.loss(), strict=True
    ):
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-4):
            raise SystemExit(f"{name} differs by up to {(a - b).abs().max().item():.1e}")
    if theirs.best() != ours.best():
        raise SystemExit("the best paths differ")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    print(f"B {ROWS}, T {LENGTH}\n")
    print("| tags | rows | computation | pytorch-crf ms | ensue ms | ratio |")
    print("|---|---|---|---|---|---|")
    for num_tags in TAGS:
        for ragged in (False, True):
            scores, tags, mask = draw_problem(num_tags, ragged=ragged)
            theirs, ours = (make(scores, tags, mask if ragged else None) for make in (pytorch_crf_calls, ensue_calls))
            check_equal(theirs, ours)
            rows = f"1 to {LENGTH} long" if ragged else "full"
            pairs = {"loss and gradients": (theirs.loss, ours.loss), "Viterbi": (theirs.best, ours.best)}
            for name, pair in pairs.items():
                seconds = time_in_turns(dict(enumerate(pair)), 1, seconds=SECONDS, clock=time.perf_counter)
                a, b = (1e3 * statistics.median(values) for values in seconds.values())
                print(f"| {num_tags} | {rows} | {name} | {a:.2f} | {b:.2f} | {a / b:.1f} × |", flush=True)


if __name__ == "__main__":
    main()
