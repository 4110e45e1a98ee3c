"""Generation: reads prompts, samples a token for each row, and feeds it back. It works on ids, not on text.

A recurrent or window model carries its state, and reads a prompt of any length in constant memory. Attention reads up
to `model.context` tokens. When a row has filled its context, the last half of it (with the newest token) is read again
as a new beginning. So every token depends on at least half a context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ensue.arguments import check_whole
from ensue.decode.sampling import Sampling, next_ids
from ensue.errors import ContextError
from ensue.models.language_model import LanguageModel
from ensue.models.modules import count_parameters, device_of, evaluating
from ensue.models.prompts import read_prefixes
from ensue.types import State

MAX_TOKENS = 1_000_000_000
KERNEL_ROWS, KERNEL_PARAMETERS = 32, 1 << 20
"""From this many rows on, and up to this many parameters, `forward` for one token is faster than `step`. Measured for
LSTMs on a CPU (benchmarks/generation.py); for other layers it makes no difference.
"""


def generate_ids(
    model: LanguageModel,
    prompts: Sequence[ArrayLike],
    *,
    max_tokens: int,
    start_id: int,
    sampling: Sampling | None = None,
    seed: int | None = None,
) -> Iterator[Int[Tensor, " B"]]:
    """Samples `max_tokens` tokens after each of `prompts` (B arrays of ids); yields one token for each row at a time.

    A prompt is the beginning of a text, so `start_id` is read before it, as in scoring. The same seed gives the same
    tokens on the same machine; without a seed they differ each time. Raises EnsueError for a negative length or seed,
    and ContextError for a prompt that is longer than the context.
    """
    assert len(prompts) > 0, "no prompt"
    check_whole("max_tokens", max_tokens, 0, MAX_TOKENS)
    if seed is not None:
        check_whole("seed", seed, 0, (1 << 63) - 1)
    read = [np.asarray(prompt, np.int64).reshape(-1) for prompt in prompts]
    longest = max(map(len, read))
    if model.context is not None and longest > model.context:
        raise ContextError(f"the prompt has {longest} tokens; this model's context has {model.context}")
    return _sampled(model, read, max_tokens=max_tokens, start_id=start_id, sampling=sampling or Sampling(), seed=seed)


@torch.inference_mode()
def _sampled(
    model: LanguageModel,
    prompts: list[NDArray[np.int64]],
    *,
    max_tokens: int,
    start_id: int,
    sampling: Sampling,
    seed: int | None,
) -> Iterator[Tensor]:
    generator = torch.Generator(device_of(model))
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    seen = _seen(model, prompts) if sampling.repetition_penalty != 1 else None
    rows = _Carried(model) if model.context is None else _Windowed(model)
    with evaluating(model):
        logits = rows.read([_begun(model, prompt, start_id) for prompt in prompts]) if max_tokens else torch.empty(0)
        for position in range(max_tokens):
            ids = next_ids(logits, sampling, generator, seen=seen)
            yield ids
            if seen is not None:
                seen.scatter_(1, ids.unsqueeze(1), True)
            if position + 1 < max_tokens:
                logits = rows.advance(ids)


def _begun(model: LanguageModel, prompt: NDArray[np.int64], start_id: int) -> NDArray[np.int64]:
    """The prompt with `start_id` before it; a prompt that fills the context has no room for that."""
    return prompt if len(prompt) == model.context else np.concatenate(([start_id], prompt))


def _seen(model: LanguageModel, prompts: list[NDArray[np.int64]]) -> Tensor:
    """Which tokens each prompt contains, (B, V)."""
    seen = torch.zeros(len(prompts), model.vocabulary_size, dtype=torch.bool)
    for row, prompt in zip(seen, prompts, strict=True):
        row[torch.from_numpy(prompt)] = True
    return seen.to(device_of(model))


class _Carried:
    """The rows of a model that carries its state: one step for each token."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.state: State = None
        self.is_small = count_parameters(model) <= KERNEL_PARAMETERS

    def read(self, rows: list[NDArray[np.int64]]) -> Float[Tensor, "B V"]:
        last, self.state = read_prefixes(self.model, rows)
        logits: Tensor = self.model.head(last)
        return logits

    def advance(self, ids: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        if len(ids) >= KERNEL_ROWS and self.is_small:
            columns, self.state = self.model.forward(ids.unsqueeze(1), self.state)
            return columns.squeeze(1)
        logits, self.state = self.model.step(ids, self.state)
        return logits


class _Windowed(_Carried):
    """The rows of an attention model, with the tokens that their state was computed from."""

    def read(self, rows: list[NDArray[np.int64]]) -> Float[Tensor, "B V"]:
        self.windows = [row.tolist() for row in rows]
        return super().read(rows)

    def advance(self, ids: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        context = self.model.context
        assert context is not None
        for window, id in zip(self.windows, ids.tolist(), strict=True):
            window.append(id)
        if max(map(len, self.windows)) <= context:
            return super().advance(ids)
        half = max(1, context // 2)
        # rows that are not full are read again too, completely, since a state holds all rows
        return self.read([np.array(window[-half:] if len(window) > context else window) for window in self.windows])
