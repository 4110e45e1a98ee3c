"""Recurrent decoders with attention: Luong's attentional layer, after the cells or inside their step.

`InputFeeding` feeds the output of Luong's attentional layer back to the cell at the next position. `AttentionFeedback`
computes the gradients of matrices and values (and of keys, unless scores are additive) after the backward loop.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.engine import Feedback, Packing, folds, has_hooks, unroll_fed
from ensue.nn.attention.cross import AdditiveAttention, BilinearAttention, CrossAttention, DotAttention
from ensue.nn.attention.scores import add_gradients, additive_scores
from ensue.nn.layer import Parallel, Recurrent, SequenceLayer
from ensue.nn.taps import is_watched
from ensue.types import Inputs, Mask, Memory, Outputs, Shared, State, select_rows


class AttentionFeedback(Feedback):
    """The attentional layer `y = tanh(W [c; h])` with `c = Σ_s softmax_s(score_s) value_s`, as feedback. Scores are dot
    products `key_s · h` or additive, `v · tanh(key_s + U h)`.

    `tensors` are keys (B, S, d_key), values (B, S, d_value), the mask `real` (B, S) and W; for additive scores also U
    and v (1, d_key).
    """

    def __init__(self, tensors: Sequence[Tensor], packing: Packing) -> None:
        self.keys, self.values, real, self.w, *additive = tensors
        self.u: Tensor | None = additive[0] if additive else None
        self.v: Tensor | None = additive[1] if additive else None
        self.padding, self.begins = ~real, packing.begins
        like, (batch, positions) = self.values, real.shape
        steps, d = len(packing.counts), self.keys.shape[2]
        # (T, B, ...), zero at positions after the end of a row.
        self.weights = like.new_zeros(steps, batch, positions)
        self.queries = like.new_zeros(steps, batch, d)
        self.grad_contexts = like.new_zeros(steps, batch, like.shape[2])
        self.grad_scores = torch.zeros_like(self.weights)
        self.grad_keys = torch.zeros_like(self.keys)
        # Packed (N, ...).
        self.grad_queries = like.new_empty(packing.size, d)
        self.joined = like.new_empty(packing.size, self.w.shape[1])
        self.grad_sums = like.new_empty(packing.size, self.w.shape[0])
        self.grad_v = like.new_zeros(d)

    def forward(self, t: int, h: Tensor) -> Tensor:
        rows = len(h)
        keys, values, padding = self.keys[:rows], self.values[:rows], self.padding[:rows]
        q = h if self.u is None else h @ self.u.t()
        scores = self._multiply(keys, q) if self.v is None else additive_scores(q.unsqueeze(1), keys, self.v[0])[:, 0]
        a = scores.masked_fill(padding, torch.finfo(scores.dtype).min).softmax(1).masked_fill(padding, 0.0)
        joined = torch.cat((torch.bmm(a.unsqueeze(1), values).squeeze(1), h), dim=1)
        if not torch.is_grad_enabled():
            self.weights[t, :rows], self.queries[t, :rows] = a, q
            self._rows_of_step(self.joined, t, rows).copy_(joined)
        return torch.tanh(joined @ self.w.t())

    def backward(self, t: int, h: Tensor, y: Tensor, error: Tensor) -> Tensor:
        rows = len(h)
        keys, values, a = self.keys[:rows], self.values[:rows], self.weights[t, :rows]
        grad_sum = self._rows_of_step(self.grad_sums, t, rows)
        torch.addcmul(error, error, y.square(), value=-1, out=grad_sum)
        grad_joined = grad_sum @ self.w
        grad_context, grad_h = grad_joined[:, : values.shape[2]], grad_joined[:, values.shape[2] :]
        self.grad_contexts[t, :rows] = grad_context
        grad_a = self._multiply(values, grad_context)
        grad_scores = a * (grad_a - (a * grad_a).sum(1, keepdim=True))
        self.grad_scores[t, :rows] = grad_scores
        if self.v is None or self.u is None:
            return grad_h + torch.bmm(grad_scores.unsqueeze(1), keys).squeeze(1)
        arguments = self.queries[t, :rows].unsqueeze(1), keys, self.v[0], grad_scores.unsqueeze(1)
        grad_q = add_gradients(*arguments, grad_keys=self.grad_keys[:rows], grad_vector=self.grad_v).squeeze(1)
        self._rows_of_step(self.grad_queries, t, rows).copy_(grad_q)
        return grad_h + grad_q @ self.u

    def gradients(self) -> list[Tensor | None]:
        grad_values = _sum_over_positions(self.weights, self.grad_contexts)
        grad_w = self.grad_sums.t() @ self.joined
        if self.u is None:
            return [_sum_over_positions(self.grad_scores, self.queries), grad_values, None, grad_w]
        h = self.joined[:, self.values.shape[2] :]
        return [self.grad_keys, grad_values, None, grad_w, self.grad_queries.t() @ h, self.grad_v.unsqueeze(0)]

    @staticmethod
    def _multiply(a: Tensor, b: Tensor) -> Tensor:
        """Return the products (rows, S) of (rows, S, d) and (rows, d)."""
        return torch.bmm(a, b.unsqueeze(2)).squeeze(2)

    def _rows_of_step(self, tensor: Tensor, t: int, rows: int) -> Tensor:
        begin = int(self.begins[t])
        return tensor[begin : begin + rows]


def _sum_over_positions(a: Tensor, b: Tensor) -> Tensor:
    """Return Σ_t a_t ⊗ b_t of each row, (B, S, d), from (T, B, S) and (T, B, d)."""
    return torch.bmm(a.permute(1, 2, 0), b.transpose(0, 1))


class AttentionalLayer(Parallel):
    """Luong's attentional layer (Luong et al. 2015, eq. 5), with c the output of `attention`:

        y_t = tanh(W [c_t; x_t])

    After recurrent layers, training computes the attention of all positions at once. `d_out` defaults to d_in.
    """

    def __init__(self, attention: CrossAttention, *, d_out: int | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.d_in, self.d_memory = attention.d_in, attention.d_memory
        self.d_out = attention.d_in if d_out is None else d_out
        self.combine = nn.Linear(attention.d_out + attention.d_in, self.d_out, bias=False)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        return self.attention.init_state(batch_size, memory)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, Shared]:
        context, state = self.attention(x, state, mask=mask)
        return torch.tanh(self.combine(torch.cat((context, x), dim=-1))), state

    def extra_repr(self) -> str:
        return f"{self.attention!r}, d_out={self.d_out}"


class InputFeedingState(NamedTuple):
    """The last output `fed`, which the next step reads, the state of the cell, and the memory."""

    fed: Float[Tensor, "B d_out"]
    inner: State
    memory: Shared


class InputFeeding(Recurrent):
    """Input feeding: each step reads the last output of the attentional layer (Luong et al. 2015, section 3.3, after
    Bahdanau et al. 2015):

        h_t = cell([x_t; y_{t-1}], h_{t-1})        y_t = attentional(h_t)

    y_0 is zero. `cell` is any causal layer, for example a stack or a `FromContext`. With dot, bilinear or additive
    attention without active dropout, the engine runs a cell that it can trace. Other attentions and cells run step by
    step. Raises ValueError for inconsistent sizes of cell and attention.
    """

    def __init__(self, cell: SequenceLayer, attentional: AttentionalLayer) -> None:
        super().__init__()
        if cell.d_out != attentional.d_in:
            raise ValueError(f"{attentional!r} cannot read the {cell.d_out} features of {cell!r}")
        if cell.d_in <= attentional.d_out:
            raise ValueError(f"d_in of {cell!r} must exceed the {attentional.d_out} features of the last output")
        if cell.d_memory not in (None, attentional.d_memory) or not cell.is_causal:
            raise ValueError(f"{cell!r} is not causal or needs another memory than {attentional!r}")
        self.cell, self.attentional = cell, attentional
        self.d_in, self.d_out = cell.d_in - attentional.d_out, attentional.d_out
        self.d_memory = attentional.d_memory
        self._fed_cell = (FedCell(self),)  # in a tuple, so that torch does not register it as a submodule

    @property
    def fed_cell(self) -> "FedCell | None":
        """The cell for the engine, which reads the last output from its state; None for unsupported attention."""
        attention = self.attentional.attention
        if attention.num_heads != 1 or attention.scale != 1 or (attention.dropout and self.training):
            return None
        is_supported = type(attention) in (DotAttention, BilinearAttention, AdditiveAttention)  # no subclasses
        return self._fed_cell[0] if is_supported else None

    def init_state(self, batch_size: int, memory: Memory | None = None) -> InputFeedingState:
        fed = self.attentional.combine.weight.new_zeros(batch_size, self.d_out)
        inner = self.cell.init_state(batch_size, memory)
        return InputFeedingState(fed, inner, self.attentional.init_state(batch_size, memory))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, InputFeedingState]:
        state = self.init_state(len(x)) if state is None else state
        must_fold = folds() or is_watched(self) or any(map(has_hooks, self.attentional.modules()))
        results = None if must_fold else self._unroll(x, state, mask)
        return self.fold(x, state, mask=mask) if results is None else results

    def _unroll(
        self, x: Tensor, state: InputFeedingState, mask: Tensor | None
    ) -> tuple[Tensor, InputFeedingState] | None:
        cell, attention = self.fed_cell, self.attentional.attention
        if cell is None:
            return None
        tensors = [self.attentional.combine.weight]
        if isinstance(attention, AdditiveAttention):
            tensors += [attention.project_in.weight, attention.vector.weight]
        memory = state.memory
        source = memory.content if memory.repeats == 1 else select_rows(memory.content, memory.rows)
        start = FedState(state.fed, state.inner)
        results = unroll_fed(cell, x, start, mask, AttentionFeedback, row_tensors=[*source], tensors=tensors)
        if results is None:
            return None
        y, (fed, inner) = results
        return y, InputFeedingState(fed, inner, memory)

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], InputFeedingState]:
        fed, inner, memory = self.init_state(len(x_t)) if state is None else state
        h_t, inner = self.cell.step(torch.cat((x_t, fed), dim=-1), inner)
        y_t, memory = self.attentional.step(h_t, memory)
        return y_t, InputFeedingState(y_t, inner, memory)

    def extra_repr(self) -> str:
        return f"{self.cell!r}, {self.attentional!r}"


class FedState(NamedTuple):
    """The last output of the attentional layer, which the cell reads, and the state of the cell."""

    fed: Float[Tensor, "B d_fed"]
    inner: State


class FedCell(Recurrent):
    """The cell of an `InputFeeding` for the engine. Its step reads x and `fed`, and returns `fed` unchanged."""

    def __init__(self, feeding: InputFeeding) -> None:
        super().__init__()
        self.cell, self.d_fed = feeding.cell, feeding.d_out
        self.d_in, self.d_out, self.d_memory = feeding.d_in, feeding.cell.d_out, feeding.cell.d_memory
        self._feeding = (feeding,)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> FedState:
        inner = self.cell.init_state(batch_size, memory)
        return FedState(next(self._feeding[0].parameters()).new_zeros(batch_size, self.d_fed), inner)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], FedState]:
        fed, inner = self.init_state(len(x_t)) if state is None else state
        h_t, inner = self.cell.step(torch.cat((x_t, fed), dim=-1), inner)
        return h_t, FedState(fed, inner)

    def __repr__(self) -> str:
        return f"{self._feeding[0]!r}.fed_cell"
