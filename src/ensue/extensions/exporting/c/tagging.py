"""Export of taggers to C: word features, recurrent layers, and the best path of tags."""

from typing import Any, cast

from ensue.extensions.exporting.c import word_layers
from ensue.extensions.exporting.c.printing import CModel, Weights, add_label_names, c_array
from ensue.models.tag_heads import TagHead, ViterbiTagHead
from ensue.tasks.contract.description import ModelDescription, TagOutput, WordInput
from ensue.text.labels import Labels
from ensue.text.schemes import OUTSIDE, PLACES, SCHEMES, position

MAX_ROWS = 16
"""The maximum number of sentences in a batch."""


def tagger_source(description: ModelDescription, weights: Weights) -> CModel:
    """Return the C source of a tagger. Raises `Untraceable` or ValueError for an unsupported model."""
    words, model = cast(WordInput, description.input), cast(Any, description.model)
    lexicon, labels = words.lexicon, cast(TagOutput, description.output).labels
    if not isinstance(labels, Labels):
        raise ValueError("it predicts several labels per word; --format onnx supports them")
    if model.repeats:
        raise ValueError("its head pools over the occurrences of a word (head.repeats)")
    if words.has_other_layers:
        raise ValueError("features from another model are unsupported")
    if lexicon.columns:
        raise ValueError(f'it reads the column "{next(iter(lexicon.columns))}" of the data')
    weights.constants["ROWS"] = MAX_ROWS
    steps = word_layers.LayerSteps(weights, MAX_ROWS)
    tables = word_layers.layer_table(model.layers, steps)
    splitter = word_layers.splitter_templates(words.splitter)
    templates = ["stored.h", "rows.h", "utf8.h", *splitter, "cutting.h", "lines.h"]
    features = word_layers.feature_templates(model.features, lexicon, steps)
    templates += ["layers.h", *(step.text for step in steps.steps), tables, *features]
    weights.constants |= steps.sizes()
    tag_head(model.head, weights)
    names = label_names(labels)
    templates += ["emissions.h", "paths.h", label_tables(labels, names, weights), "labels.h"]
    return CModel(
        [*templates, "tagging.h"],
        interface="tagging",
        values={"LABELS": len(names), "SESSION": 96 if weights.precision == "int8" else 192},  # less memory for int8
        usage="""    ./NAME < text.txt                    the label of each word; a line is a sentence
    ./NAME --probabilities < text.txt    with the probability of each label
""",
    )


def tag_head(head: TagHead, weights: Weights) -> None:
    """Add the weights and constants of a tag head."""
    chain, constants = head.chain(), weights.constants
    num_padded = head.num_tags + -head.num_tags % word_layers.BLOCK_COLUMNS
    constants["MAX_HOISTED"] = max(constants["MAX_HOISTED"], num_padded)
    constants |= {
        "TAGS": head.num_tags, "WIDE_TAGS": num_padded, "HAS_CHAIN": int(chain is not None),
        "AT_HEAD": weights.add_matrix(word_layers.pad_columns(head.projection.weight)),
        "AT_BIAS": weights.add(head.projection.bias), "LOG_SOFTMAX": int(isinstance(head, ViterbiTagHead)),
    }  # fmt: skip
    for name, scores in zip(("START", "PAIRS", "END"), chain or (), strict=False):
        constants[f"AT_{name}"] = weights.add(scores)


def label_names(labels: Labels) -> list[str]:
    """Return the output labels. For spans these are "O", and each letter of the scheme with each class."""
    if labels.scheme is None:
        return list(labels.tags.symbols)
    classes = _classes(labels)
    letters = SCHEMES[labels.scheme].distinct
    return [OUTSIDE, *(f"{letter}-{name}" if name else letter for name in classes for letter in letters)]


def _classes(labels: Labels) -> list[str]:
    return sorted({name for kind, name in map(position, labels.tags.symbols) if kind != OUTSIDE})


def label_tables(labels: Labels, names: list[str], weights: Weights) -> str:
    """Return the tables of labels.h, and add its constants."""
    constants = weights.constants
    constants |= {"HAS_SPANS": int(labels.has_spans), **add_label_names(names, weights)}
    groups = labels.label_groups(labels.tags.symbols), labels.label_groups(names)
    text = c_array("int", "TAG_GROUPS", groups[0]) + c_array("int", "LABEL_GROUPS", groups[1])
    if labels.scheme is not None:
        letters = SCHEMES[labels.scheme]
        order = letters.distinct.index
        for name, letter in zip(("FIRST", "INSIDE", "LAST", "SINGLE"), letters.places, strict=True):
            constants[f"{name}_LETTER"] = order(letter)
        for name, letter in (("AFTER", letters.after_touching), ("BEFORE", letters.before_touching)):
            constants[f"{name}_LETTER"] = order(letter) if letter else -1
        constants["LETTERS"] = len(letters.distinct)
        kinds, classes = [position(tag) for tag in labels.tags.symbols], _classes(labels)
        text += c_array("uint8_t", "KINDS", [(OUTSIDE + PLACES).index(kind) for kind, _ in kinds])
        text += c_array("uint32_t", "CLASSES", [classes.index(name) if kind != OUTSIDE else 0 for kind, name in kinds])
    return text
