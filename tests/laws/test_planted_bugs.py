"""Each law detects its bug in a layer that is in the table without the bug."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue import nn as layers
from ensue.testing import laws
from ensue.testing.laws import EVERY_LAYER, OF_CALLS, REMEMBERING, STEPPING, Law, Subject
from ensue.types import Memory, Shared, State, detach

from .table import D_MEMORY, D_OUT, D

Result = tuple[Tensor, State]


def as_kind(kind: type[layers.SequenceLayer], layer: layers.SequenceLayer) -> layers.SequenceLayer:
    """Return a layer with the same parameters and the methods of `kind`."""
    copied = copy.copy(layer)
    copied.__class__ = kind
    return copied


class Plain(layers.Pointwise):
    """The identity, to which subclasses add a bug."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), d_in=D)


class PeekingAttention(layers.MultiHeadAttention):
    """A bug: each position sees the next one in its place."""

    def _split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = super()._split_heads(x)
        return queries, keys.roll(-1, 2), values.roll(-1, 2)


class ShortSighted(layers.GRU):
    """A bug: it claims to look ahead, and does not."""

    is_causal = False


class AttentionToPadding(layers.MultiHeadAttention):
    """A bug: it treats padding as real positions."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return super().forward(x, state)


class ForgetfulOfPadding(layers.MultiHeadAttention):
    """A bug: it masks padding only in the call of the padding, not in later calls."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        y, state = super().forward(x, state, mask=mask)
        return y, state._replace(real=torch.ones_like(state.real))


class NotHeld(layers.GRU):
    """A bug: it updates its state at padding."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        x = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
        return super().forward(x, state)


class EmptyRowsReadAZero(layers.LSTM):
    """A bug: an empty row reads a zero, which changes its state."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        if mask is not None and x.shape[1]:
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
            mask = mask.clone()
            mask[:, 0] = True
        return super().forward(x, state, mask=mask)


class DetachedState(layers.LSTM):
    """A bug: it cuts the gradient between two calls of `forward`."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        y, state = super().forward(x, state, mask=mask)
        return y, detach(state)


class DetachedStep(layers.LSTM):
    """A bug: it cuts the gradient between two steps."""

    def step(self, x_t: Tensor, state: State = None) -> Result:
        return super().step(x_t, detach(state))

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return as_kind(layers.LSTM, self)(x, state, mask=mask)


class AnotherStep(layers.GRU):
    """A bug: `step` has other equations than `forward`."""

    def step(self, x_t: Tensor, state: State = None) -> Result:
        h, after = super().step(x_t, state)
        return h, after if state is None else after._replace(h=0.9 * h + 0.1 * state.h)

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return as_kind(layers.GRU, self)(x, state, mask=mask)


class BatchOnDim1(layers.Elman):
    """A bug: its state is (1, B, d), as in the vendors' kernels."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> layers.ElmanState:
        return layers.ElmanState(super().init_state(batch_size).h.unsqueeze(0))

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        (h,) = self.init_state(len(x)) if state is None else state
        y, (h,) = as_kind(layers.Elman, self)(x, layers.ElmanState(h[0]), mask=mask)
        return y, layers.ElmanState(h.unsqueeze(0))

    def step(self, x_t: Tensor, state: State = None) -> Result:
        (h,) = self.init_state(len(x_t)) if state is None else state
        y_t, (h,) = super().step(x_t, layers.ElmanState(h[0]))
        return y_t, layers.ElmanState(h.unsqueeze(0))


class RestartedPositions(layers.SinusoidalPositions):
    """A bug: it counts from 0 in every call."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return super().forward(x, None, mask=mask)[0], state


class ColumnsAsClock(layers.LearnedPositions):
    """A bug: it counts columns, including padding, instead of each row's real positions."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return super().forward(x, state)


class OneClockForAllRows(layers.LearnedPositions):
    """A bug: every row has the position of the first row."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        if state is not None:
            state = state._replace(position=state.position[:1].expand(len(x)))
        return super().forward(x, state, mask=mask)


class InPlace(layers.Elman):
    """A bug: it overwrites the old state."""

    def step(self, x_t: Tensor, state: State = None) -> Result:
        y_t, after = super().step(x_t, state)
        if state is not None:
            state.h.data.copy_(after.h)
        return y_t, after


class DeadParameter(layers.LSTM):
    """A bug: a parameter has no effect."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.peephole = nn.Parameter(torch.zeros(d_out))


class ReversesPadding(layers.Bidirectional):
    """A bug: its backward layer begins at the padding."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        rightward, last = self.rightward(x, mask=mask)
        leftward, first = self.leftward(x.flip(1))
        return torch.cat((rightward, leftward.flip(1)), dim=-1), (last, first)


class ReversesBlankPadding(ReversesPadding):
    """A bug: its backward layer begins at padding that is set to zero."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return super().forward(x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0), state, mask=mask)


