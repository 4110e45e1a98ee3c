"""Generation of ids: reading prompts, then sampling or beam search.

The order of sampling is fixed: repetition penalty, temperature, top-k, top-p, min-p, random choice. Each filter
reads the renormalized distribution of the previous filter. The most probable token is never removed.

Recurrent and window models carry a state. A model with attention reads up to `model.context` tokens. When a row exceeds
the context, its newest `context // 2` tokens are read again from the initial state, which may have a memory. So every
token depends on at least half a context.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ensue.decode.beam import beam_search
from ensue.decode.sampling import Sampling
from ensue.decode.search import NOT_FINITE, BeamSearch, Hypothesis
from ensue.engine import CachedWeights
from ensue.errors import ContextError, EnsueError, check_integer
from ensue.interruption import check_interrupted
from ensue.models.language_model import pad_rows, read_prefixes
from ensue.models.modules import device_of, evaluating
from ensue.types import State, at_least_float32, select_rows, widest_float


class ReadState(NamedTuple):
    """The state of a model with a context, and the tokens that were read since the initial state."""

    inner: State
    """The state of the model."""
    initial: State
    """The state before the first token."""
    ids: Int[Tensor, "B W"]
    """The tokens since the initial state, then arbitrary padding."""
    lengths: Int[Tensor, " B"]


class Reader:
    """A model that reads prompts (`begin`) and single tokens (`step`) of texts of any length."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.context: int | None = getattr(model, "context", None)

    def begin(self, rows: Sequence[NDArray[np.int64]], state: State = None) -> tuple[State, Int[Tensor, " B"]]:
        """Read all tokens of each row except the last. Return the state, and the last tokens, which `step` reads."""
        device = device_of(self.model)
        read, last = [row[:-1] for row in rows], torch.tensor([int(row[-1]) for row in rows], device=device)
        if self.context is None and getattr(self.model, "adapts", False):
            are_equal = all(np.array_equal(row, rows[0]) for row in rows)
            count = 1 if are_equal else len(rows)
            state = self.model.finish_segments(read_prefixes(self.model, read[:count], state), last[:count])
            indices = torch.zeros(len(rows), dtype=torch.long) if are_equal else torch.arange(len(rows))
            return select_rows(state, indices.to(device)), last
        if self.context is None:
            return read_prefixes(self.model, read, state), last
        ids = torch.zeros(len(rows), self.context + 1, dtype=torch.long, device=device)
        return ReadState(read_prefixes(self.model, read, state), state, *_fill(ids, read)), last

    def step(self, ids_t: Int[Tensor, " B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """Read one token in each row. Return the scores of the next token, and the state."""
        if self.context is None:
            return self.model.step(ids_t, state)
        ids = state.ids.scatter(1, state.lengths.unsqueeze(1), ids_t.unsqueeze(1))
        inner, lengths = state.inner, state.lengths + 1
        if lengths.max() > self.context:
            half = max(1, self.context // 2)
            # the state of all rows is computed again, so rows within the context are read from their beginning
            starts = [0 if length <= self.context else length - half for length in lengths.tolist()]
            ends = zip(ids.cpu().numpy(), starts, lengths.tolist(), strict=True)
            rows = [row[start:end] for row, start, end in ends]
            inner = read_prefixes(self.model, [row[:-1] for row in rows], state.initial)
            ids, lengths = _fill(ids, rows)
        scores, inner = self.model.step(ids_t, inner)
        return scores, ReadState(inner, state.initial, ids, lengths)


def _fill(like: Tensor, rows: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Return the tokens of `rows` in a tensor with the shape of `like`, and their lengths."""
    read, mask = pad_rows(rows)
    ids = torch.zeros_like(like)
    ids[:, : read.shape[1]] = torch.from_numpy(read).to(like.device)
    return ids, torch.from_numpy(mask.sum(1)).to(like.device)


class Ensemble(nn.Module):
    """An ensemble of M models with a `step`: `P(w) = 1/M Σ_m P_m(w)` at every step.

    The state is a tuple of the states of the models. The caller checks that the vocabularies are equal. Raises
    EnsueError if the sizes of the vocabularies differ.
    """

    returns_log_probabilities = True

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__()
        assert models, "no model"
        are_modules = all(isinstance(model, nn.Module) for model in models)
        self.models: Any = nn.ModuleList(models) if are_modules else tuple(models)  # a CompiledDecoder is not a module
        sizes = {size for model in models if (size := getattr(model, "vocabulary_size", None)) is not None}
        if len(sizes) > 1:
            raise EnsueError(f"expected equal vocabularies, found {' and '.join(map(str, sorted(sizes)))} symbols")

    def step(self, ids_t: Int[Tensor, " R"], state: State = None) -> tuple[Float[Tensor, "R V"], State]:
        """Read one token in each row. Return the log-probabilities of the next token, and the states."""
        states = [None] * len(self.models) if state is None else state
        steps = [model.step(ids_t, before) for model, before in zip(self.models, states, strict=True)]
        log_p = [scores.log_softmax(-1, dtype=at_least_float32(scores.dtype)) for scores, _ in steps]
        return torch.stack(log_p).logsumexp(0) - math.log(len(steps)), tuple(after for _, after in steps)


def next_ids(
    logits: Float[Tensor, "B V"], sampling: Sampling, generator: torch.Generator, *,
    seen: Bool[Tensor, "B V"] | None = None,
) -> Int[Tensor, " B"]:  # fmt: skip
    """Return a token for each row. Raises EnsueError for logits that are not finite."""
    if (0 * logits.amax(-1)).any():  # NaN unless the largest logit is finite
        raise EnsueError(NOT_FINITE)
    if seen is not None and sampling.repetition_penalty != 1:
        logits = penalize(logits, seen, sampling.repetition_penalty)
    return logits.argmax(-1) if sampling.is_greedy else draw(filter_logits(logits, sampling), generator)


def penalize(logits: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"], penalty: float) -> Float[Tensor, "B V"]:
    """Return the logits with the repetition penalty on `seen` tokens; a penalty below 1 raises their logits."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def filter_logits(logits: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """Return the logits after temperature and filters; removed tokens have -∞. The temperature must not be 0."""
    if sampling.temperature != 1:
        # the largest logit becomes 0, so that division by a small temperature cannot overflow
        logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        values, ids = logits.topk(sampling.top_k)
        logits = torch.full_like(logits, -math.inf).scatter_(-1, ids, values)
    if sampling.top_p is not None and sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p:
        threshold = logits.amax(-1, keepdim=True) + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < threshold, -math.inf)
    return logits


def keep_top_p(logits: Float[Tensor, "B V"], p: float | Float[Tensor, "B 1"]) -> Float[Tensor, "B V"]:
    """Keep the smallest set of most probable tokens whose probabilities reach `p`; set other logits to -∞."""
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = values.softmax(-1, dtype=widest_float(values.device))
    is_cut = (probabilities.cumsum(-1) - probabilities) >= p
    is_cut[..., 0] = False  # neither rounding nor a p near 0 may remove the most probable token
    return torch.empty_like(logits).scatter_(-1, ids, values.masked_fill(is_cut, -math.inf))


def draw(logits: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
    """Draw an id for each row from `softmax(logits)`, by inversion.

    The result is the first id at which the cumulative probability reaches u times the total, with a random u in (0, 1]
    for each row. So an id of probability 0 is never drawn.
    """
    u = 1 - torch.rand(len(logits), 1, generator=generator, dtype=widest_float(logits.device), device=logits.device)
    return draw_with(logits, u)


def draw_with(logits: Float[Tensor, "B V"], u: Float[Tensor, "B 1"]) -> Int[Tensor, " B"]:
    """Return the ids of `draw` for random numbers `u` in (0, 1]."""
    sums = logits.softmax(-1).cumsum(-1, dtype=u.dtype)
    return torch.searchsorted(sums, u * sums[:, -1:]).squeeze(1)


MAX_TOKENS = 1_000_000_000
"""The maximum number of tokens of a sample."""


def generate_ids(
    model: Any, prompts: Sequence[ArrayLike], *, max_tokens: int, start_id: int, sampling: Sampling | None = None,
    seed: int | None = None, end_id: int | None = None, state: State = None,
) -> Iterator[Int[Tensor, " B"]]:  # fmt: skip
    """Yield the next token of each of B prompts. A row repeats its `end_id` until all rows have reached `end_id`."""
    assert len(prompts) > 0, "no prompt"
    check_integer("max_tokens", max_tokens, 0, MAX_TOKENS)
    if seed is not None:
        check_integer("seed", seed, 0, (1 << 63) - 1)
    rows = prepend_start(model, prompts, start_id)
    is_used = None
    if sampling is not None and sampling.repetition_penalty != 1:
        is_used = torch.zeros(len(prompts), model.vocabulary_size, dtype=torch.bool, device=device_of(model))
        for row, prompt in zip(is_used, prompts, strict=True):
            row[torch.from_numpy(np.asarray(prompt, np.int64).reshape(-1))] = True
    generator = torch.Generator(device_of(model))
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    return islice(_sample_tokens(model, rows, state, sampling or Sampling(), generator, is_used, end_id), max_tokens)


def search_ids(
    model: Any, prompts: Sequence[ArrayLike], *, search: BeamSearch, start_id: int
) -> list[list[Hypothesis]]:
    """Return the best continuations of prompts by beam search, with the arguments of `generate_ids`."""
    rows, reader = prepend_start(model, prompts, start_id), Reader(model)
    with torch.inference_mode(), evaluating(model):
        return beam_search(reader, *reader.begin(rows), end_id=None, search=search)


def prepend_start(model: Any, prompts: Sequence[ArrayLike], start_id: int) -> list[NDArray[np.int64]]:
    """Return the prompts with `start_id` before each prompt that is shorter than the context.

    Raises ContextError for a prompt that is longer than the context.
    """
    context = getattr(model, "context", None)
    rows = [np.asarray(prompt, np.int64).reshape(-1) for prompt in prompts]
    if context is not None and (longest := max(map(len, rows))) > context:
        raise ContextError(f"the prompt has {longest} tokens; this model's context has {context}")
    return [row if len(row) == context else np.concatenate(([start_id], row)) for row in rows]


@torch.inference_mode()
def _sample_tokens(
    model: Any, rows: list[NDArray[np.int64]], state: State, sampling: Sampling, generator: torch.Generator,
    seen: Tensor | None, end_id: int | None,
) -> Iterator[Tensor]:  # fmt: skip
    reader, weights, versions = Reader(model), CachedWeights(), list[int]()
    parameters = [parameter for parameter in model.parameters() if not parameter.is_inference()]
    with evaluating(model):
        state, ids = reader.begin(rows, state)
        has_ended = torch.zeros_like(ids, dtype=torch.bool)
        while end_id is None or not has_ended.all():
            check_interrupted()
            before, versions = versions, [parameter._version for parameter in parameters]
            weights = weights if before == versions else CachedWeights()  # the caller has changed the model
            with weights.used():
                scores, state = reader.step(ids, state)
            ids = next_ids(scores, sampling, generator, seen=seen)
            if end_id is not None:
                ids = ids.masked_fill(has_ended, end_id)
                has_ended = ids == end_id
            yield ids
            if seen is not None:
                seen.scatter_(1, ids.unsqueeze(1), True)
