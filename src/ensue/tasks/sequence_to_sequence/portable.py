"""A model from sequence to sequence elsewhere: the state after a source, and one step of the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ensue.models.encoder_decoder import TextModel
from ensue.tasks.portable import (
    Portable,
    PortableFunction,
    TensorForm,
    mask_of,
    no_export,
    sample_lengths,
    state_forms,
    state_from,
    state_tensors,
)
from ensue.tasks.sequence_to_sequence.decoding import MORE_TOKENS
from ensue.tasks.sequence_to_sequence.length import most_written
from ensue.tasks.sequence_to_sequence.texts import BETWEEN_NAMES
from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.text.words import WordTokenizer

if TYPE_CHECKING:
    from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline


def portable(pipeline: SequencePipeline) -> Portable:
    """The model as two functions. What a source is remembered by does not change; it is an input of each step."""
    model, coder = pipeline.model, pipeline.coder
    if pipeline.contextual[0].origins:
        raise no_export(pipeline.run, "what other runs compute (features.contextual)")
    like = _begun(model, 3)

    def source(batch: int, length: int) -> dict[str, Tensor]:
        ids = torch.randint(coder.source.vocabulary_size, (batch, length))
        return {"ids": ids, "lengths": sample_lengths(batch, length)}

    def written(batch: int, length: int) -> dict[str, Tensor]:
        given = source(batch, length)
        state = model.begin(given["ids"], mask_of(given["ids"], given["lengths"]))
        ids = torch.randint(model.vocabulary_size, (2, batch))
        _, state = model.step(ids[0], state)
        return {"ids": ids[1], **state_tensors(state)}

    def stepped(model: TextModel, ids: Tensor, **state: Any) -> dict[str, Tensor]:
        scores, after = model.step(ids, state_from(like, state))
        tensors = state_tensors(after, "state")
        changed = {name: tensor for name, tensor in tensors.items() if tensor is not state[name]}
        return {"scores": scores, **{name.replace("state", "next", 1): tensor for name, tensor in changed.items()}}

    read = {"ids": TensorForm(("batch", "source"), torch.int64), "lengths": TensorForm(("batch",), torch.int64)}
    step = {"ids": TensorForm(("batch",), torch.int64), **state_forms(like, _begun(model, 4))}
    functions = (PortableFunction("encoder", _read, read, source), PortableFunction("decoder", stepped, step, written))
    search = pipeline.search
    settings = {
        "source": _side(coder.source),
        "target": _side(coder.target),
        "names": sorted(coder.names),
        "between_names": BETWEEN_NAMES.pattern,
        "source_tokens": coder.source_tokens,
        "copies": coder.copies,
        "ratio": pipeline.ratio,
        "more": MORE_TOKENS + search.min_tokens,
        "most": min(search.max_tokens, most_written(pipeline.recipe.decoder) or search.max_tokens),
        "beams": search.width,
        "length_penalty": search.length_penalty,
        "min_tokens": search.min_tokens,
        "no_repeat_ngram": search.no_repeat_ngram,
        "forbidden": [phrase[0] for phrase in search.forbidden],
    }
    tokenizers = {"source.json": coder.source.tokenizer, "target.json": coder.target.tokenizer}
    return Portable(model, functions, ("translator", "written"), settings, tokenizers)


def _begun(model: TextModel, length: int) -> Any:
    return model.begin(torch.zeros(2, length, dtype=torch.int64))


def _read(model: TextModel, ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    return state_tensors(model.begin(ids, mask_of(ids, lengths)))


def _side(coder: TokenizerWithSpecials) -> dict[str, Any]:
    tokenizer = coder.tokenizer
    return {
        "before": tokenizer.before,
        "names": {name: tokenizer.vocabulary_size + place for place, name in enumerate(coder.names.symbols)},
        "special": dict(zip(SPECIAL, range(tokenizer.vocabulary_size, coder.vocabulary_size), strict=False)),
        "size": coder.vocabulary_size,
        "unknown": tokenizer.unknown_id,
        "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
    }
