"""Alignments of outputs: for each token, the token of the source with the most attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged
from ensue.data.pairs import Pair
from ensue.decode.coverage import attention_taps
from ensue.models.encoder_decoder import TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.nn import CopyingHead, joined_steps, watch
from ensue.tasks.sequence_to_sequence.outputs import Output, Symbols, TokenAlignment
from ensue.tasks.sequence_to_sequence.sources import Sources
from ensue.tasks.sequence_to_sequence.task import EncodedPairs
from ensue.tasks.sequence_to_sequence.texts import PairCoder

ROWS, TOKENS = 32, 4_096
"""The most pairs, and the most tokens of them, that are read together. Watched attention keeps all its weights."""


def alignment_tap(model: nn.Module) -> str | None:
    """The weights that show what a model looks at: those of a head that copies, or of the last layer that attends to
    the source; None if nothing does.
    """
    copying = [f"{name}.weights" for name, part in model.named_modules() if isinstance(part, CopyingHead)]
    return next(reversed([*attention_taps(model), *copying]), None)


def align(
    model: TextModel,
    coder: PairCoder,
    answers: Sequence[tuple[Pair, Output]],
    sources: Sources,
) -> list[TokenAlignment | None]:
    """The alignment of each output with its source; None for a model without attention."""
    found: list[TokenAlignment | None] = [None] * len(answers)
    tap = alignment_tap(model)
    if tap is None:
        return found
    targets = Ragged.of(np.array([*output.ids, coder.target.end_id]) for _, output in answers)
    pairs = EncodedPairs(sources.rows, targets, sources.contextual[0])
    for rows in by_length(pairs.lengths, batch_size=ROWS, batch_tokens=TOKENS):
        for row, places in zip(rows.tolist(), _places(model, tap, pairs, rows, coder.target.begin_id), strict=True):
            (pair, output), (source,) = answers[row], sources.rows.padded(np.array([row])).tolist()
            read, written = Symbols(coder, pair.sources, is_source=True), Symbols(coder, pair.sources)
            found[row] = TokenAlignment(
                tuple(map(read.of, source)), tuple(map(written.of, output.ids)), tuple(places[: len(output.ids)])
            )
    return found


@torch.inference_mode()
def _places(model: TextModel, tap: str, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int) -> list[list[int]]:
    """For each token of the targets in these rows the place of the source token with the most attention."""
    batch = pairs.batch(rows, device_of(model))
    with evaluating(model), watch(model, tap) as seen:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        model.nats(right_shifted(batch.targets, begin_id), batch.targets, state)
    places: list[list[int]] = joined_steps(seen[tap], batch.targets.shape[1]).argmax(2).tolist()
    return places
