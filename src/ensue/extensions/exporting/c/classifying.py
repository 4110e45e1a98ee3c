"""A classifier of texts, or of pairs of texts, as C: the bag of n-grams, and layers with a pooling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ensue.extensions.exporting.c.printing import Parts, Weights, label_texts, vocabulary
from ensue.extensions.exporting.c.word_layers import Steps, characters, feature_pieces, layer_table, widened
from ensue.models.classifier import Classifier
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.nn import (
    AttentionPooling,
    FirstPooling,
    LastPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    Poolings,
    SequenceLayer,
)
from ensue.tasks.contract.description import ClassOutput, ModelDescription, WordInput
from ensue.text.labels import Classes
from ensue.text.lexicon import Lexicon

_LARGEST = 1 << 31
USAGE = """\
    ./NAME < texts.txt                   label and probability of the text in each line
    ./NAME --at-least 0.9 < texts.txt    no label that is less probable
"""


def classifier_parts(description: ModelDescription, weights: Weights) -> Parts:
    """Return a classifier as C. Raises `Untraceable` or ValueError for a model that C does not have."""
    words, model = cast(WordInput, description.input), cast(Any, description.model)
    lexicon, labels, most = words.lexicon, cast(ClassOutput, description.output).labels, words.max_words
    if words.has_other_layers:
        raise ValueError("it reads the layers of another model")
    constants: dict[str, Any] = class_labels(model, labels, weights) | {
        "IS_PAIR": int(model.pair),
        "LONGEST_TEXT": words.max_read,
        "MOST_WORDS": most,
        "FIRST_WORDS": {"start": most, "end": 0, "both": most // 2}[words.kept_end],
        "MORE_MESSAGES": 'case NAME_NO_TAB: return "a line has no tab between its two texts";',
    }
    layers = ["lexicon.h", "no_layers.h"] if model.head is None else _layers(model, lexicon, weights, constants)
    pieces = ["stored.h", "utf8.h", *characters(words.splitter), *layers]
    pieces += _bag(model.bag, lexicon, weights, constants, has_words=constants.get("D_WORD", 0) > 0)
    pieces += ["choice.h", "lines.h", "classes.h"]
    values = {"LABELS": len(labels), "TEXTS": words.num_texts}
    return Parts(constants, pieces, interface="classes", values=values, usage=USAGE)


def class_labels(model: Classifier, labels: Classes, weights: Weights) -> dict[str, Any]:
    """Return the constants of choice.h."""
    return {
        **label_texts(labels.names, weights),
        "IS_MULTIPLE": int(labels.multiple),
        "THRESHOLD": repr(float(labels.threshold)),
        "TEMPERATURE": repr(float(model.temperature)),
    }


def _layers(model: Classifier, lexicon: Lexicon, weights: Weights, constants: dict[str, Any]) -> list[str]:
    """Return the pieces that read words, run layers over them, and pool."""
    steps = Steps(weights, 1)
    table = layer_table(cast("SequenceLayer", model.layers), steps, constants)
    features = feature_pieces(model.features, lexicon, steps, constants)
    constants |= {"ROWS": 1, **steps.sizes()}
    steps_and_table = [*(step.text for step in steps.steps), table]
    head = class_head(model, weights, constants)
    return ["rows.h", "layers.h", *steps_and_table, *features, *head, "text_layers.h"]


def class_head(model: Classifier, weights: Weights, constants: dict[str, Any]) -> list[str]:
    """Return the pieces from the outputs of layers to the scores of labels."""
    assert isinstance(model.pooling, Poolings)
    kinds: dict[type[Pooling], int] = {
        LastPooling: 0,
        FirstPooling: 1,
        MeanPooling: 2,
        MaxPooling: 3,
        AttentionPooling: 4,
    }
    rows, widest = [], 0
    for part in model.pooling:
        numbers = [part.d_last if isinstance(part, LastPooling) else 0, *[0] * 5]
        if isinstance(part, AttentionPooling):
            wide = widened(part.linear.weight)
            widest = max(widest, wide.shape[1])
            numbers[1:3] = wide.shape[1], part.d_attention
            numbers[3:] = weights.add_matrix(wide), weights.add(part.linear.bias), weights.add(part.vector.weight)
        rows.append(f"{{{kinds[type(part)]}, {', '.join(map(str, numbers))}}}")
    _, *hidden, last = cast("Iterable[Any]", model.head)
    constants |= {
        "D_POOLED": model.pooling.d_out, "WIDE_ATTENTION": widest, "D_HIDDEN": 0, "WIDE_HIDDEN": 0, "AT_HIDDEN": 0,
        "AT_HIDDEN_BIAS": 0, "IS_TANH": int(any(isinstance(part, nn.Tanh) for part in hidden)),
        "AT_LAST": weights.add_matrix(widened(last.weight)), "AT_LAST_BIAS": weights.add(last.bias),
        "WIDE_LABELS": widened(last.weight).shape[1],
    }  # fmt: skip
    for linear in hidden[:1]:
        wide = widened(linear.weight)
        constants |= {"D_HIDDEN": linear.out_features, "WIDE_HIDDEN": wide.shape[1]}
        constants |= {"AT_HIDDEN": weights.add_matrix(wide), "AT_HIDDEN_BIAS": weights.add(linear.bias)}
    return ["pooling.h", f"static const pooling POOLINGS[] = {{{', '.join(rows)}}};\n", "class_head.h"]


@torch.no_grad()
def _bag(
    bag: NgramBag | None, lexicon: Lexicon, weights: Weights, constants: dict[str, Any], *, has_words: bool
) -> list[str]:
    """Return the pieces of the n-grams: the table of known words, if no feature has it, and the rows that are stored,
    as bits, 32 of them with the number of stored rows before them.
    """
    if bag is None:
        constants["NGRAMS"] = 0
        return ["no_bag.h"]
    if bag.num_rows >= _LARGEST:
        raise ValueError(f"its n-grams have {bag.num_rows:,} rows")
    places = np.arange(bag.num_rows) if bag.place is None else bag.place.numpy()
    rows = np.flatnonzero(places)
    if not np.array_equal(places[rows], np.arange(1, 1 + len(rows))):
        raise ValueError("its n-grams are in no order")
    bits = np.zeros(-(-bag.num_rows // 32) * 32, np.uint8)
    bits[rows] = 1
    packed = np.packbits(bits, bitorder="little").view("<u4")
    before = np.cumsum([0, *bits.reshape(-1, 32).sum(1, dtype=np.uint32)])[:-1]
    constants |= {
        "LOWERCASE": int(lexicon.lowercase),
        "FOLD_DIGITS": int(lexicon.fold_digits),
        "LONGEST_WORD": max(len(word.encode("utf-8", "surrogatepass")) for word in lexicon.words.symbols),
        "NGRAMS": bag.longest,
        "BUCKETS": bag.buckets,
        "AT_KEPT": weights.add(np.stack([packed, before.astype(np.uint32)], axis=1)),
        "AT_ROWS": weights.add_columns(torch.cat([bag.ratio.unsqueeze(1), bag.weight], dim=1)[1:]),
        "AT_BIAS": weights.add(bag.bias),
    }
    if isinstance(bag, PairBag):
        constants["AT_OVERLAP"] = weights.add(bag.overlap)
    return [*([] if has_words else [vocabulary("KNOWN_WORD", lexicon.words, weights)]), "keys.h", "bag.h"]
