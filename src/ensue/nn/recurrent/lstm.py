"""Long short-term memory, and its variants."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.vendor import run_kernel
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class LSTMState(NamedTuple):
    """The hidden state h, which is the output, and the cell c."""

    h: Float[Tensor, "B d"]
    c: Float[Tensor, "B d"]


class LSTMVariant(Recurrent):
    """The base of variants of the LSTM: the weights of all gates, and the state with h and c.

    The weights stack the `gates` in order. The forget bias starts at 1 (Jozefowicz et al. 2015).
    """

    def __init__(
        self, d_in: int, d_out: int, *, gates: Sequence[str] = ("input", "forget", "candidate", "output")
    ) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight_input = input_weight(len(gates), d_out, d_in)
        self.weight_hidden = hidden_weight(len(gates), d_out)
        self.bias = gate_bias(len(gates), d_out, forget=gates.index("forget"))
        self.gates = Taps(*gates)
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return LSTMState(h=zeros, c=zeros)


class LSTM(LSTMVariant):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000 for the forget gate):

        i = σ(W_i x + U_i h + b_i)        f = σ(W_f x + U_f h + b_f)
        g = tanh(W_g x + U_g h + b_g)     o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + i ⊙ g                h' = o ⊙ tanh(c')

    The weights stack i, f, g, o in torch's order. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LSTMState]:
        state = self.init_state(len(x)) if state is None else state
        weights = [self.weight_input, self.weight_hidden, self.bias, torch.zeros_like(self.bias)]
        y, (h, c) = run_kernel(torch.lstm, x, state, weights, mask)
        return y, LSTMState(h, c)


class CoupledLSTM(LSTMVariant):
    """An LSTM with coupled gates, i = 1 - f (Greff et al. 2017, CIFG):

        f = σ(W_f x + U_f h + b_f)      g = tanh(W_g x + U_g h + b_g)    o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + (1 - f) ⊙ g        h' = o ⊙ tanh(c')

    The weights stack f, g, o. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("forget", "candidate", "output"))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_f, z_g, z_o = z.chunk(3, dim=-1)
        f, o = self.gates.forget(torch.sigmoid(z_f)), self.gates.output(torch.sigmoid(z_o))
        g = self.gates.candidate(torch.tanh(z_g))
        c = self.cell(f * c + (1 - f) * g)
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)


