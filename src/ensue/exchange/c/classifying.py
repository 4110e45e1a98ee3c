"""A classifier of texts, or of pairs of texts, as C: the splitter, the keys of words, and the bag of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ensue.exchange.c.expressions import Sets, lowercase, splitter_tables
from ensue.exchange.c.printing import Parts, Weights, vocabulary
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.text.lexicon import Lexicon

_LARGEST = 1 << 31
USAGE = """\
    ./NAME < texts.txt                   label and probability of the text in each line
    ./NAME --at-least 0.9 < texts.txt    no label that is less probable
"""


def classifier_parts(pipeline: ClassificationPipeline, weights: Weights) -> Parts:
    """The parts of a classifier. Raises ValueError for one that has no C."""
    model, lexicon, labels, data = pipeline.model, pipeline.reader.lexicon, pipeline.labels, pipeline.recipe.data
    if pipeline.subwords is not None or pipeline.contextual.origins:
        raise ValueError("it reads the layers of another model")
    if model.head is not None:
        raise ValueError("it has layers")
    sets = Sets()
    texts = [name.encode("utf-8", "surrogatepass") + b"\0" for name in labels.names]
    longest = pipeline.recipe.most_read
    constants: dict[str, Any] = {
        "IS_PAIR": int(model.pair),
        "IS_MULTIPLE": int(labels.multiple),
        "THRESHOLD": repr(float(labels.threshold)),
        "TEMPERATURE": repr(float(model.temperature)),
        "LONGEST_TEXT": longest,
        "MOST_WORDS": data.max_tokens,
        "FIRST_WORDS": {"start": data.max_tokens, "end": 0, "both": data.max_tokens // 2}[data.keep],
        "AT_LABEL_STARTS": weights.add(np.cumsum([0, *map(len, texts)]).astype(np.uint32)),
        "AT_LABELS": weights.add(b"".join(texts)),
    }
    letters, splits = lowercase(sets), splitter_tables(pipeline.splitter, sets)
    known = _keys(lexicon, sets, weights, constants)
    _bag(model.bag, weights, constants)
    before = [letters, "unicode.h", "expression.h", splits, "splitting.h", "lexicon.h", known, "keys.h"]
    return Parts(
        constants,
        ["utf8.h", sets.text(), *before, "bag.h", "classes.h"],
        interface="classes",
        numbers={"LABELS": len(labels), "TEXTS": pipeline.num_texts},
        usage=USAGE,
    )


def _keys(lexicon: Lexicon, sets: Sets, weights: Weights, constants: dict[str, Any]) -> str:
    """The table of known words."""
    constants |= {
        "LOWERCASE": int(lexicon.lowercase),
        "FOLD_DIGITS": int(lexicon.fold_digits),
        "LONGEST_WORD": max(len(word.encode("utf-8", "surrogatepass")) for word in lexicon.words.symbols),
    }
    sets.name("DIGITS")
    return vocabulary("KNOWN_WORD", lexicon.words, weights)


@torch.no_grad()
def _bag(bag: NgramBag, weights: Weights, constants: dict[str, Any]) -> None:
    """The rows that are kept: their bits, 32 with the number of those before them, and what they say."""
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
        "NGRAMS": bag.longest,
        "BUCKETS": bag.buckets,
        "AT_KEPT": weights.add(np.stack([packed, before.astype(np.uint32)], axis=1)),
        "AT_ROWS": weights.add(torch.cat([bag.ratio.unsqueeze(1), bag.weight], dim=1)[1:]),
        "AT_BIAS": weights.add(bag.bias),
    }
    if isinstance(bag, PairBag):
        constants["AT_OVERLAP"] = weights.add(bag.overlap)
