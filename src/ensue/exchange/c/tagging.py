"""A tagger of words as C: its vocabularies, the vectors of words, recurrent layers, and the choice of tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from ensue.exchange.c.expressions import Sets, lowercase, splitter_tables
from ensue.exchange.c.printing import Parts, PrintedStep, Weights, c_array, printed_step, vocabulary
from ensue.models.tag_heads import TagHead, ViterbiTagHead
from ensue.models.word_features import WordFeatures
from ensue.nn import (
    Bidirectional,
    CharacterCNN,
    CharacterLSTM,
    Residual,
    SequenceLayer,
    Stack,
    VariationalDropout,
)
from ensue.nn.dropout import ElementDropout
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.labels import Labels
from ensue.text.lexicon import MOST_CHARACTERS, Lexicon
from ensue.text.schemes import OUTSIDE, PLACES, SCHEMES, position
from ensue.types import leaves

ROWS = 16
"""The sentences that are read side by side."""
WIDE = 32
"""Columns that C multiplies at once: a matrix of few columns gets some more."""
LONGEST = 1000
"""The most characters of a known word."""
MERGES = {"concatenate": 0, "sum": 1, "product": 2, "mean": 3}


def tagger_parts(pipeline: LabelingPipeline, weights: Weights) -> Parts:
    """The parts of a tagger. Raises `Untraceable` for layers whose step cannot be printed, and ValueError for a tagger
    that has no C.
    """
    model, lexicon, labels = pipeline.model, pipeline.reader.lexicon, pipeline.labels
    if not isinstance(labels, Labels):
        raise ValueError("it gives several labels for each word")
    if model.repeats:
        raise ValueError("its head compares the places of a word (head.repeats)")
    if pipeline.subwords is not None or pipeline.contextual.origins:
        raise ValueError("it reads the layers of another model")
    if lexicon.columns:
        raise ValueError(f'it reads the column "{next(iter(lexicon.columns))}" of the data')
    constants: dict[str, Any] = {"ROWS": ROWS}
    steps = _Steps(weights)
    pieces = ["rows.h", "utf8.h", *_characters(pipeline.splitter)]
    tables = _layers(model.layers, steps, constants)
    features = _features(model.features, lexicon, steps, constants)
    pieces += ["layers.h", *(step.text for step in steps.steps), tables, *features]
    for name in ("hoisted", "leaves", "work"):
        constants[f"MOST_{name.upper()}"] = max(getattr(step, name) for step in steps.steps)
    constants |= {"MOST_INPUT": max(steps.widths_in), "MOST_OUTPUT": max(steps.widths_out)}
    _head(model.head, weights, constants)
    names = label_names(labels)
    pieces += ["paths.h", label_tables(labels, names, weights, constants), "labels.h"]
    return Parts(
        constants,
        [*pieces, "tagging.h"],
        interface="tagging",
        numbers={"LABELS": len(names)},
        usage="""    ./NAME < text.txt           the label of each word; a line is a sentence
    ./NAME --probabilities < text.txt    with the probability of each label