class PeepholeLSTM(LSTMVariant):
    """An LSTM with peepholes, through which gates read the cell of their unit (Gers & Schmidhuber 2000):

        i = σ(W_i x + U_i h + p_i ⊙ c + b_i)    f = σ(W_f x + U_f h + p_f ⊙ c + b_f)
        g = tanh(W_g x + U_g h + b_g)           c' = f ⊙ c + i ⊙ g
        o = σ(W_o x + U_o h + p_o ⊙ c' + b_o)   h' = o ⊙ tanh(c')

    The weights stack i, f, g, o. Peepholes p (d,) start at 0: the layer starts as an LSTM. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.peephole_input = nn.Parameter(torch.zeros(d_out))
        self.peephole_forget = nn.Parameter(torch.zeros(d_out))
        self.peephole_output = nn.Parameter(torch.zeros(d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i = self.gates.input(torch.sigmoid(z_i + self.peephole_input * c))
        f = self.gates.forget(torch.sigmoid(z_f + self.peephole_forget * c))
        g = self.gates.candidate(torch.tanh(z_g))
        c = self.cell(f * c + i * g)
        o = self.gates.output(torch.sigmoid(z_o + self.peephole_output * c))
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)


class LayerNormLSTM(LSTMVariant):
    """An LSTM with layer normalization (Ba, Kiros & Hinton 2016, eqs. 20-22).

    With LN(a; γ) = γ ⊙ (a - mean a) / √(var a + 1e-5):

        [i; f; g; o] = [σ; σ; tanh; σ](LN(W x; γ_x) + LN(U h; γ_h) + b)
        c' = f ⊙ c + i ⊙ g      h' = o ⊙ tanh(LN(c'; γ_c) + b_c)

    As in the paper, and unlike in other implementations, the first two normalizations are over all 4d numbers of a row,
    not over each gate, and the next position reads c' without normalization. The paper's three biases of a gate are a
    single parameter, since they are added. The weights stack i, f, g, o. The gains γ and the forget bias start at 1.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.gain_input = nn.Parameter(torch.ones(4 * d_out))
        self.gain_hidden = nn.Parameter(torch.ones(4 * d_out))
        self.gain_cell = nn.Parameter(torch.ones(d_out))
        self.bias_cell = nn.Parameter(torch.zeros(d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        d = self.d_out
        z_x = F.layer_norm(F.linear(x_t, self.weight_input), (4 * d,), self.gain_input)
        z_h = F.layer_norm(F.linear(h, self.weight_hidden), (4 * d,), self.gain_hidden)
        z_i, z_f, z_g, z_o = (z_x + z_h + self.bias).chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(o * torch.tanh(F.layer_norm(c, (d,), self.gain_cell, self.bias_cell)))
        return h, LSTMState(h, c)


class ProjectedLSTMState(NamedTuple):
    """The output h and the cell c of a `ProjectedLSTM`."""

    h: Float[Tensor, "B d_out"]
    c: Float[Tensor, "B d_cell"]


class ProjectedLSTM(Recurrent):
    """An LSTM whose output h is a projection of a larger cell (Sak, Senior & Beaufays 2014, without peepholes):

        i = σ(W_i x + U_i h + b_i)        f = σ(W_f x + U_f h + b_f)
        g = tanh(W_g x + U_g h + b_g)     o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + i ⊙ g                h' = W_p (o ⊙ tanh(c'))

    Gates and cell are (d_cell,), by default with d_cell = 2 d_out; W is (4 d_cell, d_in), U (4 d_cell, d_out), W_p
    (d_out, d_cell). The weights stack i, f, g, o in torch's order. The forget bias starts at 1.

    With `clip_cell` and `clip_output`, c' and h' are clamped to ± these numbers, as in ELMo (Peters et al. 2018).
    Raises ValueError for clips that are not above 0.
    """

    def __init__(
        self, d_in: int, d_out: int, *, d_cell: int | None = None, clip_cell: float | None = None,
        clip_output: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, clip in (("clip_cell", clip_cell), ("clip_output", clip_output)):
            if clip is not None and not clip > 0:
                raise ValueError(f"{name} must be above 0, found {clip}")
        d_cell = d_cell or 2 * d_out
        self.d_in, self.d_out, self.d_cell = d_in, d_out, d_cell
        self.clip_cell, self.clip_output = clip_cell, clip_output
        self.weight_input = input_weight(4, d_cell, d_in)
        self.weight_hidden = hidden_weight(4, d_cell, d_out)
        self.bias = gate_bias(4, d_cell, forget=1)
        self.weight_projection = input_weight(1, d_out, d_cell)
        self.gates = Taps("input", "forget", "candidate", "output")
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ProjectedLSTMState:
        zeros = self.weight_hidden.new_zeros
        return ProjectedLSTMState(h=zeros(batch_size, self.d_out), c=zeros(batch_size, self.d_cell))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], ProjectedLSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(_clip(f * c + i * g, self.clip_cell))
        h = self.hidden(_clip(F.linear(o * torch.tanh(c), self.weight_projection), self.clip_output))
        return h, ProjectedLSTMState(h, c)

    def extra_repr(self) -> str:
        clips = {"clip_cell": self.clip_cell, "clip_output": self.clip_output}
        finite = [f"{name}={clip}" for name, clip in clips.items() if clip is not None]
        return ", ".join([super().extra_repr(), f"d_cell={self.d_cell}", *finite])


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)


class MogrifierLSTM(LSTM):
    """The Mogrifier LSTM: x and h scale each other in turns before the LSTM reads them (Melis, Kočiský & Blunsom 2020,
    eqs. 1 and 2). With x⁻¹ = x, h⁰ = h and i from 1 to `rounds`:

        xⁱ = 2 σ(Qⁱ hⁱ⁻¹) ⊙ xⁱ⁻²  for odd i        hⁱ = 2 σ(Rⁱ xⁱ⁻¹) ⊙ hⁱ⁻²  for even i

    The LSTM reads the last x and the last h. `weight_round_0` is Q¹ (d_in, d_out), `weight_round_1` R² (d_out, d_in),
    and so on. The weights of the LSTM stack i, f, g, o. Raises ValueError if `rounds` is negative.
    """

    def __init__(self, d_in: int, d_out: int, *, rounds: int = 5) -> None:
        super().__init__(d_in, d_out)
        if rounds < 0:
            raise ValueError(f"rounds must be 0 or more, found {rounds}")
        self.rounds = [f"weight_round_{i}" for i in range(rounds)]
        for name, size in zip(self.rounds, ((d_in, d_out), (d_out, d_in)) * rounds, strict=False):
            self.register_parameter(name, input_weight(1, *size))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        scaled, other = x_t, h
        for name in self.rounds:
            scaled, other = other, 2 * torch.sigmoid(F.linear(other, getattr(self, name))) * scaled
        x, h = (scaled, other) if len(self.rounds) % 2 == 0 else (other, scaled)
        return super().step(x, LSTMState(h, c))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rounds={len(self.rounds)}"
