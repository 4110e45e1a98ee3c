"""What happens in an encoder–decoder with a source and an output, in numbers: attention, copying, the search.

`page.py` and `search_page.py` draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.models.encoder_decoder import EncoderDecoder, TextModel
from ensue.models.modules import device_of
from ensue.tasks.sequence_to_sequence.output_view import Copying, OutputView, Search, output_parts
from ensue.tasks.sequence_to_sequence.sources import Sources
from ensue.tasks.sequence_to_sequence.symbols import Symbols
from ensue.tasks.sequence_to_sequence.texts import PairCoder


@dataclass(frozen=True)
class SequenceView(OutputView):
    """A source of S tokens and an output, whose ends are tokens too."""

    source: tuple[str, ...]
    traces: list[Trace]
    heads: list[Attention] | None
    """The attention inside of the encoder; None for a source that is too long."""


@torch.inference_mode()
def view_output(
    models: Sequence[TextModel],
    coder: PairCoder,
    columns: Sequence[str],
    sources: Sources,
    ids: Sequence[int],
    *,
    text: str,
    search: Search | None,
) -> SequenceView:
    """The view of the output `ids` for the only one of `sources`, which is written token by token, as a search does."""
    source = sources.rows.values.astype(np.int64)
    reader, writer = Symbols(coder, columns, is_source=True), Symbols(coder, columns)
    parts, seen = output_parts(models, sources, ids, begin_id=coder.target.begin_id, symbol=writer.of)
    if seen.copying is not None:
        parts["copying"] = _copying(*seen.copying, source, ids, parts["log_probabilities"])
    known = np.where(source < coder.source.vocabulary_size, source, coder.source.tokenizer.unknown_id or 0)
    model, device = models[0], device_of(models[0])
    read = torch.tensor(known[None], device=device)
    embedding, encoder = model.readers
    layers = [part.batch(np.array([0]), device) for part in sources.contextual[0]]
    x = model.features(read, layers) if isinstance(model, EncoderDecoder) else embedding(read)
    return SequenceView(
        **parts, text=text, search=search, source=tuple(map(reader.of, source.tolist())),
        traces=traces_of(encoder, x), heads=attention_of(encoder, x),
    )  # fmt: skip


def _copying(
    weights: NDArray[np.float32],
    generates: NDArray[np.float64],
    source: NDArray[np.int64],
    ids: Sequence[int],
    log_probabilities: NDArray[np.float64],
) -> Copying:
    copied = (weights * (source[None] == np.array(ids)[:, None])).sum(1) * (1 - generates)
    probabilities = np.exp(log_probabilities)
    shares = np.divide(copied, probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return Copying(weights, generates, shares.clip(0, 1))
