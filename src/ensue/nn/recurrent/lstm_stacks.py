"""Stacks of LSTMs with connections between the cells of layers: depth gates, and the Grid LSTM."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.combinators import Stack
from ensue.nn.layer import Recurrent, SequenceLayer, mask_padding
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.lstm import LSTM, LSTMState
from ensue.nn.taps import Tap, Taps
from ensue.types import Inputs, Mask, Memory, Outputs, State


class LSTMStack(SequenceLayer):
    """A stack of layers that pass [h; c] to the layer above.

    The output is h of the last layer. The state is a tuple of one `LSTMState` for each layer.
    """

    repr_arguments = ("d_in", "d_out", "num_layers")
    stack: Stack

    def __init__(self, d_in: int, d_out: int, *, num_layers: int) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"a {type(self).__name__} needs at least one layer, found {num_layers}")
        self.d_in, self.d_out, self.num_layers = d_in, d_out, num_layers

    @abstractmethod
    def project_input(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the first layer, from x."""

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.stack.init_state(batch_size, memory)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        h_and_c, state = self.stack(self.project_input(x, mask), state, mask=mask)
        return h_and_c[..., : self.d_out], state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        h_and_c, state = self.stack.step(self.project_input(x_t), state)
        return h_and_c[..., : self.d_out], state


