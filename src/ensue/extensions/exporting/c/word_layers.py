"""Words as C reads them: characters and splitters, the features of a word, and recurrent layers over words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from ensue.extensions.exporting.c.expressions import Sets, lowercase, splitter_tables
from ensue.extensions.exporting.c.precision import F32
from ensue.extensions.exporting.c.printing import PrintedStep, Weights, printed_step, vocabulary
from ensue.models.word_features import WordFeatures
from ensue.nn import Bidirectional, CharacterCNN, CharacterLSTM, Residual, SequenceLayer, Stack, VariationalDropout
from ensue.nn.dropout import ElementDropout
from ensue.text.lexicon import MOST_CHARACTERS, Lexicon
from ensue.types import leaves

WIDE = 32
"""Columns that C multiplies at once: a matrix of few columns gets some more."""
LONGEST = 1000
"""The most characters of a known word."""
MERGES = {"concatenate": 0, "sum": 1, "product": 2, "mean": 3}


@cache
def characters(splitter: str) -> list[str]:
    """The pieces that know characters and cut texts."""
    sets = Sets()
    lower, tables = lowercase(sets), splitter_tables(splitter, sets)
    sets.name("DIGITS", "LETTERS", "CAPITALS")
    return [sets.text(), lower, "unicode.h", "expression.h", tables, "splitting.h"]


def feature_pieces(features: WordFeatures, lexicon: Lexicon, steps: Steps, constants: dict[str, Any]) -> list[str]:
    """The pieces that read the features of a word, and their tables."""
    weights, tables = steps.weights, []
    constants |= {
        "LOWERCASE": int(lexicon.lowercase), "FOLD_DIGITS": int(lexicon.fold_digits),
        "LONGEST_AFFIX": lexicon.longest_affix, "MOST_CHARACTERS": MOST_CHARACTERS, "D_FEATURES": features.d_out,
        "D_WORD": 0, "D_AFFIX": 0, "D_SHAPE": 0, "D_VECTOR": 0, "D_CHARACTERS": 0, "OWN_VECTORS": 0,
    }  # fmt: skip
    for name, table, known in (
        ("WORD", features.words, lexicon.words),
        ("AFFIX", features.affixes, lexicon.affixes),
        ("SHAPE", features.shapes, lexicon.shapes),
    ):
        if table is not None and known is not None:
            constants |= {f"D_{name}": table.d_out, f"AT_{name}_VECTORS": weights.add_rows(table.weight * table.scale)}
            tables.append(vocabulary(f"KNOWN_{name}", known, weights))
    if features.vectors is not None and lexicon.vectors is not None:
        own, kept = features.vectors.weight, features.kept_vectors
        halves = torch.empty(0) if kept is None else kept.detach()
        if kept is not None and weights.precision != F32:
            own, halves = torch.cat([own, halves.float()]), halves[:0]
        constants |= {
            "D_VECTOR": own.shape[1],
            "OWN_VECTORS": len(own),
            "AT_GIVEN_VECTORS": weights.add_rows(own),
            "AT_KEPT_VECTORS": weights.add(halves.numpy().astype("<f2").tobytes()),
        }
        tables.append(vocabulary("KNOWN_VECTOR", lexicon.vectors, weights))
    longest = max(len(word) for part in (lexicon.words, lexicon.vectors) if part is not None for word in part.symbols)
    if longest > LONGEST:
        raise ValueError(f"it knows a word of {longest:,} characters")
    constants["MOST_POINTS"] = 2 * max(MOST_CHARACTERS, lexicon.longest_affix, longest // 2 + 1)
    spelling = ["no_characters.h"]
    if features.characters is not None and lexicon.characters is not None:
        spelling = _spelling(features.characters, steps, constants)
        tables.append(vocabulary("KNOWN_CHARACTER", lexicon.characters, weights))
    return ["lexicon.h", "".join(tables), "forms.h", *spelling, "word_features.h"]


def _spelling(characters: CharacterCNN | CharacterLSTM, steps: Steps, constants: dict[str, Any]) -> list[str]:
    """The pieces that read the characters of a word."""
    weights, table = steps.weights, characters.embedding
    constants |= {
        "D_CHARACTER": characters.d_character,
        "D_CHARACTERS": characters.d_out,
        "AT_CHARACTER_VECTORS": weights.add_rows(table.weight * table.scale),
    }
    if isinstance(characters, CharacterLSTM):
        passes = f"{steps.add(characters.rightward)}, {steps.add(characters.leftward)}"
        return [
            "letters.h",
            f"static const layer SPELLING = {{{passes}, 2, 0, 0, {characters.d_out}}};\n",
            "letters_lstm.h",
        ]
    (width,), (filters,) = characters.widths, cast("Iterable[nn.Linear]", characters.filters)
    constants |= {"FILTER_WIDTH": width, "WIDE_FILTERS": characters.d_out + -characters.d_out % WIDE}
    constants |= {
        "AT_FILTERS": weights.add_matrix(widened(filters.weight)),
        "AT_FILTER_BIAS": weights.add(filters.bias),
    }
    return ["letters.h", "letters_cnn.h"]


def widened(weight: Tensor) -> Tensor:
    """The matrix of a linear layer as C multiplies it, with columns of zeros up to a multiple of WIDE."""
    return nn.functional.pad(weight.t(), (0, -len(weight) % WIDE))


@dataclass
class Steps:
    """The printed steps of layers that read one direction."""

    weights: Weights
    rows: int
    steps: list[PrintedStep] = field(default_factory=list)
    widths_in: list[int] = field(default_factory=list)
    widths_out: list[int] = field(default_factory=list)

    def add(self, layer: Any) -> str:
        """The `pass` of a layer, in C."""
        number = str(len(self.steps))
        step = printed_step(layer, self.weights, rows=self.rows, number=number)
        self.steps.append(step)
        self.widths_in.append(layer.d_in)
        self.widths_out.append(layer.d_out)
        sizes = layer.d_in, layer.d_out, step.hoisted, step.leaves, int(step.reads_input), self.weights.add(step.first)
        return f"{{hoist{number}, advance{number}, {', '.join(map(str, sizes))}}}"

    def sizes(self) -> dict[str, int]:
        """The largest sizes of all, as constants."""
        parts = {part: max(getattr(step, part) for step in self.steps) for part in ("hoisted", "leaves", "work")}
        parts |= {"input": max(self.widths_in), "output": max(self.widths_out)}
        return {f"MOST_{part.upper()}": size for part, size in parts.items()}


def layer_table(layers: SequenceLayer, steps: Steps, constants: dict[str, Any]) -> str:
    """The table of all layers."""
    rows, widths = [], []
    for layer in in_order(layers):
        inner = layer.layer if isinstance(layer, Residual) else layer
        both = [inner.rightward, inner.leftward] if isinstance(inner, Bidirectional) else [inner]
        if not all(each.is_causal and any(True for _ in leaves(each.init_state(1))) for each in both):
            raise ValueError("its layers are not recurrent")
        merge = MERGES[inner.merge] if isinstance(inner, Bidirectional) else 0
        passes = [*map(steps.add, both)] * (2 // len(both))
        constants.setdefault("FIRST_HOISTED", sum(step.hoisted for step in steps.steps))
        rows.append(f"    {{{', '.join(passes)}, {len(both)}, {merge}, {int(inner is not layer)}, {inner.d_out}}}")
        widths.append(len(both) * both[0].d_out)
    constants |= {"NUM_LAYERS": len(rows), "D_HEAD": layers.d_out, "MOST_LAYER": max(widths)}
    return "static const layer LAYERS[] = {\n" + ",\n".join(rows) + "};\n"


def in_order(layers: SequenceLayer) -> Iterator[SequenceLayer]:
    """The layers of a stack without those that do nothing in use."""
    if isinstance(layers, Stack):
        for layer in layers:
            yield from in_order(layer)
    elif not isinstance(layers, VariationalDropout) and not isinstance(getattr(layers, "module", None), ElementDropout):
        yield layers
