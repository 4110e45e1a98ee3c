"""Export of classifiers of texts and pairs to C: the bag of n-grams, layers, and poolings."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ensue.extensions.exporting.c.printing import CModel, Weights, add_hash_table, add_label_names
from ensue.extensions.exporting.c.word_layers import (
    LayerSteps,
    feature_templates,
    layer_table,
    pad_columns,
    splitter_templates,
)
from ensue.models.classifier import Classifier
from ensue.models.ngram_bag import CHARACTER_SHARE, NgramBag, PairBag
from ensue.nn.layer import SequenceLayer
from ensue.nn.pooling import AttentionPooling, FirstPooling, LastPooling, MaxPooling, MeanPooling, Pooling, Poolings
from ensue.tasks.contract.description import ClassOutput, ModelDescription, WordInput
from ensue.text.labels import Classes
from ensue.text.lexicon import MAX_CHARACTERS_READ, MIN_NGRAM_CHARACTERS, Lexicon

_MAX_NGRAM_ROWS = 1 << 31
USAGE = """\
    ./NAME < texts.txt                   label and probability of the text in each line
    ./NAME --at-least 0.9 < texts.txt    only labels with this probability or more
"""


def classifier_source(description: ModelDescription, weights: Weights) -> CModel:
    """Return the C source of a classifier. Raises `Untraceable` or ValueError for an unsupported model."""
    words, model = cast(WordInput, description.input), cast(Any, description.model)
    lexicon, labels, max_words = words.lexicon, cast(ClassOutput, description.output).labels, words.max_words
    if words.has_other_layers:
        raise ValueError("features from another model are unsupported")
    weights.constants |= add_labels(model, labels, weights) | {
        "IS_PAIR": int(model.pair), "MAX_TEXT_WORDS": words.max_read, "MAX_WORDS": max_words,
        "FIRST_WORDS": {"start": max_words, "end": 0, "both": max_words // 2}[words.truncation_keeps],
        "MORE_MESSAGES": 'case NAME_NO_TAB: return "a line has no tab between its two texts";',
    }  # fmt: skip
    layers = ["lexicon.h", "no_layers.h"] if model.head is None else _add_layers(model, lexicon, weights)
    templates = ["stored.h", "utf8.h", *splitter_templates(words.splitter), *layers]
    templates += _add_bag(model.bag, lexicon, weights)
    templates += ["choice.h", "lines.h", "classes.h"]
    return CModel(templates, interface="classes", values={"LABELS": len(labels), "TEXTS": words.num_texts}, usage=USAGE)


def add_labels(model: Classifier, labels: Classes, weights: Weights) -> dict[str, Any]:
    """Add the names of labels to the weights, and return the constants of labels and their probabilities."""
    return {
        **add_label_names(labels.names, weights), "IS_MULTIPLE": int(labels.multiple),
        "THRESHOLD": repr(float(labels.threshold)), "TEMPERATURE": repr(float(model.temperature)),
    }  # fmt: skip


def _add_layers(model: Classifier, lexicon: Lexicon, weights: Weights) -> list[str]:
    steps = LayerSteps(weights, 1)
    table = layer_table(cast("SequenceLayer", model.layers), steps)
    features = feature_templates(model.features, lexicon, steps)
    weights.constants |= {"ROWS": 1, **steps.sizes()}
    steps_and_table = [*(step.text for step in steps.steps), table]
    return ["rows.h", "layers.h", *steps_and_table, *features, *head_templates(model, weights), "text_layers.h"]


def head_templates(model: Classifier, weights: Weights) -> list[str]:
    """Return the templates that compute the scores of labels from the outputs of layers."""
    assert isinstance(model.pooling, Poolings)
    # in the order of the constants in pooling.h
    order: list[type[Pooling]] = [LastPooling, FirstPooling, MeanPooling, MaxPooling, AttentionPooling]
    rows, max_width, constants = [], 0, weights.constants
    for pooling in model.pooling:
        numbers = [order.index(type(pooling)), pooling.d_last if isinstance(pooling, LastPooling) else 0, *[0] * 5]
        if isinstance(pooling, AttentionPooling):
            wide = pad_columns(pooling.linear.weight)
            max_width = max(max_width, wide.shape[1])
            numbers[2:4] = wide.shape[1], pooling.d_attention
            numbers[4:] = weights.add_matrix(wide), weights.add(pooling.linear.bias), weights.add(pooling.vector.weight)
        rows.append(f"{{{', '.join(map(str, numbers))}}}")
    _, *hidden, last = cast("Iterable[Any]", model.head)
    constants |= {
        "D_POOLED": model.pooling.d_out, "WIDE_ATTENTION": max_width, "D_HIDDEN": 0, "WIDE_HIDDEN": 0, "AT_HIDDEN": 0,
        "AT_HIDDEN_BIAS": 0, "IS_TANH": int(any(isinstance(layer, nn.Tanh) for layer in hidden)),
        "AT_LAST": weights.add_matrix(pad_columns(last.weight)), "AT_LAST_BIAS": weights.add(last.bias),
        "WIDE_LABELS": pad_columns(last.weight).shape[1],
    }  # fmt: skip
    for linear in hidden[:1]:
        wide = pad_columns(linear.weight)
        constants |= {"D_HIDDEN": linear.out_features, "WIDE_HIDDEN": wide.shape[1]}
        constants |= {"AT_HIDDEN": weights.add_matrix(wide), "AT_HIDDEN_BIAS": weights.add(linear.bias)}
    return ["pooling.h", f"static const pooling POOLINGS[] = {{{', '.join(rows)}}};\n", "class_head.h"]


@torch.no_grad()
def _add_bag(bag: NgramBag | None, lexicon: Lexicon, weights: Weights) -> list[str]:
    """Return the templates of the n-grams. Add the rows of their table, and a bit set of these rows, to the weights."""
    constants = weights.constants
    if bag is None:
        constants |= {"NGRAMS": 0, "CHARACTER_NGRAMS": 0}
        return ["no_bag.h"]
    if bag.num_rows >= _MAX_NGRAM_ROWS:
        raise ValueError(f"expected fewer than {_MAX_NGRAM_ROWS:,} rows of n-grams, found {bag.num_rows:,}")
    stored_rows = np.arange(bag.num_rows) if bag.place is None else bag.place.numpy()
    rows = np.flatnonzero(stored_rows)
    if not np.array_equal(stored_rows[rows], np.arange(1, 1 + len(rows))):
        raise ValueError("the rows of the table of n-grams are not sorted by the hashes of the n-grams")
    bits = np.zeros(-(-bag.num_rows // 32) * 32, np.uint8)
    bits[rows] = 1
    packed = np.packbits(bits, bitorder="little").view("<u4")
    num_before = np.cumsum([0, *bits.reshape(-1, 32).sum(1, dtype=np.uint32)])[:-1]  # set bits before each 32 bits
    constants |= {
        "LOWERCASE": int(lexicon.lowercase), "FOLD_DIGITS": int(lexicon.fold_digits),
        "MAX_WORD_BYTES": max(len(word.encode("utf-8", "surrogatepass")) for word in lexicon.words.symbols),
        "NGRAMS": bag.longest, "BUCKETS": bag.buckets, "TABLE_SIZE": bag.table_rows,
        "CHARACTER_NGRAMS": lexicon.character_ngrams, "NGRAM_LETTERS": MAX_CHARACTERS_READ,
        "MIN_NGRAM_LETTERS": MIN_NGRAM_CHARACTERS, "CHARACTER_SHARE": repr(CHARACTER_SHARE),
        "AT_STORED": weights.add(np.stack([packed, num_before.astype(np.uint32)], axis=1)),
        "AT_ROWS": weights.add_rows(torch.cat([bag.ratio.unsqueeze(1), bag.weight], dim=1)[1:], axis=0),
        "AT_BIAS": weights.add(bag.bias),
    }  # fmt: skip
    if isinstance(bag, PairBag):
        constants["AT_OVERLAP"] = weights.add(bag.overlap)
    table = [] if constants.get("D_WORD") else [add_hash_table("KNOWN_WORD", lexicon.words, weights)]
    return [*table, "keys.h", "bag.h"]
