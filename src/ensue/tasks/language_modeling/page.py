"""The page about a text in a language model: predictions, explanations, units, attention."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.errors import EnsueError, check_integer, check_type
from ensue.inspection import unit_page
from ensue.inspection.attributions import Attribution, choose_batch_size, differentiate, integrated_gradients
from ensue.inspection.encoder import LayerAttention, join_steps, record_attention
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.switched_off import SwitchedOff, parse_switched_off, switch_off
from ensue.inspection.token_page import MAX_SHOWN_TOKENS, NO_TOKEN, Predictions, make_title, show_token, text_section
from ensue.inspection.units import Units, build_units, correlate, decode_tokens, find_properties, unit_taps
from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.nn import SoftmaxHead, watch
from ensue.tasks.contract.task import on_device
from ensue.tasks.texts.scoring import MAX_CALL_LOGITS, scored_windows
from ensue.text.tokenizer import REPLACEMENT, UNKNOWN, CharacterTokenizer, Tokenizer, WordTokenizer
from ensue.types import State, select_rows

MAX_EXPLAINED_TOKENS = 512
"""The maximum number of tokens before a position whose gradients are computed."""
INTEGRATED_TOKENS = (64, 32, 16, 8)
"""The numbers of tokens to try for integrated gradients: the first with an exact integral is used, else the last."""


@dataclass(frozen=True)
class Explanation:
    """Attributions of the log-probability of a token to the N tokens before its position."""

    place: int
    """The position, from 0."""
    token: int
    """The id of the token."""
    norms: NDArray[np.float64]
    """The norms (N,) of the gradients with respect to the features."""
    products: NDArray[np.float64]
    """The dot products (N,) of the features and their gradients."""
    states: list[Units]
    """The gradients (N, d) with respect to the states."""
    integrated: Attribution
    """The integrated gradients for the last M of the tokens, with zeros as the baseline."""


def explain(model: LanguageModel, inputs: NDArray[np.int64], position: int, token: int) -> Explanation | None:
    """Return the explanation of a token at `position`; None at position 0. `inputs` begin with the start symbol."""
    begin = next(begin for begin, _, end in scored_windows(len(inputs), model.context) if position < end)
    num_before = min(MAX_EXPLAINED_TOKENS, position - begin)
    if not num_before:
        return None
    with torch.no_grad():
        x = model.features(on_device(inputs[None, begin : position + 1], device_of(model)))
    target = torch.tensor([token], device=x.device)

    def log_probability(h: Tensor) -> Tensor:
        return -model.head.nats(h[:, -1], target.expand(len(h)))

    def integrate(last: int) -> Attribution:
        before = _read_state(model, x[:, :-last])

        def output(x: Tensor) -> Tensor:
            state = select_rows(before, torch.zeros(len(x), dtype=torch.int64, device=x.device))
            return log_probability(model.layers(x, state)[0])

        return integrated_gradients(output, x[:, -last:], rows=choose_batch_size(model.layers, last))

    state = _read_state(model, x[:, :-num_before])
    gradients, state_gradients = differentiate(model.layers, x[:, -num_before:], log_probability, state)
    products = (gradients * x[0, -num_before:].double().cpu().numpy()).sum(1)
    for last in dict.fromkeys(min(num_before, count) for count in INTEGRATED_TOKENS):
        attribution = integrate(last)
        if attribution.is_exact:
            break
    norms = np.linalg.norm(gradients, axis=1)
    return Explanation(position, token, norms, products, state_gradients, attribution)


def _read_state(model: LanguageModel, x: Tensor) -> State:
    with torch.no_grad():
        return model.layers(x)[1]


MAX_TOKENS = 5_000
"""The maximum number of tokens of a text on a page."""
MAX_VALUES = 1 << 26
"""The maximum number of values of units; a model with more units has fewer tokens on its page."""
MAX_ATTENTION_POSITIONS = 256


class Question(NamedTuple):
    """A question: why is a token probable at a position?"""

    position: int | None = None
    """The position, from 0; None: after the text."""
    token: int | None = None
    """The id of the token; None: the token of the text at the position, or the most probable token after the text."""


@dataclass(frozen=True)
class LanguageView:
    """A text in a language model: the first T of its `length` tokens."""

    tokens: tuple[str, ...]
    """The decoded text of each token."""
    ids: NDArray[np.int64]
    length: int
    """The number of tokens of the complete text."""
    predictions: Predictions
    """The predictions at T + 1 positions; the last position is after the text."""
    units: list[Units]
    """The values (T, d) of units after each token."""
    properties: dict[str, NDArray[np.float64]]
    """The surprisal (T,) of tokens, and properties (T,) of the text, by name."""
    correlations: list[NDArray[np.float64]]
    """For each of `units` the correlations (P, d) of properties and units; empty for a short text."""
    attention: list[LayerAttention]
    """The attention (H, A, A) of the first A positions, which begin with the start symbol."""
    explanation: Explanation | None
    """The answer to a question; None without a question, or without a token before the position."""
    off: tuple[SwitchedOff, ...]
    """The units that are switched off for `predictions_without`."""
    predictions_without: Predictions | None
    """The predictions with the units `off` switched off; None without such units."""

    def select(self, start: int, end: int, *, threshold: float = unit_page.THRESHOLD) -> unit_page.Selection:
        """Return the units that are active at exactly the tokens [start, end), and other ranges of their activity."""
        return unit_page.select(self.units, start, end, threshold=threshold)


def view_text(
    model: LanguageModel, tokenizer: Tokenizer, ids: NDArray[np.int64], *, question: Question | None = None,
    off: Sequence[SwitchedOff] = (),
) -> LanguageView:  # fmt: skip
    """Return the view of a text of at least one token. A Transformer reads the text in the windows of `score`. Raise
    EnsueError for a position that is not in the view, and for a unit that the model lacks.
    """
    with evaluating(model):
        with torch.inference_mode():
            _, values_of_start = _read(model, np.array([tokenizer.start_id]))
            num_units = max(1, sum(values.shape[1] for values in values_of_start.values()))
            prefix = ids[: min(MAX_TOKENS, max(1, MAX_VALUES // num_units))]
            inputs, targets = np.concatenate(([tokenizer.start_id], prefix)), np.append(prefix, NO_TOKEN)
            h, values_of_taps = _read(model, inputs)
            predictions = predict_targets(model.head, h, targets)
            first = inputs[: min(MAX_ATTENTION_POSITIONS, model.context or MAX_ATTENTION_POSITIONS)]
            attention = record_attention(model.layers, model.features(on_device(first[None], device_of(model))))
            units = build_units({name: values[1:] for name, values in values_of_taps.items()})
            without = None
            if off:
                with switch_off(model.layers, off, units):
                    without = predict_targets(model.head, _read(model, inputs)[0], targets)
        explanation = None if question is None else explain(model, inputs, *_find_target(question, prefix, predictions))
    assert attention is not None, "MAX_ATTENTION_POSITIONS exceeds MAX_ATTENTION_WORDS"
    tokens = decode_tokens(tokenizer.decoder(), prefix.tolist())
    properties = find_properties(tokens) | {"surprisal": predictions.surprisals[:-1]}
    return LanguageView(
        tokens, prefix, len(ids), predictions, units, properties, correlate(units, properties), attention,
        explanation, tuple(off), without,
    )  # fmt: skip


def _find_target(question: Question, ids: NDArray[np.int64], predictions: Predictions) -> tuple[int, int]:
    """Return the position and the id of the token of a question."""
    position = len(ids) if question.position is None else question.position
    if position > len(ids):
        raise EnsueError(f"the page has {len(ids):,} tokens; there is no token {position + 1:,}")
    default = int(predictions.ids[position, 0]) if position == len(ids) else int(ids[position])
    return position, default if question.token is None else question.token


def _read(model: LanguageModel, inputs: NDArray[np.int64]) -> tuple[Tensor, dict[str, NDArray[np.float32]]]:
    """Return the input of the head (N, d) and the values (N, d) of each tap at N positions."""
    taps = unit_taps(model.layers)
    h: list[Tensor] = []
    values: dict[str, list[NDArray[np.float32]]] = {tap: [] for tap in taps}
    for begin, first, end in scored_windows(len(inputs), model.context):
        x = model.features(on_device(inputs[None, begin:end], device_of(model)))
        watched: Any = watch(model.layers, *taps) if taps else nullcontext({})
        with watched as outputs:
            h.append(model.layers(x)[0][0, first - begin :])
        for tap, tensors in outputs.items():
            values[tap].append(join_steps(tensors)[first - begin :].float().cpu().numpy())
    return torch.cat(h), {tap: np.concatenate(arrays) for tap, arrays in values.items()}


def predict_targets(head: SoftmaxHead, h: Tensor, targets: NDArray[np.int64]) -> Predictions:
    """Return the predictions of a head at T positions, whose features `h` are (T, d)."""
    size = max(1, MAX_CALL_LOGITS // head.vocabulary_size)
    slices = [slice(start, start + size) for start in range(0, len(targets), size)]
    return Predictions.joined([Predictions.of(head(h[rows]), targets[rows]) for rows in slices])


ABOUT = (
    "The stronger a token’s color, the more it surprised the model: full color is a guess among all tokens. Hover over "
    "a token to see the predictions for its position."
)


def language_sections(view: LanguageView, tokenizer: Tokenizer, tokens: Sequence[str]) -> list[Section]:
    """Return the sections of a page. `tokens` are the tokens of the view, with the text of each unknown token."""
    text = text_section(
        tokens, view.ids.tolist(), view.predictions, tokenizer, length=view.length,
        about=ABOUT + (" A unit’s color is its value after the token is read." if view.units else ""),
        units=view.units, correlations=view.correlations,
    )  # fmt: skip
    positions = ["<start>", *tokens]
    about = "The attention of the model when it has read a token and predicts the next token."
    return [
        text, question_section(view, tokenizer), *explanation_section(view, tokenizer), *switched_off_section(view),
        *unit_page.unit_sections(view.units, list(view.properties), view.correlations, tokens),
        *attention_section(view.attention, positions, length=view.length + 1, about=about),
    ]  # fmt: skip


def inspect_text(
    model: LanguageModel, tokenizer: Tokenizer, text: str, *, facts: Mapping[str, str], at: int | None = None,
    token: str | None = None, off: str = "",
) -> Inspection:  # fmt: skip
    """Return the page of `LanguagePipeline.inspect`. `facts` are the values at the top of the page by name."""
    check_type("the text", text, str, "a string")
    ids = tokenizer.encode(text).astype(np.int64)
    if not len(ids):
        raise EnsueError("nothing to inspect: the text has no tokens")
    question = _parse_question(tokenizer, len(ids), at, token)
    view = view_text(model, tokenizer, ids, question=question, off=parse_switched_off(off))
    sections = language_sections(view, tokenizer, _texts_of_tokens(view, tokenizer, text))
    unknown = int((view.ids == tokenizer.unknown_id).sum())
    nats, count = float(view.predictions.surprisals[:-1].mean()), len(view.tokens)
    text_facts = {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        "nats per token": f"{nats:.4f}",
        "perplexity": f"{np.exp(nats):.4g}",
    }
    return Inspection(make_title(text), view, {**facts, **text_facts}, sections)


def _texts_of_tokens(view: LanguageView, tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the tokens of a view. An unknown token is replaced by its text, if the tokenizer preserves the text."""
    substrings: list[str] = []
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        substrings = list(text) if isinstance(tokenizer, CharacterTokenizer) else tokenizer.substrings(text)
    if len(substrings) != view.length:  # lowercasing can change the number of characters
        return list(view.tokens)
    return [
        token.replace(UNKNOWN, substring).replace(REPLACEMENT, substring) if id == tokenizer.unknown_id else token
        for token, id, substring in zip(view.tokens, view.ids.tolist(), substrings, strict=False)
    ]


