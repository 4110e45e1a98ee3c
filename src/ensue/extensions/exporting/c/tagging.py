"""A tagger of words as C: vocabularies, vectors of words, recurrent layers and the best path of tags."""

from __future__ import annotations

from typing import Any, cast

from ensue.extensions.exporting.c.printing import Parts, Weights, c_array, label_texts
from ensue.extensions.exporting.c.word_layers import WIDE, Steps, characters, feature_pieces, layer_table, widened
from ensue.models.tag_heads import TagHead, ViterbiTagHead
from ensue.tasks.contract.description import ModelDescription, TagOutput, WordInput
from ensue.text.labels import Labels
from ensue.text.schemes import OUTSIDE, PLACES, SCHEMES, position

ROWS = 16
"""Sentences that are read side by side."""


def tagger_parts(description: ModelDescription, weights: Weights) -> Parts:
    """Return a tagger as C. Raises `Untraceable` or ValueError for a model that C does not have."""
    words, model = cast(WordInput, description.input), cast(Any, description.model)
    lexicon, labels = words.lexicon, cast(TagOutput, description.output).labels
    if not isinstance(labels, Labels):
        raise ValueError("it gives several labels for each word")
    if model.repeats:
        raise ValueError("its head compares the places of a word (head.repeats)")
    if words.has_other_layers:
        raise ValueError("it reads the layers of another model")
    if lexicon.columns:
        raise ValueError(f'it reads the column "{next(iter(lexicon.columns))}" of the data')
    constants: dict[str, Any] = {"ROWS": ROWS}
    steps = Steps(weights, ROWS)
    tables = layer_table(model.layers, steps, constants)
    pieces = ["stored.h", "rows.h", "utf8.h", *characters(words.splitter), "cutting.h", "lines.h"]
    features = feature_pieces(model.features, lexicon, steps, constants)
    pieces += ["layers.h", *(step.text for step in steps.steps), tables, *features]
    constants |= steps.sizes()
    tag_head(model.head, weights, constants)
    names = label_names(labels)
    pieces += ["emissions.h", "paths.h", label_tables(labels, names, weights, constants), "labels.h"]
    return Parts(
        constants,
        [*pieces, "tagging.h"],
        interface="tagging",
        values={"LABELS": len(names), "SESSION": 96 if weights.precision == "int8" else 192},  # int8 is to be small
        usage="""    ./NAME < text.txt           the label of each word; a line is a sentence
    ./NAME --probabilities < text.txt    with the probability of each label
""",
    )


def tag_head(head: TagHead, weights: Weights, constants: dict[str, Any]) -> None:
    """Add the matrix and the transition scores of a head of tags."""
    chain, wide = head.chain(), head.num_tags + -head.num_tags % WIDE
    constants["MOST_HOISTED"] = max(constants["MOST_HOISTED"], wide)
    constants |= {
        "TAGS": head.num_tags,
        "WIDE_TAGS": wide,
        "AT_HEAD": weights.add_matrix(widened(head.projection.weight)),
        "AT_BIAS": weights.add(head.projection.bias),
        "HAS_CHAIN": int(chain is not None),
        "LOG_SOFTMAX": int(isinstance(head, ViterbiTagHead)),
    }
    for name, part in zip(("START", "PAIRS", "END"), chain or (), strict=False):
        constants[f"AT_{name}"] = weights.add(part)


def label_names(labels: Labels) -> list[str]:
    """Return the labels of an output: of spans, outside, and class by class the letters of the scheme."""
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
    """Return the tables from tags to labels."""
    constants |= {"HAS_SPANS": int(labels.has_spans), **label_texts(names, weights)}
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
