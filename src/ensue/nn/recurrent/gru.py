"""The simple recurrent network, two forms of the gated recurrent unit, and long expressive memory."""

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.vendor import run_kernel
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class GRUState(NamedTuple):
    """The hidden state h, which is the output."""

    h: Float[Tensor, "B d"]


class GRU(Recurrent):
    """The gated recurrent unit (Cho et al. 2014), with the reset gate before or after the product with U_n:

        r = σ(W_r x + U_r h + b_r)        z = σ(W_z x + U_z h + b_z)
        before:  n = tanh(W_n x + b_n + U_n (r ⊙ h))            h' = (1 - z) ⊙ h + z ⊙ n
        after:   n = tanh(W_n x + b_n + r ⊙ (U_n h + b'_n))     h' = (1 - z) ⊙ n + z ⊙ h

    `reset` is "before", as in the paper, or "after", as in cuDNN and torch, whose kernels `forward` can then use. z and
    1 - z are as in Chung et al. 2014 ("before") or as in Cho et al. and torch ("after"). The weights stack r, z, n in
    torch's order. Raises ValueError for another `reset`.
    """

    repr_arguments = ("d_in", "d_out", "reset")

    def __init__(self, d_in: int, d_out: int, *, reset: Literal["before", "after"] = "after") -> None:
        super().__init__()
        if reset not in ("before", "after"):
            raise ValueError(f"reset must be before or after, found {reset!r}")
        self.d_in, self.d_out, self.reset = d_in, d_out, reset
        self.weight_input = input_weight(3, d_out, d_in)
        self.weight_hidden = hidden_weight(3, d_out)
        self.bias = gate_bias(3, d_out)
        if reset == "after":
            self.bias_candidate = nn.Parameter(torch.zeros(d_out))
        self.gates = Taps("reset", "update", "candidate")
        self.hidden = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> GRUState:
        return GRUState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], GRUState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        d = self.d_out
        x_rz, x_n = torch.split(F.linear(x_t, self.weight_input, self.bias), [2 * d, d], dim=-1)
        U_rz, U_n = torch.split(self.weight_hidden, [2 * d, d])
        r, z = torch.sigmoid(x_rz + F.linear(h, U_rz)).chunk(2, dim=-1)
        r, z = self.gates.reset(r), self.gates.update(z)
        if self.reset == "before":
            n = self.gates.candidate(torch.tanh(x_n + F.linear(r * h, U_n)))
            h = self.hidden((1 - z) * h + z * n)
        else:
            n = self.gates.candidate(torch.tanh(x_n + r * F.linear(h, U_n, self.bias_candidate)))
            h = self.hidden((1 - z) * n + z * h)
        return h, GRUState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, GRUState] | None:
        if self.reset == "before":
            return None
        state = self.init_state(len(x)) if state is None else state
        bias_hidden = torch.cat((self.bias.new_zeros(2 * self.d_out), self.bias_candidate))
        weights = [self.weight_input, self.weight_hidden, self.bias, bias_hidden]
        y, (h,) = run_kernel(torch.gru, x, state, weights, mask)
        return y, GRUState(h)


class ElmanState(NamedTuple):
    """The hidden state h, which is the output."""

    h: Float[Tensor, "B d"]


class Elman(Recurrent):
    """A simple recurrent network, `h_t = g(U h_{t-1} + W x_t + b)`, with g = tanh or ReLU (Elman 1990).

    The output is h_t. Raises ValueError for another `activation`.
    """

    repr_arguments = ("d_in", "d_out", "activation")

    def __init__(self, d_in: int, d_out: int, *, activation: Literal["tanh", "relu"] = "tanh") -> None:
        super().__init__()
        if activation not in ("tanh", "relu"):
            raise ValueError(f"activation must be tanh or relu, found {activation!r}")
        self.d_in, self.d_out, self.activation = d_in, d_out, activation
        self.weight_input = input_weight(1, d_out, d_in)
        self.weight_hidden = hidden_weight(1, d_out)
        self.bias = gate_bias(1, d_out)
        self.hidden = Tap()

    run_step: Any = None  # the few operations of torch take less time than the call of compiled code

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ElmanState:
        return ElmanState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        g = torch.tanh if self.activation == "tanh" else torch.relu
        h = self.hidden(g(F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)))
        return h, ElmanState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, ElmanState]:
        state = self.init_state(len(x)) if state is None else state
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        weights = [self.weight_input, self.weight_hidden, self.bias, torch.zeros_like(self.bias)]
        y, (h,) = run_kernel(kernel, x, state, weights, mask)
        return y, ElmanState(h)


class LEMState(NamedTuple):
    """The hidden state y, which is the output, and the memory z."""

    y: Float[Tensor, "B d"]
    z: Float[Tensor, "B d"]


class LEM(Recurrent):
    """Long expressive memory (Rusch, Mishra, Erichson & Mahoney 2022, eq. 3):

        a = Δt σ(W_a x + U_a y + b_a)                   b = Δt σ(W_b x + U_b y + b_b)
        z' = (1 - a) ⊙ z + a ⊙ tanh(W_z x + U_z y + b_z)
        y' = (1 - b) ⊙ y + b ⊙ tanh(W_y x + U_y z' + b_y)

    a and b are the time steps of a discretized differential equation for z and y; their maximum Δt is `longest_step`.
    The weights stack a, b, z, y. Raises ValueError unless Δt is above 0 and at most 1.
    """

    repr_arguments = ("d_in", "d_out", "longest_step")

    def __init__(self, d_in: int, d_out: int, *, longest_step: float = 1.0) -> None:
        super().__init__()
        if not 0 < longest_step <= 1:
            raise ValueError(f"longest_step must be above 0 and at most 1, found {longest_step}")
        self.d_in, self.d_out, self.longest_step = d_in, d_out, longest_step
        self.weight_input, self.weight_hidden = input_weight(4, d_out, d_in), hidden_weight(4, d_out)
        self.bias = gate_bias(4, d_out)
        self.gates, self.memory, self.hidden = Taps("memory", "hidden"), Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LEMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return LEMState(zeros, zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LEMState]:
        y, z = self.init_state(len(x_t)) if state is None else state
        U_abz, U_y = self.weight_hidden[: 3 * self.d_out], self.weight_hidden[3 * self.d_out :]
        W_x = F.linear(x_t, self.weight_input, self.bias)
        v_a, v_b, v_z = (W_x[:, : 3 * self.d_out] + F.linear(y, U_abz)).chunk(3, dim=-1)
        a = self.gates.memory(self.longest_step * torch.sigmoid(v_a))
        b = self.gates.hidden(self.longest_step * torch.sigmoid(v_b))
        z = self.memory((1 - a) * z + a * torch.tanh(v_z))
        y = self.hidden((1 - b) * y + b * torch.tanh(W_x[:, 3 * self.d_out :] + F.linear(z, U_y)))
        return y, LEMState(y, z)