def _parse_question(tokenizer: Tokenizer, length: int, at: int | None, token: str | None) -> Question | None:
    if at is None and token is None:
        return None
    if at is not None:
        check_integer("at", at, 0, length)
        if at == 1:
            raise EnsueError("at is 1; no token is read before token 1, so it has no explanation")
    ids: list[int | None] = [None]
    if token is not None:
        check_type("the token", token, str, "a string")
        ids = tokenizer.encode(token).tolist()
        if len(ids) != 1:
            raise EnsueError(f'"{token:.40}" is {len(ids)} tokens of this model; expected one')
    return Question(at - 1 if at else None, ids[0])


MAX_ROWS = 15
"""The maximum number of rows of a table."""
MIN_NORM = 1e-30
"""The lower bound of norms of gradients before the logarithm."""


def question_section(view: LanguageView, tokenizer: Tokenizer) -> Section:
    """Return the section with a form for questions, filled in with the question and the units of the page."""
    explained, size = view.explanation, len(view.tokens)
    default = None if explained is None else [*view.ids, view.predictions.ids[-1, 0]][explained.place]
    values = {
        "size": size,
        "at": "" if explained is None else (explained.place + 1) % (size + 1),
        "token": "" if explained is None or explained.token == default else tokenizer.decode([explained.token]),
        "off": "; ".join(units.name for units in view.off),
    }
    return Section("Ask", "inspection/asks.html", values)


