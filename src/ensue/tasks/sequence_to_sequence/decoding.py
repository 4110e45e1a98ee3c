"""Outputs for many sources: beam search in batches of sources of similar length."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import by_option_names
from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged
from ensue.decode.beam import beam_search
from ensue.decode.candidates import Candidate
from ensue.decode.hypotheses import Hypothesis, Phrase
from ensue.decode.reader import Ensemble
from ensue.decode.search import BeamSearch
from ensue.engine import caching
from ensue.models.compiled_decoder import compiled
from ensue.models.encoder_decoder import TextModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.contract.task import on_device
from ensue.tasks.sequence_to_sequence.recipe import SearchTable
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, Sources, surprisals
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.types import State

SEARCH_ROWS, SEARCH_TOKENS = 64, 4_096
"""The most sources, and the most tokens of them, that are searched together."""
SEARCH_HYPOTHESES = 1_000
"""The most hypotheses that go on together, unless one source alone has more: each has a score for every token."""
Constraint = tuple[Sequence[Phrase], Collection[Phrase]]
"""The phrases of tokens that an output must have, and those that it must not have."""
MORE_TOKENS = 10
"""So many tokens more than the training data's ratio says may an output have."""


def search_of(table: SearchTable, target: TokenizerWithSpecials, **changes: Any) -> BeamSearch:
    """The search of a recipe's table, in which only tokens of text may come. Raises EnsueError for what cannot be."""
    special = tuple((id,) for id in target.special_ids if id != target.end_id)
    names = by_option_names(BeamSearch)
    settings = {names[name]: value for name, value in table.model_dump().items()}
    search = BeamSearch(**settings, forbidden=special)
    return replace(search, **changes)


def most_tokens(sources: Sources, ratio: float, search: BeamSearch, bound: int | None = None) -> list[int]:
    """The most tokens of each output: `ratio` for each token of the source, and some more, but no more than `bound`."""
    most = np.ceil(sources.lengths * ratio).astype(np.int64) + MORE_TOKENS + search.min_tokens
    return [int(tokens) for tokens in np.minimum(most, min(search.max_tokens, bound or search.max_tokens))]


def most_rows(search: BeamSearch) -> int:
    """The most sources that are searched together."""
    return max(1, min(SEARCH_ROWS, SEARCH_HYPOTHESES // search.width))


def outputs(
    models: Sequence[TextModel],
    sources: Sources,
    search: BeamSearch,
    *,
    target: TokenizerWithSpecials,
    limits: Sequence[int],
    constraints: Sequence[Constraint] = (),
    record: list[Candidate] | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each source, in order. Several models decide together, by their mean probabilities.

    Each output has at most its `limits` tokens, and its `constraints`. For one source, all considered candidates are
    added to `record`.
    """
    best_of: list[list[Hypothesis]] = [[] for _ in range(len(sources))]
    with caching():
        for rows in by_length(sources.lengths, batch_size=most_rows(search), batch_tokens=SEARCH_TOKENS):
            model, state = begin(models, sources, rows, fast=not search.coverage_penalty)
            starts = torch.full((len(rows),), target.begin_id, device=device_of(models[0]))
            of_rows = [constraints[row] for row in rows.tolist()] if constraints else []
            best = beam_search(
                model, state, starts, end_id=target.end_id, search=search,
                max_tokens=[limits[row] for row in rows.tolist()], required=[required for required, _ in of_rows],
                forbidden=[sorted(forbidden) for _, forbidden in of_rows], record=record,
            )  # fmt: skip
            for row, hypotheses in zip(rows.tolist(), best, strict=True):
                best_of[row] = hypotheses
    return best_of


@torch.inference_mode()
def begin(
    models: Sequence[TextModel], sources: Sources, rows: NDArray[np.int64], *, fast: bool = False
) -> tuple[Any, State]:
    """A stepper, and its state after reading these sources. A `fast` one cannot be watched."""
    device, mask = device_of(models[0]), sources.rows.mask(rows)
    read = on_device(sources.rows.padded(rows), device)
    steppers: list[Any] = []
    states: list[State] = []
    for model, contextual in zip(models, sources.contextual, strict=True):
        layers = [part.batch(rows, device) for part in contextual]
        with evaluating(model):
            state = model.begin(read, None if mask is None else on_device(mask, device), layers)
        stepper, state = (compiled(model, state) if fast else None) or (model, state)
        steppers.append(stepper)
        states.append(state)
    return (steppers[0], states[0]) if len(models) == 1 else (Ensemble(steppers), tuple(states))


def mean_surprisals(
    models: Sequence[TextModel], sources: Sources, targets: Ragged, *, begin_id: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """`surprisals` of one model, or of several by the mean of their probabilities."""
    pairs = [EncodedPairs(sources.rows, targets, contextual) for contextual in sources.contextual]
    each = [surprisals(*one, begin_id=begin_id) for one in zip(models, pairs, strict=True)]
    for found in zip(*each, strict=True):
        (rows, nats), others = found[0], [nats for _, nats in found[1:]]
        yield rows, math.log(len(models)) - (-torch.stack([nats, *others])).logsumexp(0) if others else nats
