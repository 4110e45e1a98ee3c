"""A language model for export: the logits after each token and the state, from tokens and a state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.models.language_model import LanguageModel
from ensue.tasks.contract.portable import Portable, PortableFunction, TensorForm, state_forms, state_from, state_tensors
from ensue.text.tokenizer import Tokenizer
from ensue.text.words import WordTokenizer


def portable(model: LanguageModel, tokenizer: Tokenizer) -> Portable:
    """The model as one function of `ids` and the leaves of the state, zeros before the first token."""
    forms = state_forms(model.init_state(2))

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        ids = torch.randint(model.vocabulary_size, (batch, length + 2))
        _, state = model(ids[:, :2])
        return {"ids": ids[:, 2:], **state_tensors(state)}

    read = PortableFunction("model", _read, {"ids": TensorForm(("batch", "time"), torch.int64), **forms}, sample)
    settings = {
        "start": tokenizer.start_id,
        "context": model.context,
        "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
        "symbols": [tokenizer.symbol(id) for id in range(tokenizer.vocabulary_size)],
    }
    return Portable(model, (read,), ("language",), settings, {"tokenizer.json": tokenizer})


def _read(model: LanguageModel, ids: Tensor, **state: Any) -> dict[str, Tensor]:
    logits, after = model(ids, state_from(model.init_state(1), state))
    return {"logits": logits, **state_tensors(after, "next")}
