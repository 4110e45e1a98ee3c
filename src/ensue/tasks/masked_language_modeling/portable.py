"""A masked language model for export: vectors of tokens, and with a head the logits of what stands there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.contract.portable import Portable, PortableFunction, TensorForm, mask_of, sample_lengths
from ensue.tasks.masked_language_modeling.recipe import SentencesTable
from ensue.text.masked_tokens import MaskedTokenizer


def portable(model: MaskedLanguageModel, coder: MaskedTokenizer, sentences: SentencesTable) -> Portable:
    """The model as one function of texts between `[CLS]` and `[SEP]`."""

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        shape = (batch, min(length, model.context))
        return {"ids": torch.randint(model.vocabulary_size, shape), "lengths": sample_lengths(*shape)}

    inputs = {"ids": TensorForm(("batch", "time"), torch.int64), "lengths": TensorForm(("batch",), torch.int64)}
    settings = {
        "context": model.context,
        "begin": coder.begin_id,
        "end": coder.separator_id,
        "mask": coder.mask_id,
        "before": coder.tokenizer.before,
        "joins_blanks": coder.tokenizer.joins_blanks,
        "inside": coder.tokenizer.inside,
        "fills": model.head is not None,
        "forbidden": [coder.padding_id, *coder.special_ids],
        "begins_word": coder.begins_word.tolist(),
        "pooling": sentences.pooling,
        "unit_length": sentences.unit_length,
        "symbols": [coder.symbol(id) for id in range(coder.vocabulary_size)],
    }
    read = PortableFunction("model", _read, inputs, sample)
    return Portable(model, (read,), ("masked", "subwords"), settings, {"tokenizer.json": coder.tokenizer})


def _read(model: Any, ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    masked: MaskedLanguageModel = model
    mask = mask_of(ids, lengths)
    h = masked(ids, mask)
    found = {"vectors": h} if masked.head is None else {"vectors": h, "logits": masked.head(h)}
    return {name: tensor.masked_fill(~mask.unsqueeze(-1), 0.0) for name, tensor in found.items()}