def explanation_section(view: LanguageView, tokenizer: Tokenizer) -> list[Section]:
    """Return the section with the attributions of the tokens before a position; empty without a question."""
    explained = view.explanation
    if explained is None:
        return []
    integrated = explained.integrated
    kinds = {
        "integrated gradients": integrated.shares,
        "gradient × input": explained.products,
        "length of the gradient": explained.norms,
    }
    inexact = (
        f"The sum of the shares has an error of up to {integrated.error:.3g}: the gradient changes too much along the "
        "path of integration."
    )
    values = {
        "token": show_token(tokenizer.symbol(explained.token)), "number": explained.place + 1,
        "value": integrated.value,
        "baseline": integrated.baseline, "difference": integrated.value - integrated.baseline,
        "integrated": len(integrated.shares), "note": "" if integrated.is_exact else inexact,
        "colors": {name: _align_to_tokens(explained.place, array) for name, array in kinds.items()},
        "rows": _list_rows(view, explained),
        "states": {
            "kinds": [units.name for units in explained.states],
            "lengths": [
                _align_to_tokens(explained.place, np.log10(np.maximum(np.linalg.norm(units.values, axis=1), MIN_NORM)))
                for units in explained.states
            ],
        },
    }  # fmt: skip
    return [Section("Why this token", "tasks/language_modeling/explanation.html", values)]


