"""Tests of models, with the texts and encoders that they share."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from ensue.data.compact_texts import StringColumn, Texts
from ensue.models.specification import Directions, EncoderSpecification
from ensue.models.word_features import Words
from ensue.tasks.words.data import EncodedTexts
from ensue.text.lexicon import Lexicon
from layer_tables import layer_tables

CPU = torch.device("cpu")
TEXTS = ["the old bird sees", "Anna", "", "a Bird 1984 xyz", "the the old bird sees the old bird"]
"""Rows of different lengths: one of a single word, one empty, one with unknown words, one with repeated words."""

ENCODERS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "size": 2, "d_model": 6},
    "windows": {"kind": "window", "size": 3, "d_model": 6, "num_layers": 3}, "elman": {"kind": "elman", "d_model": 6},
    "lstm": {"kind": "lstm", "d_model": 6, "num_layers": 2}, "peephole": {"kind": "peephole", "d_model": 6},
    "coupled": {"kind": "coupled", "d_model": 6}, "layer-norm": {"kind": "layer-norm", "d_model": 6},
    "projected": {"kind": "projected", "d_model": 6, "d_cell": 8},
    "gru": {"kind": "gru", "d_model": 6, "reset": "before"},
    "clockwork": {"kind": "clockwork", "d_model": 6, "periods": [1, 2, 4]},
    "depth-gated": {"kind": "depth-gated", "d_model": 6, "num_layers": 2},
    "grid": {"kind": "grid", "d_model": 6, "num_layers": 2},
    "mingru": {"kind": "mingru", "d_model": 6, "num_layers": 2},
    "minlstm": {"kind": "minlstm", "d_model": 6, "num_layers": 2}, "lru": {"kind": "lru", "d_model": 6},
    "mogrifier": {"kind": "mogrifier", "d_model": 6}, "lem": {"kind": "lem", "d_model": 6},
    "slstm": {"kind": "slstm", "d_model": 6, "num_heads": 2}, "mlstm": {"kind": "mlstm", "d_model": 6, "num_heads": 2},
    "hgrn2": {"kind": "hgrn2", "d_model": 6, "num_heads": 2},
    "gated-deltanet": {"kind": "gated-deltanet", "d_model": 6, "num_heads": 2},
    "rwkv7": {"kind": "rwkv7", "d_model": 6, "num_heads": 2}, "qrnn": {"kind": "qrnn", "d_model": 6, "size": 3},
    "learned": {"kind": "transformer", "d_model": 6, "num_heads": 2, "positions": "learned"},
    "sinusoidal": {"kind": "transformer", "d_model": 6, "num_heads": 2, "positions": "sinusoidal", "norm": "post"},
    "rotary": {"kind": "transformer", "d_model": 4, "num_heads": 2, "positions": "rotary", "num_layers": 2},
    "none": {"kind": "none"},
}  # fmt: skip

REPRESENTATIVE = {"windows", "lstm", "gru", "clockwork", "learned", "rotary", "none"}
"""One encoder of each kind that models of words treat differently; tests of encoders and layers cover the others."""


def some_slow(cases: Iterable[Sequence[Any]]) -> list[Any]:
    """Return parameters for cases that begin with an encoder's name; those not in REPRESENTATIVE are slow."""
    return [pytest.param(*case, marks=[] if case[0] in REPRESENTATIVE else [pytest.mark.slow]) for case in cases]


BY_NAME = some_slow([[name] for name in ENCODERS])
ONE_WAY = {"lstm", "learned", "none"}
"""The encoders that are also tested by default in one direction."""
ENCODER_DIRECTIONS = [
    *some_slow((name, True) for name in ENCODERS if name != "none"),
    *(pytest.param(name, False, marks=[] if name in ONE_WAY else [pytest.mark.slow]) for name in ENCODERS),
]
"""Names of encoders, and whether they are bidirectional."""


def reader(name: str, **changes: Any) -> dict[str, Any]:
    """Return the arguments `encoder` and `directions` of model builders: both directions unless `changes` differ."""
    tables = layer_tables(ENCODERS[name] | changes)
    encoder = TypeAdapter(EncoderSpecification).validate_python(tables["encoder"])
    return {"encoder": encoder, "directions": Directions(**tables.get("directions", {}))}


def one_way(name: str, **changes: Any) -> dict[str, Any]:
    return reader(name, bidirectional=False, **changes)


def lexicon_of(**parts: Any) -> Lexicon:
    counts: dict[str, int] = {}
    for word in " ".join(TEXTS).split():
        counts[word] = counts.get(word, 0) + (1 if word == "xyz" else 2)
    return Lexicon.train(counts, min_count=2, **parts)


def texts_of(lexicon: Lexicon, texts: Sequence[str], columns: dict[str, list[str]] | None = None) -> EncodedTexts:
    """Return encoded texts; `columns` have a value for each word of all texts."""
    compact = Texts()
    for text in texts:
        compact.append(text.split())
    string_columns = {name: StringColumn() for name in columns or {}}
    for name, column in string_columns.items():
        column.extend((columns or {})[name])
    return EncodedTexts(lexicon, compact, string_columns)


def words_of(lexicon: Lexicon, texts: Sequence[str], columns: dict[str, list[str]] | None = None) -> Words:
    """Return the texts as one batch."""
    return texts_of(lexicon, texts, columns).batch(np.arange(len(texts)), CPU)
