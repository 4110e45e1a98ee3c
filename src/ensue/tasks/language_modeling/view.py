"""The inside of a language model, in numbers: what it expected and why, units, attention (`page.py` draws it)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.errors import EnsueError
from ensue.inspection.attributions import Integrated, gradients_of, integrated_gradients, rows_together
from ensue.inspection.encoder import Attention, attention_of, over_text
from ensue.inspection.switched_off import SwitchedOff, switching_off
from ensue.inspection.token_page import NO_TOKEN, Predictions
from ensue.inspection.unit_page import THRESHOLD, Selection, select
from ensue.inspection.units import Units, correlations, named, pieces_of, properties_of, unit_taps
from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.nn import watch
from ensue.tasks.texts.scoring import CALL_LOGITS, scored_windows
from ensue.text.tokenizer import Tokenizer
from ensue.types import State, select_rows

MOST_EXPLAINED = 512
"""The most tokens before a place by which gradients are taken."""
INTEGRATED = (64, 32, 16, 8)
"""The numbers of tokens to integrate over: the first one for which the integral is exact is taken, or the last."""
POSITIONS = 4_096
"""About the most positions that are read for an integral."""


@dataclass(frozen=True)
class Explanation:
    """Of ln P(`token`) at a `place` of the text, counted from 0, by the N tokens before it, of which the nearest M are
    integrated over.

    `norms` (N,) are the lengths of the gradients by their features, `products` (N,) those of gradient and features.
    `integrated` has M shares, with zeros in place of these tokens as the baseline. `states` (N, d) are the gradients
    by the states behind each token. What was read before these tokens stays as it is.
    """

    place: int
    token: int
    norms: NDArray[np.float64]
    products: NDArray[np.float64]
    states: list[Units]
    integrated: Integrated


def explain(model: LanguageModel, inputs: NDArray[np.int64], place: int, token: int) -> Explanation | None:
    """The explanation of a place in evaluation mode; None for the first. `inputs` are the start symbol and the text."""
    begin = next(begin for begin, _, end in scored_windows(len(inputs), model.context) if place < end)
    near = min(MOST_EXPLAINED, place - begin)
    if not near:
        return None
    with torch.no_grad():
        x = model.features(torch.from_numpy(inputs[None, begin : place + 1].astype(np.int64)).to(device_of(model)))
    target = torch.tensor([token], device=x.device)

    def log_probability(h: Tensor) -> Tensor:
        return -model.head.nats(h[:, -1], target.expand(len(h)))

    def integrated(last: int) -> Integrated:
        before = _state(model, x[:, :-last])

        def output(x: Tensor) -> Tensor:
            state = select_rows(before, torch.zeros(len(x), dtype=torch.int64, device=x.device))
            return log_probability(model.layers(x, state)[0])

        rows = rows_together(model.layers, last)
        return integrated_gradients(output, x[:, -last:], points=max(48, POSITIONS // last), rows=rows)

    gradients = gradients_of(model.layers, x[:, -near:], log_probability, _state(model, x[:, :-near]))
    products = (gradients.inputs * x[0, -near:].double().cpu().numpy()).sum(1)
    for last in dict.fromkeys(min(near, most) for most in INTEGRATED):
        found = integrated(last)
        if found.is_exact:
            break
    norms = np.linalg.norm(gradients.inputs, axis=1)
    return Explanation(place, token, norms, products, gradients.states, found)


def _state(model: LanguageModel, x: Tensor) -> State:
    """The state after features (1, T, d), without their gradients."""
    with torch.no_grad():
        return model.layers(x)[1]


MOST_TOKENS = 5_000
"""The most tokens of a text that are looked at."""
MOST_VALUES = 1 << 26
"""The most values of units that are kept. A model with many units is looked at over fewer tokens."""
MOST_ATTENTION = 256
"""The most positions whose attention is kept."""


class Question(NamedTuple):
    """A token whose probability is to be explained: its `place`, from 0 (None: behind the text), and its id.

    None is the token that stands there, or behind the text the most probable one.
    """

    place: int | None = None
    token: int | None = None


@dataclass(frozen=True)
class LanguageView:
    """A text of T tokens in a language model, as far as it was looked at; all of it has `length` tokens.

    `predictions` are of T + 1 positions: the last one is behind the text. Units are (T, d): what they were when a token
    had been read. The attention (H, A, A) is that of the first A positions, whose first one is the start symbol.
    """

    tokens: tuple[str, ...]
    """The text of each token; together they are the text as the model knows it."""
    ids: NDArray[np.int64]
    length: int
    predictions: Predictions
    units: list[Units]
    properties: dict[str, NDArray[np.float64]]
    """By name what was worked out from the text (T,), and the surprisal."""
    correlations: list[NDArray[np.float64]]
    """For each of `units` (P, d): how far each unit follows each property. Empty for a short text."""
    attention: list[Attention]
    explanation: Explanation | None
    """Why a token was expected; None if nobody asked, or if no token is read before it."""
    off: tuple[SwitchedOff, ...]
    """Units that were switched off, to see what that changes."""
    predictions_without: Predictions | None
    """The predictions while these units were switched off; None if there are none."""

    def select(self, start: int, end: int, *, threshold: float = THRESHOLD) -> Selection:
        """The units that are on exactly over tokens `start` up to and without `end`, and other ranges like it."""
        return select(self.units, start, end, threshold=threshold)


def view_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    ids: NDArray[np.int64],
    *,
    asked: Question | None = None,
    off: Sequence[SwitchedOff] = (),
) -> LanguageView:
    """The view of a text of one token at least. A Transformer reads it in windows, as `score` does.

    Explained is what is `asked`. Raises EnsueError for a place that is not looked at, and for units that the model does
    not have.
    """
    with evaluating(model):
        with torch.inference_mode():
            of_one = _read(model, np.array([tokenizer.start_id])).values.values()
            num_units = max(1, sum(values.shape[1] for values in of_one))
            kept = ids[: min(MOST_TOKENS, max(1, MOST_VALUES // num_units))]
            inputs, targets = np.concatenate(([tokenizer.start_id], kept)), np.append(kept, NO_TOKEN)
            read = _read(model, inputs)
            predictions = _predictions(model, read.h, targets)
            first = inputs[: min(MOST_ATTENTION, model.context or MOST_ATTENTION)]
            attention = attention_of(model.layers, model.features(_on_device(model, first)))
            units = named({name: values[1:] for name, values in read.values.items()})
            without = None
            if off:
                with switching_off(model.layers, off, units):
                    without = _predictions(model, _read(model, inputs).h, targets)
        explanation = None if asked is None else explain(model, inputs, *_meant(asked, kept, predictions))
    assert attention is not None, "so many positions are always looked at"
    tokens = pieces_of(tokenizer.decoder(), kept.tolist())
    properties = properties_of(tokens) | {"surprisal": predictions.surprisals[:-1]}
    return LanguageView(
        tokens, kept, len(ids), predictions, units, properties, correlations(units, properties), attention,
        explanation, tuple(off), without,
    )  # fmt: skip


def _meant(asked: Question, ids: NDArray[np.int64], predictions: Predictions) -> tuple[int, int]:
    """The place and the token that are asked for."""
    place = len(ids) if asked.place is None else asked.place
    if place > len(ids):
        raise EnsueError(f"{len(ids):,} tokens are looked at; there is no token {place + 1:,}")
    stands = int(predictions.ids[place, 0]) if place == len(ids) else int(ids[place])
    return place, stands if asked.token is None else asked.token


class _Reading(NamedTuple):
    """The vectors that the head reads (N, d), and the values (N, d) at each tap, at N positions."""

    h: Tensor
    values: dict[str, NDArray[np.float32]]


def _read(model: LanguageModel, inputs: NDArray[np.int64]) -> _Reading:
    taps = unit_taps(model.layers)
    h: list[Tensor] = []
    values: dict[str, list[NDArray[np.float32]]] = {tap: [] for tap in taps}
    for begin, first, end in scored_windows(len(inputs), model.context):
        x = model.features(_on_device(model, inputs[begin:end]))
        watched: AbstractContextManager[dict[str, list[Tensor]]] = (
            watch(model.layers, *taps) if taps else nullcontext({})
        )
        with watched as seen:
            h.append(model.layers(x)[0][0, first - begin :])
        for tap, tensors in seen.items():
            values[tap].append(over_text(tensors)[first - begin :].float().cpu().numpy())
    return _Reading(torch.cat(h), {tap: np.concatenate(parts) for tap, parts in values.items()})


def _predictions(model: LanguageModel, h: Tensor, targets: NDArray[np.int64]) -> Predictions:
    size = max(1, CALL_LOGITS // model.vocabulary_size)
    starts = range(0, len(targets), size)
    parts = [Predictions.of(model.head(h[at : at + size]), targets[at : at + size]) for at in starts]
    return Predictions.joined(parts)


def _on_device(model: LanguageModel, ids: NDArray[np.int64]) -> Tensor:
    """The ids as one row (1, T)."""
    return torch.from_numpy(ids[None].astype(np.int64)).to(device_of(model))