""",
    )


@cache
def _characters(splitter: str) -> list[str]:
    """The pieces that know characters and cut texts."""
    sets = Sets()
    lower, tables = lowercase(sets), splitter_tables(splitter, sets)
    sets.name("DIGITS", "LETTERS", "CAPITALS")
    return [sets.text(), lower, "unicode.h", "expression.h", tables, "splitting.h", "cutting.h"]


def _features(features: WordFeatures, lexicon: Lexicon, steps: _Steps, constants: dict[str, Any]) -> list[str]:
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
            constants |= {f"D_{name}": table.d_out, f"AT_{name}_VECTORS": weights.add(table.weight * table.scale)}
            tables.append(vocabulary(f"KNOWN_{name}", known, weights))
    if features.vectors is not None and lexicon.vectors is not None:
        kept = b"" if features.kept_vectors is None else features.kept_vectors.detach().numpy().astype("<f2").tobytes()
        constants |= {
            "D_VECTOR": features.vectors.embedding_dim,
            "OWN_VECTORS": features.vectors.num_embeddings,
            "AT_GIVEN_VECTORS": weights.add(features.vectors.weight),
            "AT_KEPT_VECTORS": weights.add(kept),
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


def _spelling(characters: CharacterCNN | CharacterLSTM, steps: _Steps, constants: dict[str, Any]) -> list[str]:
    """The pieces that read the characters of a word."""
    weights, table = steps.weights, characters.embedding
    constants |= {
        "D_CHARACTER": characters.d_character,
        "D_CHARACTERS": characters.d_out,
        "AT_CHARACTER_VECTORS": weights.add(table.weight * table.scale),
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
    constants |= {"AT_FILTERS": weights.add(_widened(filters.weight)), "AT_FILTER_BIAS": weights.add(filters.bias)}
    return ["letters.h", "letters_cnn.h"]


def _widened(weight: Tensor) -> Tensor:
    """The matrix of a linear layer as C multiplies it, with columns of zeros up to a multiple of WIDE."""
    return nn.functional.pad(weight.t(), (0, -len(weight) % WIDE))


@dataclass
class _Steps:
    """The printed steps of layers that read one direction."""

    weights: Weights
    steps: list[PrintedStep] = field(default_factory=list)
    widths_in: list[int] = field(default_factory=list)
    widths_out: list[int] = field(default_factory=list)

    def add(self, layer: Any) -> str:
        """The `pass` of a layer, in C."""
        number = str(len(self.steps))
        step = printed_step(layer, self.weights, rows=ROWS, number=number)
        self.steps.append(step)
        self.widths_in.append(layer.d_in)
        self.widths_out.append(layer.d_out)
        sizes = layer.d_in, layer.d_out, step.hoisted, step.leaves, int(step.reads_input), self.weights.add(step.first)
        return f"{{hoist{number}, advance{number}, {', '.join(map(str, sizes))}}}"


def _layers(layers: SequenceLayer, steps: _Steps, constants: dict[str, Any]) -> str:
    """The table of all layers."""
    rows, widths = [], []
    for layer in _in_order(layers):
        inner = layer.layer if isinstance(layer, Residual) else layer
        both = [inner.rightward, inner.leftward] if isinstance(inner, Bidirectional) else [inner]
        if not all(each.is_causal and any(True for _ in leaves(each.init_state(1))) for each in both):
            raise ValueError("its layers are not recurrent")
        merge = MERGES[inner.merge] if isinstance(inner, Bidirectional) else 0
        passes = ", ".join(map(steps.add, both * (2 // len(both))))
        rows.append(f"    {{{passes}, {len(both)}, {merge}, {int(inner is not layer)}, {inner.d_out}}}")
        widths.append(len(both) * both[0].d_out)
    constants |= {"NUM_LAYERS": len(rows), "D_HEAD": layers.d_out, "MOST_LAYER": max(widths)}
    return "static const layer LAYERS[] = {\n" + ",\n".join(rows) + "};\n"


def _in_order(layers: SequenceLayer) -> Iterator[SequenceLayer]:
    """The layers of a stack without those that do nothing in use."""
    if isinstance(layers, Stack):
        for layer in layers:
            yield from _in_order(layer)
    elif not isinstance(layers, VariationalDropout) and not isinstance(getattr(layers, "module", None), ElementDropout):
        yield layers


def _head(head: TagHead, weights: Weights, constants: dict[str, Any]) -> None:
    """The scores of tags."""
    chain, wide = head.chain(), head.num_tags + -head.num_tags % WIDE
    constants["MOST_HOISTED"] = max(constants["MOST_HOISTED"], wide)
    constants |= {
        "TAGS": head.num_tags,
        "WIDE_TAGS": wide,
        "AT_HEAD": weights.add(_widened(head.projection.weight)),
        "AT_BIAS": weights.add(head.projection.bias),
        "HAS_CHAIN": int(chain is not None),
        "LOG_SOFTMAX": int(isinstance(head, ViterbiTagHead)),
    }
    for name, part in zip(("START", "PAIRS", "END"), chain or (), strict=False):
        constants[f"AT_{name}"] = weights.add(part)


def label_names(labels: Labels) -> list[str]:
    """The labels that can be written: of spans, outside, and class by class the letters of the scheme."""
    if labels.scheme is None:
        return list(labels.tags.symbols)
    classes = _classes(labels)
    return [
        OUTSIDE,
        *(f"{letter}-{name}" if name else letter for name in classes for letter in SCHEMES[labels.scheme].different),
    ]


def _classes(labels: Labels) -> list[str]:
    return sorted({name for kind, name in map(position, labels.tags.symbols) if kind != OUTSIDE})


def label_tables(labels: Labels, names: list[str], weights: Weights, constants: dict[str, Any]) -> str:
    """How tags are written as labels."""
    texts = [name.encode("utf-8", "surrogatepass") + b"\0" for name in names]
    constants |= {
        "HAS_SPANS": int(labels.has_spans),
        "AT_LABEL_STARTS": weights.add(np.cumsum([0, *map(len, texts)]).astype(np.uint32)),
        "AT_LABELS": weights.add(b"".join(texts)),
    }
    groups = labels.places_of(labels.tags.symbols), labels.places_of(names)
    text = c_array("int", "TAG_GROUPS", groups[0]) + c_array("int", "LABEL_GROUPS", groups[1])
    if labels.scheme is not None:
        letters = SCHEMES[labels.scheme]
        order = letters.different.index
        for name, letter in zip(("FIRST", "INSIDE", "LAST", "SINGLE"), letters.places, strict=True):
            constants[f"{name}_LETTER"] = order(letter)
        for name, letter in (("AFTER", letters.after_touching), ("BEFORE", letters.before_touching)):
            constants[f"{name}_LETTER"] = order(letter) if letter else -1
        constants["LETTERS"] = len(letters.different)
        kinds, classes = [position(tag) for tag in labels.tags.symbols], _classes(labels)
        text += c_array("uint8_t", "KINDS", [(OUTSIDE + PLACES).index(kind) for kind, _ in kinds])
        text += c_array("uint32_t", "CLASSES", [classes.index(name) if kind != OUTSIDE else 0 for kind, name in kinds])
    return text
