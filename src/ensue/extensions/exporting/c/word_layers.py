"""Export of word features and recurrent layers to C."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from ensue.extensions.exporting.c.expressions import CharacterSets, lowercase_tables, splitter_tables
from ensue.extensions.exporting.c.precision import F32
from ensue.extensions.exporting.c.printing import PrintedStep, Weights, add_hash_table, print_step
from ensue.models.word_features import WordFeatures
from ensue.nn import Bidirectional, CharacterCNN, CharacterLSTM, Residual, SequenceLayer, Stack, VariationalDropout
from ensue.nn.draws import ElementDropout
from ensue.text.lexicon import MAX_CHARACTERS_READ, Lexicon
from ensue.types import leaves

BLOCK_COLUMNS = 32
"""The number of columns of a narrow matrix is padded to a multiple of this number."""
MAX_WORD_CHARACTERS = 1000
"""The maximum length of a word in the vocabulary."""
MERGES = {"concatenate": 0, "sum": 1, "product": 2, "mean": 3}  # the constants of layers.h


@cache
def splitter_templates(splitter: str) -> list[str]:
    """Return the templates and tables of a splitter of texts into words."""
    sets = CharacterSets()
    lower, tables = lowercase_tables(sets), splitter_tables(splitter, sets)
    sets.add_named("DIGITS", "LETTERS", "CAPITALS")
    return [sets.text(), lower, "unicode.h", "expression.h", tables, "splitting.h"]


def feature_templates(features: WordFeatures, lexicon: Lexicon, steps: "LayerSteps") -> list[str]:
    """Return the templates of word features, and add their constants. Raises ValueError for a word that is too long."""
    weights, constants, tables = steps.weights, steps.weights.constants, []
    constants |= {
        "LOWERCASE": int(lexicon.lowercase), "FOLD_DIGITS": int(lexicon.fold_digits),
        "MAX_AFFIX": lexicon.longest_affix, "MAX_CHARACTERS": MAX_CHARACTERS_READ, "D_FEATURES": features.d_out,
        "D_WORD": 0, "D_AFFIX": 0, "D_SHAPE": 0, "D_VECTOR": 0, "D_CHARACTERS": 0, "NUM_TRAINED": 0,
    }  # fmt: skip
    for name, table, vocabulary in (
        ("WORD", features.words, lexicon.words),
        ("AFFIX", features.affixes, lexicon.affixes),
        ("SHAPE", features.shapes, lexicon.shapes),
    ):
        if table is not None and vocabulary is not None:
            constants |= {f"D_{name}": table.d_out, f"AT_{name}_VECTORS": weights.add_rows(table.weight * table.scale)}
            tables.append(add_hash_table(f"KNOWN_{name}", vocabulary, weights))
    if features.vectors is not None and lexicon.vectors is not None:
        trained, frozen = features.vectors.weight, features.kept_vectors
        halves = torch.empty(0) if frozen is None else frozen.detach()
        if frozen is not None and weights.precision != F32:
            trained, halves = torch.cat([trained, halves.float()]), halves[:0]
        constants |= {
            "D_VECTOR": trained.shape[1], "NUM_TRAINED": len(trained), "AT_TRAINED": weights.add_rows(trained),
            "AT_FROZEN": weights.add(halves.numpy().astype("<f2").tobytes()),
        }  # fmt: skip
        tables.append(add_hash_table("KNOWN_VECTOR", lexicon.vectors, weights))
    vocabularies = [vocabulary for vocabulary in (lexicon.words, lexicon.vectors) if vocabulary is not None]
    longest = max(len(word) for vocabulary in vocabularies for word in vocabulary.symbols)
    if longest > MAX_WORD_CHARACTERS:
        raise ValueError(f"its vocabulary has a word of {longest:,} characters")
    constants["MAX_POINTS"] = 2 * max(MAX_CHARACTERS_READ, lexicon.longest_affix, longest // 2 + 1)
    character_templates = ["no_characters.h"]
    if features.characters is not None and lexicon.characters is not None:
        character_templates = _character_templates(features.characters, steps)
        tables.append(add_hash_table("KNOWN_CHARACTER", lexicon.characters, weights))
    return ["lexicon.h", "".join(tables), "forms.h", *character_templates, "word_features.h"]


def _character_templates(characters: CharacterCNN | CharacterLSTM, steps: "LayerSteps") -> list[str]:
    weights, constants, table = steps.weights, steps.weights.constants, characters.embedding
    constants |= {
        "D_CHARACTER": characters.d_character, "D_CHARACTERS": characters.d_out,
        "AT_CHARACTER_VECTORS": weights.add_rows(table.weight * table.scale),
    }  # fmt: skip
    if isinstance(characters, CharacterLSTM):
        passes = f"{steps.add(characters.rightward)}, {steps.add(characters.leftward)}"
        return [
            "letters.h",
            f"static const layer SPELLING = {{{passes}, 2, 0, 0, {characters.d_out}}};\n",
            "letters_lstm.h",
        ]
    (width,), (filters,) = characters.widths, cast("Iterable[nn.Linear]", characters.filters)
    constants |= {"FILTER_WIDTH": width, "WIDE_FILTERS": characters.d_out + -characters.d_out % BLOCK_COLUMNS}
    constants |= {
        "AT_FILTERS": weights.add_matrix(pad_columns(filters.weight)), "AT_FILTER_BIAS": weights.add(filters.bias),
    }  # fmt: skip
    return ["letters.h", "letters_cnn.h"]


def pad_columns(weight: Tensor) -> Tensor:
    """Return the transposed matrix of a linear layer, padded with zero columns to a multiple of BLOCK_COLUMNS."""
    return nn.functional.pad(weight.t(), (0, -len(weight) % BLOCK_COLUMNS))


@dataclass
class LayerSteps:
    """The printed steps of unidirectional layers."""

    weights: Weights
    rows: int
    steps: list[PrintedStep] = field(default_factory=list)
    layers: list[Any] = field(default_factory=list)

    def add(self, layer: Any) -> str:
        """Print the step of a layer, and return its struct `pass` in C."""
        number = str(len(self.steps))
        step = print_step(layer, self.weights, rows=self.rows, number=number)
        self.steps.append(step)
        self.layers.append(layer)
        sizes = ", ".join(map(str, (layer.d_in, layer.d_out, step.hoisted, step.leaves, int(step.reads_input))))
        return f"{{hoist{number}, advance{number}, {sizes}, {self.weights.add(step.initial)}}}"

    def sizes(self) -> dict[str, int]:
        """Return the constants with the maximum sizes of all steps."""
        sizes = {name: max(getattr(step, name) for step in self.steps) for name in ("hoisted", "leaves", "work")}
        sizes |= {
            "input": max(layer.d_in for layer in self.layers),
            "output": max(layer.d_out for layer in self.layers),
        }
        return {f"MAX_{name.upper()}": size for name, size in sizes.items()}


def layer_table(layers: SequenceLayer, steps: LayerSteps) -> str:
    """Return the table of recurrent layers in C, and add its constants. Raises ValueError for other layers."""
    rows, widths, constants = [], [], steps.weights.constants
    for layer in iterate_layers(layers):
        inner = layer.layer if isinstance(layer, Residual) else layer
        directions = [inner.rightward, inner.leftward] if isinstance(inner, Bidirectional) else [inner]
        if not all(child.is_causal and any(True for _ in leaves(child.init_state(1))) for child in directions):
            raise ValueError("its layers are not recurrent")
        merge = MERGES[inner.merge] if isinstance(inner, Bidirectional) else 0
        passes, count = [*map(steps.add, directions)] * (2 // len(directions)), len(directions)
        constants.setdefault("FIRST_HOISTED", sum(step.hoisted for step in steps.steps))
        rows.append(f"    {{{', '.join(passes)}, {count}, {merge}, {int(inner is not layer)}, {inner.d_out}}}")
        widths.append(count * directions[0].d_out)
    constants |= {"NUM_LAYERS": len(rows), "D_HEAD": layers.d_out, "MAX_LAYER": max(widths)}
    return "static const layer LAYERS[] = {\n" + ",\n".join(rows) + "};\n"


def iterate_layers(layers: SequenceLayer) -> Iterator[SequenceLayer]:
    """Yield the layers of nested stacks, except dropout."""
    if isinstance(layers, Stack):
        for layer in layers:
            yield from iterate_layers(layer)
    elif not isinstance(layers, VariationalDropout) and not isinstance(getattr(layers, "module", None), ElementDropout):
        yield layers
