"""From logits to the next token of each row, with what each row asks for; no row depends on another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ensue.decode.next_token import drawn, filtered, keep_top_p
from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError
from ensue.serving.row import Row
from ensue.types import widest


class Logprob(NamedTuple):
    """The logarithm of a token's probability, and the most probable tokens with theirs."""

    log_p: float
    top: tuple[tuple[int, float], ...]


class Chooser:
    """Chooses for these rows, in this order. What depends on the rows alone is worked out once, here."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.rows, self.device = rows, device
        drawn_from = {n: row.sampling for n, row in enumerate(rows) if not row.sampling.is_greedy}
        temperatures = [drawn_from[n].temperature if n in drawn_from else 1.0 for n in range(len(rows))]
        self.temperature = torch.tensor(temperatures, device=device).unsqueeze(1)
        self.greedy = [n for n in range(len(rows)) if n not in drawn_from]
        self.biased = [n for n, row in enumerate(rows) if row.bias is not None]
        self.penalized = [n for n, row in enumerate(rows) if row.has_penalties]
        scaled = {n: replace(sampling, temperature=1.0) for n, sampling in drawn_from.items()}
        self.cut = {n: sampling for n, sampling in scaled.items() if replace(sampling, top_p=None) != Sampling()}
        in_nucleus = {n: sampling.top_p for n, sampling in scaled.items() if n not in self.cut}
        nucleus = {n: top_p for n, top_p in in_nucleus.items() if top_p is not None and top_p < 1}
        self.in_nucleus = list(nucleus)
        self.nucleus = torch.tensor(list(nucleus.values()), device=device).unsqueeze(1)
        self.with_logprobs = [n for n, row in enumerate(rows) if row.needs_logprobs]

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
            bias = self.rows[n].bias
            assert bias is not None
            logits[n] += bias
        for n in self.penalized:
            request, counts = self.rows[n].request, self.rows[n].counts
            if counts is not None:
                logits[n] -= request.frequency_penalty * counts + request.presence_penalty * (counts > 0)
        return logits

    def _filter(self, scaled: Tensor) -> None:
        """Gives -∞ to tokens that may not be drawn, in place: top-k, top-p, min-p."""
        for n, sampling in self.cut.items():
            scaled[n] = filtered(scaled[n, None], sampling)[0]
        if self.in_nucleus:
            scaled[self.in_nucleus] = keep_top_p(scaled[self.in_nucleus], self.nucleus)

    def logprobs(self, logits: Float[Tensor, "R V"], ids: Sequence[int]) -> dict[int, Logprob]:
        """The logprobs of the rows that need them, from the model's own probabilities, by row."""
        if not self.with_logprobs:
            return {}
        some = logits if len(self.with_logprobs) == len(self.rows) else logits[self.with_logprobs]
        most = max(self.rows[n].request.logprobs or 0 for n in self.with_logprobs)
        found = logprobs_of(some, [ids[n] for n in self.with_logprobs], most)
        return {
            n: Logprob(one.log_p, one.top[: self.rows[n].request.logprobs or 0])
            for n, one in zip(self.with_logprobs, found, strict=True)
        }

    def count(self, ids: Sequence[int], size: int) -> None:
        """Remembers which tokens were written, for penalties."""
        for n in self.penalized:
            row = self.rows[n]
            row.counts = torch.zeros(size, device=self.device) if row.counts is None else row.counts
            row.counts[ids[n]] += 1


def logprobs_of(logits: Float[Tensor, "R V"], ids: Sequence[int], most: int) -> list[Logprob]:
    """The logarithms of the probabilities of `ids`, and of the `most` most probable tokens of each row."""
    log_p = logits.float().log_softmax(-1)
    of_ids = log_p[range(len(ids)), list(ids)].tolist()
    if not most:
        return [Logprob(one, ()) for one in of_ids]
    values, tokens = log_p.topk(min(most, log_p.shape[1]))
    tops = zip(tokens.tolist(), values.tolist(), strict=True)
    return [
        Logprob(one, tuple((id, value) for id, value in zip(*top, strict=True) if value > -math.inf))
        for one, top in zip(of_ids, tops, strict=True)
    ]
