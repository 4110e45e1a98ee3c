"""The norm of the total derivative ∂loss/∂h_t at each position of a recurrent layer, with a plot and a table.

A sequence of the copy task has a few symbols, many blanks, and a cue for each symbol. At the cues the model must repeat
the symbols (Hochreiter & Schmidhuber 1997, Arjovsky et al. 2016). Guessing costs log(NUM_SYMBOLS) nats per symbol.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from torch import Tensor, nn

from ensue.console.reporter import ProgressLine
from ensue.console.tables import table_of
from ensue.errors import EnsueError, TrainingError, nearest
from ensue.models.encoders import build_encoder
from ensue.models.specification import ENCODER_KINDS, EncoderSpecification, RecurrentEncoder
from ensue.nn import SequenceLayer, watch
from ensue.outputs import atomic_output
from ensue.runs.pictures import picture
from ensue.training.device import restore_process

NUM_SYMBOLS = 8
MAX_COPIED_SYMBOLS = 3
"""The number of symbols to remember; fewer in a sequence with fewer positions before the cues."""
D_INPUT = NUM_SYMBOLS + 2
"""The width of the one-hot vectors of symbols, blank and cue."""
BATCH_SIZE = 16
LEARNING_RATE = 1e-2
CLIP_NORM = 1.0
NUM_TEST_ROWS = 256


class Examples(NamedTuple):
    """Sequences, and the symbols to predict at their last K positions."""

    x: Float[Tensor, "B T d_in"]
    symbols: Int[Tensor, "B K"]


class Copier(nn.Module):
    """A layer, and a linear map from its outputs to the logits of the symbols."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(layer.d_out, NUM_SYMBOLS)

    def logits(self, y: Float[Tensor, "B T d"], num_symbols: int) -> Float[Tensor, "B K symbols"]:
        """Return the logits at the last positions, from the outputs `y` of the layer."""
        return self.readout(y[:, -num_symbols:])

    def losses(self, y: Float[Tensor, "B T d"], symbols: Int[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """Return the nats per symbol of each row."""
        return F.cross_entropy(self.logits(y, symbols.shape[1]).transpose(1, 2), symbols, reduction="none").mean(1)


def draw_examples(rows: int, positions: int, generator: torch.Generator) -> Examples:
    """Return random sequences: `positions` symbols and blanks, then a cue for each symbol."""
    K = min(MAX_COPIED_SYMBOLS, positions)
    symbols = torch.randint(NUM_SYMBOLS, (rows, K), generator=generator)
    ids = torch.full((rows, positions + K), NUM_SYMBOLS)
    ids[:, :K], ids[:, positions:] = symbols, NUM_SYMBOLS + 1
    return Examples(F.one_hot(ids, D_INPUT).float(), symbols)


def train_copier(
    copier: Copier, *, positions: int, steps: int, generator: torch.Generator, stepped: Callable[[int, float], None]
) -> None:
    """Train by Adam with clipped gradients, and call `stepped` with the number and the loss of each step.

    Each step draws a length, log-uniform up to `positions`, since gradients vanish less in short sequences. Raise
    TrainingError if the loss is not finite.
    """
    optimizer = torch.optim.Adam(copier.parameters(), lr=LEARNING_RATE)
    min_length = min(MAX_COPIED_SYMBOLS, positions)
    for step in range(1, steps + 1):
        exponent = float(torch.rand((), generator=generator))
        length = round(min_length * (positions / min_length) ** exponent)
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
    """Return the nats per symbol and the accuracy on sequences of full length."""
    x, symbols = draw_examples(NUM_TEST_ROWS, positions, generator)
    y, _ = copier.layer(x)
    is_correct = copier.logits(y, symbols.shape[1]).argmax(-1) == symbols
    return float(copier.losses(y, symbols).mean()), float(is_correct.float().mean())


RECURRENT_ENCODERS = [
    name
    for choice in get_args(get_args(EncoderSpecification)[0])
    if issubclass(choice, RecurrentEncoder)
    for name in get_args(choice.model_fields["kind"].annotation)
]
"""The names of the encoders with a recurrent state."""
DEFAULT_ENCODERS = ("elman", "lstm", "gru", "clockwork", "mingru")
STATE_TAPS = dict.fromkeys(("lru", "mlstm", "hgrn2", "gated-deltanet", "rwkv7", "qrnn"), "*cell")
"""The taps of the recurrent state in encoders in which h, at the tap `*hidden`, is not the recurrent state."""
NUM_ROWS = 32
"""The number of examples over which norms are averaged."""
Norms: TypeAlias = tuple[float, ...]
"""The norm of ∂loss/∂h_t at each position, averaged over examples."""


@dataclass(frozen=True)
class EncoderGradients:
    """The gradient norms of an encoder before and after training, and its final loss in nats per symbol.

    Without training, the last three fields are None.
    """

    encoder: str
    untrained: Norms
    trained: Norms | None = None
    loss: float | None = None
    accuracy: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def state_gradients(
    layer: SequenceLayer, x: Float[Tensor, "B T d_in"], loss: Callable[[Tensor], Tensor], *, tap: str = "*hidden"
) -> Float[Tensor, "B T"]:
    """Return the norm of ∂loss/∂h_t for each row and position.

    Args:
        layer: A recurrent layer, or a stack of recurrent layers.
        x: The inputs.
        loss: A function from the outputs (B, T, d_out) to the losses of the rows (B,), or to the sum of the losses.
        tap: The pattern of the taps that record h_t; if several match, h_t is their concatenation.

    Raises:
        EnsueError: No tap matches, or a tap does not record one state for each position, from left to right.
    """
    with torch.enable_grad(), watch(layer, tap) as recorded:
        y, _ = layer(x)
        total = loss(y).sum()
    if not layer.is_causal or any([h_t.dim() for h_t in states] != [2] * x.shape[1] for states in recorded.values()):
        raise EnsueError(f"{type(layer).__name__} has no state that is carried from position to position")
    options: Any = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}  # zeros, not None
    gradients = (torch.autograd.grad(total, states, **options) for states in recorded.values())
    squares = [torch.stack([gradient.square().sum(-1) for gradient in tensors], dim=1) for tensors in gradients]
    return torch.stack(squares).sum(0).sqrt()


def build_layer(encoder: str, *, d_model: int) -> SequenceLayer:
    """Return an encoder for the copy task. Raise EnsueError for an unknown name or an invalid size."""
    if encoder not in RECURRENT_ENCODERS:
        problem = f'no encoder "{encoder}"{nearest(encoder, RECURRENT_ENCODERS)}'
        if encoder in ENCODER_KINDS:
            problem = f'the encoder "{encoder}" has no recurrent state'
        raise EnsueError(f"{problem}; known: {', '.join(RECURRENT_ENCODERS)}")
    try:
        specification: Any = TypeAdapter(EncoderSpecification).validate_python({"kind": encoder, "d_model": d_model})
    except ValidationError as error:
        raise EnsueError(f"{encoder} {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return build_encoder(specification, d_in=D_INPUT)


@restore_process()
def encoder_gradients(
    encoder: str, *, positions: int = 200, steps: int = 1000, seed: int = 0, d_model: int = 64,
    stepped: Callable[[int, float], None] = lambda step, loss: None,
) -> EncoderGradients:  # fmt: skip
    """Return the gradient norms of an encoder on the copy task, before and after training.

    Args:
        encoder: The name of a recurrent encoder.
        positions: The number of positions from the first symbol to the first cue.
        steps: The number of training steps, or 0 for no training.
        seed: The seed of weights, data and training.
        d_model: The number of features of the state.
        stepped: A function that is called with the number and the loss of each step.

    Raises:
        EnsueError: The encoder is unknown or not recurrent, or the size is invalid.
        TrainingError: The loss or a gradient is not finite.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        copier = Copier(build_layer(encoder, d_model=d_model))
    generator = torch.Generator().manual_seed(seed)
    examples = draw_examples(NUM_ROWS, positions, generator)
    untrained = _measure_norms(copier, encoder, examples)
    if not steps:
        return EncoderGradients(encoder, untrained)
    try:
        train_copier(copier, positions=positions, steps=steps, generator=generator, stepped=stepped)
    except TrainingError as error:
        raise TrainingError(f"{encoder}: {error}") from None
    trained = _measure_norms(copier, encoder, examples)
    return EncoderGradients(encoder, untrained, trained, *score_copier(copier, positions, generator))


def _measure_norms(copier: Copier, encoder: str, examples: Examples) -> Norms:
    """Return the gradient norms. They are computed in float64, since small norms would underflow in float32."""
    double = copy.deepcopy(copier).double()
    tap = STATE_TAPS.get(encoder, "*hidden")
    norms = state_gradients(double.layer, examples.x.double(), lambda y: double.losses(y, examples.symbols), tap=tap)
    if not norms.isfinite().all():
        raise TrainingError(f"{encoder}: the gradients overflow float64")
    return tuple(norms.mean(0).tolist())


PICTURE_SUFFIXES = (".png", ".svg")
COLORS = (
    "#c1440e", "#1f4e79", "#2a8c6a", "#b8860b", "#7b4f9e", "#5a6470", "#d45087", "#3fa7d6", "#7a9a01", "#6b3e26",
)  # fmt: skip
DASHES = ("-", "--", ":")
"""The line styles. All colors are used with a style before the next style begins."""
MIN_NORM = 1e-38
"""The lower limit of the vertical axis, close to the smallest normal float32, the precision of training."""
LABEL_HEIGHT = 0.055
"""The height of a label as a fraction of the panel's height."""


def draw_gradients(gradients: Sequence[EncoderGradients], path: Path, *, steps: int) -> None:
    """Draw the norms over the distance to the last position, on a logarithmic scale, in a reproducible file."""
    panels = [("untrained", [measured.untrained for measured in gradients])]
    if trained := [measured.trained for measured in gradients if measured.trained]:
        panels.append((f"after {steps:,} steps of training", trained))
    names = [measured.encoder for measured in gradients]
    norms = [norm for _, lines in panels for line in lines for norm in line]
    limits = max(min(norms) / 3, MIN_NORM), max(max(norms) * 3, 10 * MIN_NORM)
    with atomic_output(path) as partial, picture(partial, (1.0 + 4.6 * len(panels), 4.4)) as figure:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for panel, (title, lines) in zip(axes, panels, strict=True):
            panel.set(title=title, xlabel="positions back from the last", yscale="log", ylim=limits)
            _draw_lines(panel, names, lines, limits)
        axes[0].set_ylabel("norm of ∂loss/∂h")


def _draw_lines(axes: Any, names: Sequence[str], lines: Sequence[Norms], limits: tuple[float, float]) -> None:
    for number, norms in enumerate(lines):
        reversed_norms = [max(norm, limits[0] / 100) for norm in reversed(norms)]
        axes.plot(range(len(reversed_norms)), reversed_norms, linewidth=1.6, **_choose_style(number))
    axes.grid(alpha=0.25)
    axes.set_xlim(0, max(1, len(lines[0]) - 1))
    axes.spines[["top", "right"]].set_visible(False)
    low, high = map(math.log, limits)
    heights = [(math.log(max(norms[0], limits[0])) - low) / (high - low) for norms in lines]  # 0 bottom, 1 top
    for number, height in enumerate(spread_labels(heights)):
        style = {"color": _choose_style(number)["color"], "fontsize": 9, "fontweight": "bold", "va": "center"}
        axes.text(1.02, height, names[number], transform=axes.transAxes, **style)


def _choose_style(number: int) -> dict[str, str]:
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number // len(COLORS) % len(DASHES)]}


def spread_labels(heights: Sequence[float]) -> list[float]:
    """Return the heights of labels after moving overlapping labels apart."""
    order = sorted(range(len(heights)), key=lambda label: heights[label])
    moved, lowest, highest = list(heights), -math.inf, 1.0
    for label in order:
        moved[label] = max(heights[label], lowest)
        lowest = moved[label] + LABEL_HEIGHT
    for label in reversed(order):
        moved[label] = min(moved[label], highest)
        highest = moved[label] - LABEL_HEIGHT
    return moved


def show_gradients(
    encoders: Sequence[str], out: Path, *, positions: int, steps: int, seed: int, d_model: int, threads: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Check the arguments, measure each encoder, write the picture, and print a table or a JSON object."""
    if out.suffix.lower() not in PICTURE_SUFFIXES:
        raise EnsueError(f"{out}: expected a picture, .png or .svg{nearest(out.suffix, PICTURE_SUFFIXES)}")
    names = list(dict.fromkeys(encoders)) or list(DEFAULT_ENCODERS)
    for name in names:
        build_layer(name, d_model=d_model)
    torch.set_num_threads(threads)
    settings = {"positions": positions, "steps": steps, "seed": seed, "d_model": d_model}
    bar = ProgressLine(Console(stderr=True, highlight=False, soft_wrap=True))
    try:
        gradients = [_measure_with_bar(name, bar, **settings) for name in names]
    finally:
        bar.stop()
    draw_gradients(gradients, out, steps=steps)
    if as_json:
        by_name = {measured.encoder: measured.as_json() for measured in gradients}
        print(json.dumps({**settings, "picture": str(out), "encoders": by_name}))
    else:
        table = table_of("encoder", right=("first / last, untrained", "trained", "nats per symbol", "accuracy"))
        for measured in gradients:
            ratios = [
                f"{norms[0] / norms[-1]:.1e}" if norms else "-" for norms in (measured.untrained, measured.trained)
            ]
            scores = ["-" if score is None else f"{score:.3f}" for score in (measured.loss, measured.accuracy)]
            table.add_row(measured.encoder, *ratios, *scores)
        Console(highlight=False).print(table)


def _measure_with_bar(name: str, bar: ProgressLine, *, steps: int, **settings: int) -> EncoderGradients:
    """Return the gradients of an encoder. Show a progress bar during training, and print a line after training."""

    def stepped(step: int, loss: float) -> None:
        if step < steps:  # the line after training reports the last step
            bar.show(f"{name}: step {step:,}", step / steps, f"loss {loss:.3f}")

    began = time.monotonic()
    gradients = encoder_gradients(name, steps=steps, **settings, stepped=stepped)
    bar.stop()
    if gradients.trained is not None:
        scores = f"loss {gradients.loss:.3f}, accuracy {gradients.accuracy:.3f}"
        bar.console.print(f"{name}: {steps:,} steps in {time.monotonic() - began:.1f} seconds, {scores}")
    return gradients