class MixesRows(Plain):
    """A bug: it subtracts the mean over the batch."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return x - x.mean(0), None


class OutsideTheStateDict(layers.Pointwise):
    """A bug: a trained number is missing in the state dict."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(D, D), d_in=D)
        self.scale = float(torch.rand(()))

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return self.scale * self.module(x), None


class DropsInEvaluation(Plain):
    """A bug: it ignores the mode of training."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return F.dropout(x, 0.5), None


class AttentionToPaddingOfMemory(layers.BilinearAttention):
    """A bug: it treats the padding of its memory as real."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        return super().init_state(batch_size, None if memory is None else Memory(memory.values))


class SpreadsPaddingOfMemory(layers.BilinearAttention):
    """A bug: it masks the scores at padding of its memory, and multiplies its values by zero."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        state = super().init_state(batch_size, memory)
        if memory is None:
            return state
        return state._replace(content=state.content._replace(values=memory.values))


class CommonMemory(layers.BilinearAttention):
    """A bug: it subtracts the mean of all memories from each."""

    def keys_and_values(self, h: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().keys_and_values(h)
        return keys, values - values.mean(0)


class DetachedMemory(layers.MultiHeadCrossAttention):
    """A bug: it passes no gradient to the memory."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        return super().init_state(batch_size, None if memory is None else Memory(memory.values.detach(), memory.mask))


class RowsInOrder(layers.BilinearAttention):
    """A bug: it reads every batch as beams in order."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        if state is not None and len(x) % state.num_texts == 0:
            texts = torch.arange(state.num_texts)
            in_order = Shared(state.content, texts.repeat_interleave(len(x) // state.num_texts))
            return super().forward(x, in_order, mask=mask)[0], state
        return super().forward(x, state, mask=mask)


class RowsInTurn(layers.BilinearAttention):
    """A bug: it reads the rows of a beam as texts in turn: 0, 1, 2, 0, 1, 2."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        if state is not None and state.repeats is not None:
            in_turn = Shared(state.content, torch.arange(state.num_texts).repeat(state.repeats))
            return super().forward(x, in_turn, mask=mask)[0], state
        return super().forward(x, state, mask=mask)


class MarksPadding(layers.BilinearAttention):
    """A bug: its mask marks padding, so that padding added by joining states counts as real."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        return self._turned(super().init_state(batch_size, memory))

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        shared_state = self.init_state(len(x)) if state is None else state
        return super().forward(x, self._turned(shared_state), mask=mask)[0], shared_state

    @staticmethod
    def _turned(state: Shared) -> Shared:
        return state._replace(content=state.content._replace(real=~state.content.real))


class NothingIsAZero(layers.MultiHeadCrossAttention):
    """A bug: it reads a zero in place of an empty memory."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        assert self.d_memory is not None
        zero = Memory(self.zero.new_zeros(batch_size, 1, self.d_memory))
        return super().init_state(batch_size, zero if memory is None else memory)


class DrawsAtFirst(Plain):
    """A bug: it draws a random number at its first call."""

    is_new = True

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        self.is_new = self.is_new and bool(torch.rand(()) < 0)
        return x, None


class ShowsZerosAtFirst(layers.Window):
    """A bug: it calls its tap with zeros at first."""

    is_new = True

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        if self.is_new:
            self.is_new = False
            self.hidden(torch.zeros_like(x))
        return super().forward(x, state, mask=mask)


class KeepsItsFirstMode(Plain):
    """A bug: it stays in the mode of its first call."""

    mode: bool | None = None

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        self.mode = self.training if self.mode is None else self.mode
        return F.dropout(x, 0.5, self.mode), None


