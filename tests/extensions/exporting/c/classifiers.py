"""Untrained classifiers of every kind that is exported to C, and their vocabulary."""

from typing import Any

import torch

from ensue.models.build_text import build_classifier
from ensue.recipe import validate_recipe
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.text.labels import Classes
from ensue.text.lexicon import Lexicon
from inspection.small import document

WORDS = [
    "the", "sea", "was", "calm", "don't", "12", "3.5", "'\u03c2", "\u1f41\u03b4\u03cc\u03c2", "i\u0307",
    "\u00e9t\u00e9", ".", "a",
]  # fmt: skip
SIGNS = [
    *WORDS, "The", "SEA", "99", "\u039f\u0394\u039f\u03a3", "\u0130", "\u0663", "new", "sea-sea", "\U0001f600",
    "e\u0301", "longer-" * 8, "\n",
]  # fmt: skip


def classifier(
    *, multiple: bool = False, pair: bool = False, features: dict[str, Any] | None = None, prune: bool = True,
    data: dict[str, Any] | None = None, ngrams: int = 3, labels: int = 3, model: dict[str, Any] | None = None,
    head: dict[str, Any] | None = None,
) -> ClassificationPipeline:  # fmt: skip
    """Return an untrained model. Most rows of its bag are 0, and its few buckets are shared."""
    features = {"d_words": 0, **(features or {})}
    head = {"pooling": [], "ngrams": ngrams, "ngram_buckets": 97, **(head or {})}
    table = document("classification", features, model or {"kind": "none"}, head)
    recipe = validate_recipe(table | {"data": {"train": "x", **(data or {})}}, where="small")
    assert isinstance(recipe, ClassificationRecipe)
    folding = {key: features[key] for key in ("lowercase", "fold_digits") if key in features}
    lexicon = Lexicon.train(
        dict.fromkeys(WORDS, 5), characters="characters" in features, longest_affix=features.get("affixes", 0),
        shapes="d_shape" in features, character_ngrams=recipe.head.character_ngrams, **folding,
    )  # fmt: skip
    names = ["good", "b\u00e4d", *(f"label-{k}" for k in range(labels))][:labels]
    classes = Classes(names, multiple=multiple, threshold=0.4, temperature=1.7)
    torch.manual_seed(1)
    built = build_classifier(
        recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=lexicon,
        num_labels=labels, pair=pair, multiple=multiple, segment=recipe.data.segment_tokens,
    )  # fmt: skip
    if built.bag is not None and prune:
        shares = torch.rand(2, built.bag.num_rows)
        shares[0, 0] = 0  # rows of unknown words and columns are 0
        built.bag.weigh(shares[0] * (shares[1] < 0.6))
        built.bag.remove_unweighted()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.6)
    built.temperature = classes.temperature
    return ClassificationPipeline(built, lexicon, classes, recipe=recipe)


KINDS: dict[str, dict[str, Any]] = {
    "one": {},
    "all_rows": {"prune": False, "features": {"lowercase": False, "fold_digits": False}, "ngrams": 1},
    "several": {"multiple": True, "data": {"splitter": "treebank"}, "labels": 5},
    "pair": {"pair": True, "data": {"max_tokens": 5, "keep": "both"}},
    "characters": {"head": {"character_ngrams": 4}},
    "characters_of_pairs": {
        "pair": True, "prune": False, "ngrams": 1, "head": {"character_ngrams": 3}, "features": {"fold_digits": False},
    },
    "both_ways": {
        "model": {"kind": "lstm", "d_model": 6, "num_layers": 2},
        "features": {"d_words": 7, "affixes": 2, "d_affix": 3},
        "head": {"pooling": ["last", "first", "mean", "max", "attention"], "ngrams": 2},
        "data": {"splitter": "treebank", "max_tokens": 9, "keep": "both"},
    },
    "pair_of_layers": {
        "pair": True, "ngrams": 0, "model": {"kind": "gru", "d_model": 5, "merge": "sum"},
        "features": {"d_words": 4, "characters": "lstm", "d_character": 3, "d_characters": 6, "d_shape": 2},
        "head": {"pooling": ["max", "attention"], "d_hidden": 9, "activation": "tanh"},
    },
    "segments": {
        "model": {"kind": "lstm", "d_model": 5, "bidirectional": False}, "multiple": True,
        "data": {"segment_tokens": 3}, "head": {"pooling": ["last"], "d_hidden": 33},
        "features": {"characters": "cnn", "d_character": 3, "d_characters": 6},
    },
    "end": {"data": {"max_tokens": 4, "keep": "end", "splitter": "whitespace"}, "labels": 1},
}  # fmt: skip
