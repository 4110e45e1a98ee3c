"""Luong's attentional layer between two positions of a cell, with its derivative written out, for `InputFeeding`.

What lies on the way from position to position is computed there. The gradients of matrices, keys and values are
products over all positions, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ensue.engine import Feedback, Packing
from ensue.nn.attention.additive import add_errors, scores_of


class AttentionFeedback(Feedback):
    """`y = tanh(W [c; h])`, `c = Σ_s softmax_s(score_s) value_s`, with dot products `key_s · h` or additive scores
    `v · tanh(key_s + U h)`.

    `tensors` are keys (B, S, d_key), values (B, S, d_value), `real` (B, S), W, and for additive scores U and v, of
    (1, d_key).
    """

    def __init__(self, tensors: Sequence[Tensor], packing: Packing) -> None:
        self.keys, self.values, real, self.w, *additive = tensors
        self.u: Tensor | None = additive[0] if additive else None
        self.v: Tensor | None = additive[1] if additive else None
        self.padding, self.begins = ~real, packing.begins
        like, (batch, positions) = self.values, real.shape
        steps, d = len(packing.counts), self.keys.shape[2]
        # By position and row, zero where a row has ended.
        self.weights = like.new_zeros(steps, batch, positions)
        self.queries = like.new_zeros(steps, batch, d)
        self.at_contexts = like.new_zeros(steps, batch, like.shape[2])
        self.at_scores = torch.zeros_like(self.weights)
        self.at_keys = torch.zeros_like(self.keys)
        # Packed.
        self.at_queries = like.new_empty(packing.size, d)
        self.joined = like.new_empty(packing.size, self.w.shape[1])
        self.at_sums = like.new_empty(packing.size, self.w.shape[0])
        self.at_v = like.new_zeros(d)

    def forward(self, t: int, h: Tensor) -> Tensor:
        rows = len(h)
        keys, values, padding = self.keys[:rows], self.values[:rows], self.padding[:rows]
        q = h if self.u is None else h @ self.u.t()
        scores = self._product(keys, q) if self.v is None else scores_of(q.unsqueeze(1), keys, self.v[0]).squeeze(1)
        scores.masked_fill_(padding, torch.finfo(scores.dtype).min)
        a = self.weights[t, :rows] = scores.softmax(1).masked_fill_(padding, 0.0)
        self.queries[t, :rows] = q
        joined = self._packed(self.joined, t, rows)
        torch.cat((torch.bmm(a.unsqueeze(1), values).squeeze(1), h), dim=1, out=joined)
        return (joined @ self.w.t()).tanh_()

    def backward(self, t: int, h: Tensor, y: Tensor, error: Tensor) -> Tensor:
        rows = len(h)
        keys, values, a = self.keys[:rows], self.values[:rows], self.weights[t, :rows]
        at_sum = self._packed(self.at_sums, t, rows)
        torch.addcmul(error, error, y.square(), value=-1, out=at_sum)
        at_joined = at_sum @ self.w
        at_context, at_h = at_joined[:, : values.shape[2]], at_joined[:, values.shape[2] :]
        self.at_contexts[t, :rows] = at_context
        at_a = self._product(values, at_context)
        at_scores = a * (at_a - (a * at_a).sum(1, keepdim=True))
        self.at_scores[t, :rows] = at_scores
        if self.v is None or self.u is None:
            return at_h + torch.bmm(at_scores.unsqueeze(1), keys).squeeze(1)
        given = self.queries[t, :rows].unsqueeze(1), keys, self.v[0], at_scores.unsqueeze(1)
        at_q = add_errors(*given, at_keys=self.at_keys[:rows], at_vector=self.at_v).squeeze(1)
        self._packed(self.at_queries, t, rows).copy_(at_q)
        return at_h + at_q @ self.u

    def gradients(self) -> list[Tensor | None]:
        at_values = _over_positions(self.weights, self.at_contexts)
        at_w = self.at_sums.t() @ self.joined
        if self.u is None:
            return [_over_positions(self.at_scores, self.queries), at_values, None, at_w]
        h = self.joined[:, self.values.shape[2] :]
        return [self.at_keys, at_values, None, at_w, self.at_queries.t() @ h, self.at_v.unsqueeze(0)]

    @staticmethod
    def _product(a: Tensor, b: Tensor) -> Tensor:
        """(rows, S, d) with (rows, d): (rows, S)."""
        return torch.bmm(a, b.unsqueeze(2)).squeeze(2)

    def _packed(self, tensor: Tensor, t: int, rows: int) -> Tensor:
        begin = int(self.begins[t])
        return tensor[begin : begin + rows]


def _over_positions(a: Tensor, b: Tensor) -> Tensor:
    """Σ_t a_t ⊗ b_t of each row: (T, B, S) with (T, B, d) gives (B, S, d)."""
    return torch.bmm(a.permute(1, 2, 0), b.transpose(0, 1))