def _align_to_tokens(position: int, values: NDArray[np.float64]) -> list[float | None]:
    """Return the value of each shown token before a position; None for tokens without a finite value."""
    count = max(0, min(position, MAX_SHOWN_TOKENS) - (position - len(values)))
    numbers = [float(f"{value:.5g}") if math.isfinite(value) else None for value in values[:count].tolist()]
    return [*[None] * min(position - len(values), MAX_SHOWN_TOKENS), *numbers]


def _list_rows(view: LanguageView, explained: Explanation) -> list[dict[str, Any]]:
    shares, first = explained.integrated.shares, explained.place - len(explained.integrated.shares)
    offset = len(explained.norms) - len(shares)
    return [
        {
            "token": show_token(view.tokens[first + n]) or "·", "number": first + n + 1, "share": float(shares[n]),
            "product": float(explained.products[offset + n]), "norm": float(explained.norms[offset + n]),
        }
        for n in _find_largest(shares)
    ]  # fmt: skip


def switched_off_section(view: LanguageView) -> list[Section]:
    """Return the section with the changes of surprisal when units are switched off; empty without such units."""
    if view.predictions_without is None:
        return []
    before, after = view.predictions.surprisals[:-1], view.predictions_without.surprisals[:-1]
    changes = after - before
    values = {
        "off": [units.name for units in view.off], "before": float(before.mean()), "after": float(after.mean()),
        "colors": {"change of surprisal": _align_to_tokens(len(changes), changes)},
        "rows": [
            {
                "token": show_token(view.tokens[n]) or "·", "number": n + 1, "before": float(before[n]),
                "after": float(after[n]),
            }
            for n in _find_largest(changes)
        ],
    }  # fmt: skip
    return [Section("Without some units", "tasks/language_modeling/switched_off.html", values)]


def _find_largest(values: NDArray[np.float64]) -> list[int]:
    """Return the indices of the largest absolute values."""
    return np.argsort(-np.abs(values), kind="stable")[:MAX_ROWS].tolist()
