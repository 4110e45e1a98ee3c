"""How far gradients reach back: the norm of ∂loss/∂h_t at every position of a recurrent layer, on a copy task.

`console.py` draws it. The derivative is the total one: over all ways by which h_t acts on the loss.

The copy task: a few symbols, many blanks, and at a cue the symbols again. Hochreiter & Schmidhuber 1997 and Arjovsky et
al. 2016 have tasks of this kind. It asks for nothing but memory: whoever forgets guesses, with a loss of
log(`ALPHABET`) nats per symbol.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from ensue.errors import EnsueError, TrainingError, nearest
from ensue.models.encoders import build_encoder
from ensue.models.specification import ENCODER_KINDS, EncoderSpecification, RecurrentEncoder
from ensue.nn import SequenceLayer, watch
from ensue.training.device import process_restored

ALPHABET = 8
SYMBOLS = 3
"""Symbols to remember; fewer in a sequence of fewer positions."""
D_INPUT = ALPHABET + 2
"""A symbol, a blank or a cue, as one number that is 1 among zeros."""
BATCH_SIZE = 16
LEARNING_RATE = 1e-2
CLIP_NORM = 1.0
TEST_ROWS = 256


class Examples(NamedTuple):
    """Inputs, and the symbols to predict at the last positions."""

    x: Float[Tensor, "B T d_in"]
    symbols: Int[Tensor, "B K"]


class Copier(nn.Module):
    """A layer and a linear map from its output at a position to the symbols."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(layer.d_out, ALPHABET)

    def logits(self, y: Float[Tensor, "B T d"], num_symbols: int) -> Float[Tensor, "B K symbols"]:
        """The logits at the last positions, from the layer's output `y`."""
        logits: Tensor = self.readout(y[:, -num_symbols:])
        return logits

    def losses(self, y: Float[Tensor, "B T d"], symbols: Int[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """Nats per symbol of each row."""
        logits = self.logits(y, symbols.shape[1])
        return F.cross_entropy(logits.transpose(1, 2), symbols, reduction="none").mean(1)


def draw_examples(rows: int, positions: int, generator: torch.Generator) -> Examples:
    """Random examples: `positions` before the first cue, with those of the symbols, and a cue for each symbol."""
    K = min(SYMBOLS, positions)
    symbols = torch.randint(ALPHABET, (rows, K), generator=generator)
    ids = torch.full((rows, positions + K), ALPHABET)
    ids[:, :K], ids[:, positions:] = symbols, ALPHABET + 1
    return Examples(F.one_hot(ids, D_INPUT).float(), symbols)


def train_copier(
    copier: Copier, *, positions: int, steps: int, generator: torch.Generator, stepped: Callable[[int, float], None]
) -> None:
    """Trains for `steps` steps of Adam with clipped gradients. `stepped` is called with each step and its loss.

    The length of each step is drawn log-uniformly up to `positions`: a task that no gradient reaches over the whole
    length is learned over a short one first. Raises `TrainingError` if the loss is not finite.
    """
    optimizer = torch.optim.Adam(copier.parameters(), lr=LEARNING_RATE)
    shortest = min(SYMBOLS, positions)
    for step in range(1, steps + 1):
        share = float(torch.rand((), generator=generator))
        length = round(shortest * (positions / shortest) ** share)
        x, symbols = draw_examples(BATCH_SIZE, length, generator)
        loss = copier.losses(copier.layer(x)[0], symbols).mean()
        if not loss.isfinite():
            raise TrainingError(f"the loss is not finite at step {step}")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(copier.parameters(), CLIP_NORM)
        optimizer.step()
        stepped(step, loss.item())


@torch.no_grad()
def score_copier(copier: Copier, positions: int, generator: torch.Generator) -> tuple[float, float]:
    """Nats per symbol and the share of symbols that are predicted right, over the whole length."""
    x, symbols = draw_examples(TEST_ROWS, positions, generator)
    y, _ = copier.layer(x)
    right = copier.logits(y, symbols.shape[1]).argmax(-1) == symbols
    return float(copier.losses(y, symbols).mean()), float(right.float().mean())


RECURRENT = [
    name
    for choice in get_args(get_args(EncoderSpecification)[0])
    if issubclass(choice, RecurrentEncoder)
    for name in get_args(choice.model_fields["kind"].annotation)
]
"""The names of the encoders that have a state for a gradient to go back through."""
DEFAULT_ENCODERS = ("elman", "lstm", "gru", "clockwork", "mingru")
STATES = dict.fromkeys(("lru", "mlstm", "gated-deltanet", "rwkv7", "qrnn"), "*cell")
"""The tap of the state, where it is not the hidden one: these carry on their cell, and nothing reads their h."""
ROWS = 32
"""Examples whose norms are averaged."""


Norms: TypeAlias = tuple[float, ...]
"""The norms of ∂loss/∂h_t from the first position to the last, each the mean over examples."""


@dataclass(frozen=True)
class EncoderGradients:
    """The norms of an encoder as initialized and, if it was trained, afterwards, with its loss in nats per symbol."""

    encoder: str
    untrained: Norms
    trained: Norms | None = None
    loss: float | None = None
    accuracy: float | None = None

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)


def first_to_last(norms: Norms) -> float:
    """The norm at the first position divided by that at the last one."""
    return norms[0] / norms[-1]


def state_gradients(
    layer: SequenceLayer, x: Float[Tensor, "B T d_in"], loss: Callable[[Tensor], Tensor], *, tap: str = "*hidden"
) -> Float[Tensor, "B T"]:
    """The norms of ∂loss/∂h_t of each row, h_t being what passes the taps of that name at position t.

    `loss` maps the outputs (B, T, d_out) to the losses of the rows (B), or to their sum. Where several taps have such a
    name, as in a stack of layers, h_t is all of them. Raises `EnsueError` for a layer without such a tap, and for one
    that does not pass it once a position, from left to right.
    """
    with torch.enable_grad(), watch(layer, tap) as seen:
        y, _ = layer(x)
        total = loss(y).sum()
    if not layer.is_causal or any([h_t.dim() for h_t in states] != [2] * x.shape[1] for states in seen.values()):
        raise EnsueError(f"{type(layer).__name__} has no state that goes from position to position")
    return torch.stack([_squares(total, states) for states in seen.values()]).sum(0).sqrt()


def _squares(total: Tensor, states: list[Tensor]) -> Tensor:
    """Squared norms (B, T) of the derivatives; zero for a state that nothing reads."""
    gradients = torch.autograd.grad(total, states, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.stack([gradient.square().sum(-1) for gradient in gradients], dim=1)


def build_layer(encoder: str, *, d_model: int) -> SequenceLayer:
    """The encoder of that name for the inputs of the copy task, all else as it is by default.

    Raises `EnsueError` if there is none, if it has no recurrent state, or if it cannot have that size.
    """
    if encoder in ENCODER_KINDS and encoder not in RECURRENT:
        raise EnsueError(f'the encoder "{encoder}" has no recurrent state; known: {", ".join(RECURRENT)}')
    if encoder not in RECURRENT:
        raise EnsueError(f'no encoder "{encoder}"{nearest(encoder, RECURRENT)}; known: {", ".join(RECURRENT)}')
    try:
        specification: Any = TypeAdapter(EncoderSpecification).validate_python({"kind": encoder, "d_model": d_model})
    except ValidationError as error:
        raise EnsueError(f"{encoder} {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return build_encoder(specification, d_in=D_INPUT)


@process_restored()
def encoder_gradients(
    encoder: str, *, positions: int = 200, steps: int = 1000, seed: int = 0, d_model: int = 64,
    stepped: Callable[[int, float], None] = lambda step, loss: None,
) -> EncoderGradients:  # fmt: skip
    """The norms over `positions` positions before a recall, before and after `steps` steps of training.

    `stepped` hears of each step, with its loss. Raises `EnsueError` as `build_layer` does, and `TrainingError` where
    numbers grow out of bounds.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        copier = Copier(build_layer(encoder, d_model=d_model))
    generator = torch.Generator().manual_seed(seed)
    examples = draw_examples(ROWS, positions, generator)
    untrained = _norms(copier, encoder, examples)
    if not steps:
        return EncoderGradients(encoder, untrained)
    try:
        train_copier(copier, positions=positions, steps=steps, generator=generator, stepped=stepped)
    except TrainingError as error:
        raise TrainingError(f"{encoder}: {error}") from None
    trained = _norms(copier, encoder, examples)
    return EncoderGradients(encoder, untrained, trained, *score_copier(copier, positions, generator))


def _norms(copier: Copier, encoder: str, examples: Examples) -> Norms:
    """The norms in float64, which holds numbers that vanish in float32."""
    exact = copy.deepcopy(copier).double()
    tap = STATES.get(encoder, "*hidden")
    norms = state_gradients(exact.layer, examples.x.double(), lambda y: exact.losses(y, examples.symbols), tap=tap)
    if not norms.isfinite().all():
        raise TrainingError(f"{encoder}: the gradients are larger than numbers can be")
    return tuple(norms.mean(0).tolist())