class LSTMWithCellOutput(Recurrent):
    """An LSTM of `d_cell` units whose output is [h; c], of 2 · d_cell features."""

    def __init__(self, d_in: int, d_cell: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, 2 * d_cell
        self.lstm = LSTM(d_in, d_cell)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        return self.lstm.init_state(batch_size, memory)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, state = self.lstm.step(x_t, state)
        return torch.cat((h, state.c), dim=-1), state

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_cell={self.d_out // 2}"


class DepthGatedLayer(Recurrent):
    """An upper layer of a `DepthGatedLSTM`, which maps [h; c] of the layer below to its own [h; c].

    The weights stack i, f, g, o, d. The recurrent weights have no block for d, which does not read h.
    """

    def __init__(self, d_cell: int) -> None:
        super().__init__()
        self.d_in = self.d_out = 2 * d_cell
        self.weight_input = input_weight(5, d_cell, d_cell)
        self.weight_hidden = hidden_weight(4, d_cell)
        self.weight_cell = nn.Parameter(torch.zeros(d_cell))
        self.weight_below = nn.Parameter(torch.zeros(d_cell))
        self.bias = gate_bias(5, d_cell, forget=1)
        self.gates = Taps("input", "forget", "candidate", "output", "depth")
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        zeros = self.weight_cell.new_zeros(batch_size, len(self.weight_cell))
        return LSTMState(h=zeros, c=zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        h_below, c_below = x_t.chunk(2, dim=-1)
        x_z = F.linear(h_below, self.weight_input, self.bias)
        x_ifgo, x_d = torch.split(x_z, [4 * len(self.weight_cell), len(self.weight_cell)], dim=-1)
        z_i, z_f, z_g, z_o = (x_ifgo + F.linear(h, self.weight_hidden)).chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        d = self.gates.depth(torch.sigmoid(x_d + self.weight_cell * c + self.weight_below * c_below))
        c = self.cell(d * c_below + f * c + i * g)
        h = self.hidden(o * torch.tanh(c))
        return torch.cat((h, c), dim=-1), LSTMState(h, c)

    def extra_repr(self) -> str:
        return f"d_cell={self.d_out // 2}"


class DepthGatedLSTM(LSTMStack):
    """A stack of LSTMs with depth gates (Yao et al. 2015). The first layer is an LSTM. An upper layer reads h of the
    layer below as x, and through a depth gate d also c_below, the cell of the layer below at the same position:

        d = σ(W_d x + w_c ⊙ c + w_l ⊙ c_below + b_d)
        c' = d ⊙ c_below + f ⊙ c + i ⊙ g          h' = o ⊙ tanh(c')

    i, f, g and o are computed as in `LSTM`, without the paper's peepholes. The vectors w_c and w_l start at 0, the
    forget biases at 1. Raises ValueError if `num_layers` is below 1.
    """

    def __init__(self, d_in: int, d_out: int, *, num_layers: int) -> None:
        super().__init__(d_in, d_out, num_layers=num_layers)
        self.stack = Stack([LSTMWithCellOutput(d_in, d_out), *(DepthGatedLayer(d_out) for _ in range(num_layers - 1))])

    def project_input(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x


TAP_NAMES = ("input", "forget", "candidate", "output", "cell", "hidden")


class GridLayer(Recurrent):
    """A layer of a `GridLSTM`, which maps [h_depth; c_depth] of the layer below to its own [h_depth; c_depth].

    The state is h and c of the time dimension. The weights stack i, f, g, o of time, then i, f, g, o of depth.
    `weight_input` multiplies h_depth, and `weight_hidden` multiplies h_time: W = [weight_hidden, weight_input].
    """

    def __init__(self, d_cell: int) -> None:
        super().__init__()
        self.d_in = self.d_out = 2 * d_cell
        self.weight_input = input_weight(8, d_cell, d_cell)
        self.weight_hidden = hidden_weight(8, d_cell)
        self.bias = nn.Parameter(gate_bias(4, d_cell, forget=1).detach().repeat(2))
        self.time, self.depth = Taps(*TAP_NAMES), Taps(*TAP_NAMES)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out // 2)
        return LSTMState(h=zeros, c=zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h_time, c_time = self.init_state(len(x_t)) if state is None else state
        h_depth, c_depth = x_t.chunk(2, dim=-1)
        z = F.linear(h_depth, self.weight_input, self.bias) + F.linear(h_time, self.weight_hidden)
        z_time, z_depth = z.chunk(2, dim=-1)
        h_time, c_time = lstm_cell(z_time, c_time, self.time)
        h_depth, c_depth = lstm_cell(z_depth, c_depth, self.depth)
        return torch.cat((h_depth, c_depth), dim=-1), LSTMState(h_time, c_time)

    def extra_repr(self) -> str:
        return f"d_cell={self.d_out // 2}"


def lstm_cell(z: Float[Tensor, "B z"], c: Float[Tensor, "B d"], taps: Taps) -> tuple[Tensor, Tensor]:
    """Return h' and c' of an LSTM with the pre-activations `z` = [z_i; z_f; z_g; z_o]."""
    z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
    i, f = taps.input(torch.sigmoid(z_i)), taps.forget(torch.sigmoid(z_f))
    g, o = taps.candidate(torch.tanh(z_g)), taps.output(torch.sigmoid(z_o))
    c = taps.cell(f * c + i * g)
    return taps.hidden(o * torch.tanh(c)), c


class GridLSTM(LSTMStack):
    """The Grid LSTM with the dimensions time and depth (Kalchbrenner, Danihelka & Graves 2015). In each of `num_layers`
    layers, at each position:

        H = [h_time; h_depth]                                  h_time from t - 1, h_depth from the layer below
        h'_time, c'_time = LSTM_time(H, c_time)                passed to t + 1
        h'_depth, c'_depth = LSTM_depth(H, c_depth)            passed to the layer above

    LSTM(H, c) is c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh(c'), with i, f, o = σ(W H + b) and g = tanh(W H + b). Layers and
    dimensions do not share weights. The first layer reads (h_depth, c_depth) from a linear map of x. The output is
    h_depth of the last layer, and the state has h_time and c_time of each layer. The forget biases start at 1. Raises
    ValueError if `num_layers` is below 1.
    """

    def __init__(self, d_in: int, d_out: int, *, num_layers: int) -> None:
        super().__init__(d_in, d_out, num_layers=num_layers)
        self.entry = nn.Linear(d_in, 2 * d_out)
        self.stack = Stack([GridLayer(d_out) for _ in range(num_layers)])
        for block in self.entry.weight.chunk(2):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.entry.bias)

    def project_input(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.entry(mask_padding(x, mask))