class KeepsWeights(layers.Pointwise):
    """A bug: it caches a function of its weight by the weight's address and version."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(D, D), d_in=D)
        self.kept: tuple[object, list[Tensor]] = None, []

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        weight = self.module.weight
        key = weight.data_ptr(), weight._version
        if self.kept[0] != key:
            self.kept = key, [weight.detach().clone()]
        return F.linear(x, weight + self.kept[1][0], self.module.bias), None


class KeepsANumber(Plain):
    """A bug: it reads an attribute only once."""

    read: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.5

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        self.read = str(self.rate) if self.read is None else self.read
        return float(self.read) * x, None


class FoldsOverPadding(layers.Elman):
    """A bug: `fold` returns outputs of steps at padding."""

    def fold(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> Result:
        return super().fold(x, state)[0], super().fold(x, state, mask=mask)[1]


class KeepsTheSequence(layers.Elman):
    """A bug: its state is a view of its outputs and keeps their memory."""

    def step(self, x_t: Tensor, state: State = None) -> Result:
        y_t, (h,) = super().step(x_t, state)
        return y_t, layers.ElmanState(torch.cat((h, h), dim=1)[:, : self.d_out])


def attention(kind: type[layers.MultiHeadAttention], *, is_causal: bool = True) -> layers.SequenceLayer:
    return kind(D, num_heads=2, is_causal=is_causal)


def remembering(kind: type[layers.CrossAttention]) -> layers.SequenceLayer:
    return kind(D, D_MEMORY)  # type: ignore[call-arg]


def both_ways(kind: type[layers.Bidirectional]) -> layers.SequenceLayer:
    return kind(layers.LSTM(D, D_OUT), layers.LSTM(D, D_OUT))


PLANTED: list[tuple[Callable[[], layers.SequenceLayer], Law]] = [
    (lambda: attention(PeekingAttention), laws.causality_is_as_declared),
    (lambda: ShortSighted(D, D_OUT), laws.causality_is_as_declared),
    (lambda: attention(AttentionToPadding, is_causal=False), laws.padding_changes_no_value),
    (lambda: both_ways(ReversesPadding), laws.padding_changes_no_value),
    (lambda: both_ways(ReversesPadding), laws.padding_changes_no_gradient),
    (lambda: both_ways(ReversesBlankPadding), laws.a_row_alone_is_the_row_in_a_batch),
    (MixesRows, laws.a_row_alone_is_the_row_in_a_batch),
    (lambda: attention(ForgetfulOfPadding), laws.a_ragged_prompt_then_steps_is_each_row_alone),
    (lambda: NotHeld(D, D_OUT, reset="before"), laws.a_ragged_prompt_then_steps_is_each_row_alone),
    (lambda: EmptyRowsReadAZero(D, D_OUT), laws.ragged_prefix_then_rest_is_whole),
    (lambda: DetachedState(D, D_OUT), laws.prefix_then_rest_is_whole),
    (lambda: DetachedStep(D, D_OUT), laws.step_is_forward),
    (lambda: AnotherStep(D, D_OUT), laws.step_is_forward),
    (lambda: BatchOnDim1(D, D_OUT), laws.state_has_the_batch_first),
    (lambda: RestartedPositions(D), laws.prefix_then_rest_is_whole),
    (lambda: RestartedPositions(D), laws.step_is_forward),
    (lambda: ColumnsAsClock(D, max_positions=16), laws.a_ragged_prompt_then_steps_is_each_row_alone),
    (lambda: OneClockForAllRows(D, max_positions=16), laws.a_ragged_prompt_then_steps_is_each_row_alone),
    (lambda: OneClockForAllRows(D, max_positions=16), laws.selecting_rows_commutes_with_steps),
    (lambda: InPlace(D, D_OUT), laws.state_is_a_value),
    (OutsideTheStateDict, laws.saved_and_loaded_is_the_same),
    (DrawsAtFirst, laws.the_first_call_is_like_the_second),
    (lambda: ShowsZerosAtFirst(D, D_OUT, size=2), laws.the_first_call_is_like_the_second),
    (KeepsItsFirstMode, laws.training_after_evaluation_is_training),
    (KeepsWeights, laws.changed_weights_change_the_output),
    (KeepsANumber, laws.changed_numbers_take_effect),
    (lambda: FoldsOverPadding(D, D_OUT), laws.padding_of_recurrent_layers_is_zero),
    (lambda: KeepsTheSequence(D, D_OUT), laws.a_state_holds_no_more_than_its_own_bytes),
    (lambda: DeadParameter(D, D_OUT), laws.every_parameter_gets_a_gradient),
    (DropsInEvaluation, laws.evaluation_is_deterministic),
    (lambda: remembering(AttentionToPaddingOfMemory), laws.memory_padding_reaches_nothing),
    (lambda: remembering(SpreadsPaddingOfMemory), laws.memory_padding_reaches_nothing),
    (lambda: remembering(CommonMemory), laws.rows_have_memories_of_their_own),
    (lambda: remembering(DetachedMemory), laws.gradients_reach_the_memory),
    (lambda: remembering(RowsInOrder), laws.shared_memories_are_as_if_copied),
    (lambda: remembering(RowsInTurn), laws.shared_memories_are_as_if_copied),
    (lambda: remembering(MarksPadding), laws.joined_states_go_on_as_before),
    (lambda: remembering(NothingIsAZero), laws.a_memory_may_be_short_or_none),
]


@pytest.mark.parametrize(("make", "law"), PLANTED)
def test_the_law_detects_the_bug(make: Callable[[], layers.SequenceLayer], law: Law) -> None:
    with pytest.raises(AssertionError):
        law(Subject("planted", make))


def test_every_law_detects_a_bug() -> None:
    assert {law.__name__ for _, law in PLANTED} == {
        law.__name__ for law in [*EVERY_LAYER, *OF_CALLS, *STEPPING, *REMEMBERING]
    }
