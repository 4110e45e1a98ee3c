"""Generation: reads prompts, and samples a token for each row, or searches for the best ones. It works on ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ensue.arguments import check_whole
from ensue.decode.beam import beam_search
from ensue.decode.hypotheses import Hypothesis
from ensue.decode.next_token import next_ids
from ensue.decode.reader import Reader
from ensue.decode.sampling import Sampling
from ensue.decode.search import BeamSearch
from ensue.errors import ContextError
from ensue.interruption import check_interrupted
from ensue.models.modules import device_of, evaluating
from ensue.types import State

MAX_TOKENS = 1_000_000_000


def generate_ids(
    model: Any,
    prompts: Sequence[ArrayLike],
    *,
    max_tokens: int,
    start_id: int,
    sampling: Sampling | None = None,
    seed: int | None = None,
    end_id: int | None = None,
    state: State = None,
) -> Iterator[Int[Tensor, " B"]]:
    """Samples `max_tokens` tokens after each of `prompts` (B arrays of ids); yields one token for each row at a time.

    A prompt is the beginning of a text, so `start_id` is read before it, as in scoring. With an `end_id`, a row that
    has ended repeats it, and after the token with which the last row ends nothing more comes. `state` is that before
    the first token: a decoder's, with its memory. The same seed gives the same tokens on the same machine; without a
    seed they differ each time. `model` is a language model, or another that `Reader` steps. Raises EnsueError for a
    negative length or seed, and ContextError for a prompt that is longer than the context.
    """
    assert len(prompts) > 0, "no prompt"
    check_whole("max_tokens", max_tokens, 0, MAX_TOKENS)
    if seed is not None:
        check_whole("seed", seed, 0, (1 << 63) - 1)
    rows = begun(model, prompts, start_id)
    seen = _seen(model, prompts) if sampling is not None and sampling.repetition_penalty != 1 else None
    generator = torch.Generator(device_of(model))
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    return islice(_sampled(model, rows, state, sampling or Sampling(), generator, seen, end_id), max_tokens)


def search_ids(
    model: Any,
    prompts: Sequence[ArrayLike],
    *,
    search: BeamSearch,
    start_id: int,
    end_id: int | None = None,
    state: State = None,
) -> list[list[Hypothesis]]:
    """The most probable continuations of each of `prompts`, by beam search; as `generate_ids` for all else."""
    rows = begun(model, prompts, start_id)
    reader = Reader(model)
    with torch.inference_mode(), evaluating(model):
        state, starts = reader.begin(rows, state)
        return beam_search(reader, state, starts, end_id=end_id, search=search)


def begun(model: Any, prompts: Sequence[ArrayLike], start_id: int) -> list[NDArray[np.int64]]:
    """The prompts with `start_id` before them; a prompt that fills the context has no room for that.

    Raises ContextError for a prompt that is longer than the context.
    """
    context = getattr(model, "context", None)
    rows = [np.asarray(prompt, np.int64).reshape(-1) for prompt in prompts]
    longest = max(map(len, rows))
    if context is not None and longest > context:
        raise ContextError(f"the prompt has {longest} tokens; this model's context has {context}")
    return [row if len(row) == context else np.concatenate(([start_id], row)) for row in rows]


@torch.inference_mode()
def _sampled(
    model: Any,
    rows: list[NDArray[np.int64]],
    state: State,
    sampling: Sampling,
    generator: torch.Generator,
    seen: Tensor | None,
    end_id: int | None,
) -> Iterator[Tensor]:
    reader = Reader(model)
    with evaluating(model):
        state, ids = reader.begin(rows, state)
        has_ended = torch.zeros_like(ids, dtype=torch.bool)
        while end_id is None or not has_ended.all():
            check_interrupted()
            scores, state = reader.step(ids, state)
            ids = next_ids(scores, sampling, generator, seen=seen)
            if end_id is not None:
                ids = ids.masked_fill(has_ended, end_id)
                has_ended = ids == end_id
            yield ids
            if seen is not None:
                seen.scatter_(1, ids.unsqueeze(1), True)


def _seen(model: Any, prompts: Sequence[ArrayLike]) -> Tensor:
    """Which tokens each prompt contains, (B, V)."""
    seen = torch.zeros(len(prompts), model.vocabulary_size, dtype=torch.bool)
    for row, prompt in zip(seen, prompts, strict=True):
        row[torch.from_numpy(np.asarray(prompt, np.int64).reshape(-1))] = True
    return seen.to(device_of(model))
