"""A recurrent layer with a latent variable at each position, whose prior depends on the positions before."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.gaussian import Gaussian
from ensue.nn.layer import Recurrent, SequenceLayer
from ensue.nn.taps import Tap
from ensue.types import Memory, State


class VariationalState(NamedTuple):
    """The output h of the cell, which the next prior and posterior depend on, and the state of the cell."""

    h: Float[Tensor, "B d"]
    cell: State


class VariationalRecurrent(Recurrent):
    """A variational recurrent network (Chung et al. 2015). h is the output of `cell` at the position before:

        (μ₀, σ₀) = prior(h)        (μ, σ) = posterior([φ_x(x); h])        z = μ + σ ε
        y = [φ_z(z); h; μ; log σ; μ₀; log σ₀]        (h', c') = cell.step([φ_x(x); φ_z(z)], c)

    The input is [x; ε] of `d_in` = d_x + d_latent features. The caller draws the noise ε from N(0, 1), so the layer is
    deterministic. A decoder of x reads [φ_z(z); h], the first `d_decoded` features of y, which depend on x_t through z
    only. The other features are for the divergence (`gaussians`). `prior`, `posterior`, φ_x and φ_z have one hidden
    layer of `d_hidden` ReLUs; the outputs of φ_x and φ_z are `d_hidden` ReLUs. A deviation is softplus(·) + 0.0001.
    Raises ValueError if `cell` is not causal, or does not read 2 · d_hidden features.
    """

    def __init__(self, cell: SequenceLayer, *, d_x: int, d_latent: int, d_hidden: int) -> None:
        super().__init__()
        if cell.d_in != 2 * d_hidden or not cell.is_causal:
            raise ValueError(f"the cell must be causal, with d_in = {2 * d_hidden}; found {cell!r}")
        self.d_x, self.d_latent, self.d_hidden, self.cell = d_x, d_latent, d_hidden, cell
        self.d_decoded = d_hidden + cell.d_out
        self.d_in, self.d_out = d_x + d_latent, self.d_decoded + 4 * d_latent
        self.read_x = nn.Sequential(nn.Linear(d_x, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_hidden), nn.ReLU())
        self.read_z = nn.Sequential(nn.Linear(d_latent, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_hidden), nn.ReLU())
        self.prior = nn.Sequential(nn.Linear(cell.d_out, d_hidden), nn.ReLU(), nn.Linear(d_hidden, 2 * d_latent))
        self.posterior = nn.Sequential(
            nn.Linear(d_hidden + cell.d_out, d_hidden), nn.ReLU(), nn.Linear(d_hidden, 2 * d_latent)
        )
        self.latent = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> VariationalState:
        zeros = next(self.prior.parameters()).new_zeros(batch_size, self.cell.d_out)
        return VariationalState(zeros, self.cell.init_state(batch_size))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], VariationalState]:
        state = self.init_state(len(x_t)) if state is None else state
        x, noise = torch.split(x_t, [self.d_x, self.d_latent], dim=-1)
        phi_x = self.read_x(x)
        prior = Gaussian.of(self.prior(state.h))
        posterior = Gaussian.of(self.posterior(torch.cat((phi_x, state.h), dim=-1)))
        phi_z = self._read_latent(posterior, noise)
        y = torch.cat((phi_z, state.h, *posterior, *prior), dim=-1)
        h, cell = self.cell.step(torch.cat((phi_x, phi_z), dim=-1), state.cell)
        return y, VariationalState(h, cell)

    def gaussians(self, y: Float[Tensor, "*shape d_out"]) -> tuple[Gaussian, Gaussian]:
        """Return the posterior and the prior of each position, from the layer's output."""
        d = self.d_latent
        _, *parameters = torch.split(y, [self.d_decoded, d, d, d, d], dim=-1)
        return Gaussian(*parameters[:2]), Gaussian(*parameters[2:])

    def imagine(
        self, noise: Float[Tensor, "B d_latent"], state: VariationalState
    ) -> tuple[Float[Tensor, "B d_decoded"], Float[Tensor, "B d_hidden"]]:
        """Return [φ_z(z); h], from which a decoder predicts the next x, and φ_z(z), with z from the prior."""
        phi_z = self._read_latent(Gaussian.of(self.prior(state.h)), noise)
        return torch.cat((phi_z, state.h), dim=-1), phi_z

    def after(
        self, x: Float[Tensor, "B d_x"], z: Float[Tensor, "B d_hidden"], state: VariationalState
    ) -> VariationalState:
        """Return the state after x; `z` is the φ_z(z) that `imagine` returned."""
        return VariationalState(*self.cell.step(torch.cat((self.read_x(x), z), dim=-1), state.cell))

    def _read_latent(self, latent: Gaussian, noise: Tensor) -> Tensor:
        return self.read_z(self.latent(latent.reparameterize(noise)))

    def extra_repr(self) -> str:
        return f"{self.cell!r}, d_x={self.d_x}, d_latent={self.d_latent}, d_hidden={self.d_hidden}"
