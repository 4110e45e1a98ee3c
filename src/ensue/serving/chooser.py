"""From logits to the next token of each row, with what each row asks for; no row depends on another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ensue.decode.sampling import drawn, filtered, keep_top_p
from ensue.errors import EnsueError
from ensue.serving.row import Row
from ensue.types import widest


class Looked(NamedTuple):
    """The logarithm of a token's probability, and the most probable tokens with theirs."""

    log_p: float
    top: tuple[tuple[int, float], ...]


class Chooser:
    """Chooses for these rows, in this order. What depends on the rows alone is worked out once, here."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.rows, self.device, choosing = rows, device, [row.choosing for row in rows]
        temperatures = [1.0 if each.is_greedy else each.temperature for each in choosing]
        self.temperature = torch.tensor(temperatures, device=device).unsqueeze(1)
        self.greedy = [n for n, each in enumerate(choosing) if each.is_greedy]
        self.biased = [n for n, each in enumerate(choosing) if each.bias is not None]
        self.penalized = [n for n, each in enumerate(choosing) if each.has_penalties]
        drawn_from = {n: each for n, each in enumerate(choosing) if not each.is_greedy}
        self.cut = {n: each.sampling for n, each in drawn_from.items() if each.top_k is not None or each.min_p}
        self.in_nucleus = [n for n, each in drawn_from.items() if each.top_p < 1 and n not in self.cut]
        self.nucleus = torch.tensor([choosing[n].top_p for n in self.in_nucleus], device=device).unsqueeze(1)
        self.looking = [n for n, row in enumerate(rows) if row.looks]

    def choose(self, logits: Float[Tensor, "R V"]) -> list[int]:
        """The next id of each row. Raises EnsueError for logits that are not finite."""
        largest = logits.amax(-1, keepdim=True)
        if not largest.isfinite().all():
            raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
        if self.biased or self.penalized:
            logits = self._shifted(logits)
            largest = logits.amax(-1, keepdim=True)
        if len(self.greedy) == len(self.rows):
            return logits.argmax(-1).tolist()
        scaled = (logits - largest) / self.temperature
        self._filter(scaled)
        u = torch.tensor([row.draw() for row in self.rows], dtype=widest(self.device), device=self.device)
        ids = drawn(scaled, u.unsqueeze(1))
        if self.greedy:
            ids[self.greedy] = logits[self.greedy].argmax(-1)
        found: list[int] = ids.tolist()
        return found

    def _shifted(self, logits: Tensor) -> Tensor:
        logits = logits.clone()
        for n in self.biased:
            bias = self.rows[n].choosing.bias
            assert bias is not None
            logits[n] += bias
        for n in self.penalized:
            choosing, counts = self.rows[n].choosing, self.rows[n].counts
            if counts is not None:
                logits[n] -= choosing.frequency_penalty * counts + choosing.presence_penalty * (counts > 0)
        return logits

    def _filter(self, scaled: Tensor) -> None:
        """Gives -∞ to tokens that may not be drawn, in place: top-k, top-p, min-p."""
        for n, sampling in self.cut.items():
            scaled[n] = filtered(scaled[n, None], sampling)[0]
        if self.in_nucleus:
            scaled[self.in_nucleus] = keep_top_p(scaled[self.in_nucleus], self.nucleus)

    def look(self, logits: Float[Tensor, "R V"], ids: Sequence[int]) -> dict[int, Looked]:
        """What the rows that look at their tokens want to know of them: the model's own probabilities."""
        if not self.looking:
            return {}
        some = logits if len(self.looking) == len(self.rows) else logits[self.looking]
        most = max(self.rows[n].logprobs or 0 for n in self.looking)
        found = looked(some, [ids[n] for n in self.looking], most)
        return {
            n: Looked(one.log_p, one.top[: self.rows[n].logprobs or 0])
            for n, one in zip(self.looking, found, strict=True)
        }

    def count(self, ids: Sequence[int], size: int) -> None:
        """Remembers which tokens were written, for penalties."""
        for n in self.penalized:
            row = self.rows[n]
            row.counts = torch.zeros(size, device=self.device) if row.counts is None else row.counts
            row.counts[ids[n]] += 1


def looked(logits: Float[Tensor, "R V"], ids: Sequence[int], most: int) -> list[Looked]:
    """The logarithms of the probabilities of `ids`, and of the `most` most probable tokens of each row."""
    log_p = logits.float().log_softmax(-1)
    of_ids = log_p[range(len(ids)), list(ids)].tolist()
    if not most:
        return [Looked(one, ()) for one in of_ids]
    values, tokens = log_p.topk(min(most, log_p.shape[1]))
    tops = zip(tokens.tolist(), values.tolist(), strict=True)
    return [
        Looked(one, tuple((id, value) for id, value in zip(*top, strict=True) if value > -math.inf))
        for one, top in zip(of_ids, tops, strict=True)
    ]
