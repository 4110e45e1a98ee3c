"""The best path of tags as two loops in the graph: to the right with maxima, and back along the best predecessors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ensue.exchange.onnx.loops import replaced, scan
from ensue.exchange.onnx.tracing import Trace
from ensue.models import tag_heads
from ensue.nn.heads import crf, paths
from ensue.nn.heads.chain import last_positions, real_positions
from ensue.nn.layer import blank
from ensue.types import State


@contextmanager
def paths_kept(trace: Trace) -> Iterator[None]:
    """Inside, heads of taggers find the best path in the graph. Other threads find theirs as ever."""

    def viterbi(emissions: Tensor, *scores: Any) -> tuple[Tensor, Tensor]:
        return best_path(trace, emissions, *scores) if emissions.is_meta else paths.viterbi(emissions, *scores)

    with replaced(crf, "viterbi", viterbi), replaced(tag_heads, "viterbi", viterbi):
        yield


def best_path(
    trace: Trace, emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`ensue.nn.viterbi` with the same sums in the same order: the tags (B, T), and the scores (B,)."""
    batch, length, tags = emissions.shape
    real = real_positions(emissions, mask)
    places = torch.arange(length, device=emissions.device).unsqueeze(0).expand(batch, length)

    def rightward(given: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        here, real_t, place = given
        reached = (state.unsqueeze(2) + transitions).amax(1)
        best = torch.where((place == 0).unsqueeze(1), start, reached) + here
        best = torch.where(real_t.unsqueeze(1), best, state)
        return (best,), best

    nothing = emissions.new_zeros(batch, tags)
    (sums,), ending = scan(trace, rightward, (blank(emissions, mask), real, places), nothing)
    scores, final = (ending + end).max(1)
    last = last_positions(real)

    def leftward(given: tuple[Tensor, ...], state: State) -> tuple[tuple[Tensor, ...], State]:
        best, place = given
        tag = (best + transitions.t()[state]).argmax(1)
        tag = torch.where(place < last, tag, final)
        return (tag,), tag

    (path,), _ = scan(trace, leftward, (sums, places), final, reverse=True)
    return path.masked_fill(~real, 0), scores.masked_fill(~real[:, 0], 0.0)
