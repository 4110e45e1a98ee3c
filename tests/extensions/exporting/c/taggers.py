"""Small taggers of all kinds, and texts with everything that a splitter distinguishes."""

import random
from typing import Any

import torch

from ensue.tasks.labeling.pipeline import LabelingPipeline
from inspection.small import PLAIN, SPANS, tagger

WORDS = [
    "the", "Sea", "seas", "SEA", "calmly", "Ann", "London", "23", "1999", "x", "", "<unk>", "ΟΔΥΣΣΕΥΣ", "İstanbul", "ǅ",
    "naïve", "e\u0301te\u0301", "日本語", "\U0001f600", "a-b-c--d", "....", "²³", "Ⅷ", "٣٤", "_", "don’t",
    "x" * 33, "Ab1" * 40, "9" * 500, "\u0345Σ", "Aʰ\u03a3", "Straße",
]  # fmt: skip
TEXTS = [
    "The Sea was calm. Ann Lee of London saw 23 seas, didn't she?", "", "  ", "x", "don't can't cannot U.S. $3.50 :-)",
    "été 日本語 👩\u200d👩\u200d👧 🇩🇪🇫🇷 ‘so’ “no”\t<unk>\u2028\x85 end", "a" * 300 + " " + "b c " * 40, "\x00 \x01",
]  # fmt: skip
VECTORS = ["Sea", "the", "London", "calm", "was", "café"]
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"head": "softmax", "labels": PLAIN},
    "spans": {"head": "softmax", "model": {"kind": "grid", "d_model": 5, "num_layers": 2}},
    "viterbi": {"head": "viterbi", "model": {"kind": "lem", "d_model": 5, "num_layers": 2, "merge": "sum"}},
    "crf": {
        "features": {"d_words": 5, "d_shape": 2, "lowercase": False, "fold_digits": False},
        "model": {"kind": "elman", "d_model": 5, "bidirectional": False, "zoneout_hidden": 0.2},
    },
    "cnn": {
        "features": {"d_words": 0, "characters": "cnn", "d_character": 5, "d_characters": 37, "affixes": 3},
        "model": {"kind": "minlstm", "d_model": 5, "merge": "product", "dropout_kind": "variational"},
    },
    "lstm": {"features": {"d_words": 3, "characters": "lstm", "d_character": 5, "d_characters": 8}},
    "vectors": {
        "features": {"d_words": 0, "vectors": "x"},
        "vectors": VECTORS,
        "model": {"kind": "projected", "d_model": 5, "merge": "mean"},
    },
    "layers": {"model": {"kind": "gru", "d_model": 36, "num_layers": 3, "residual": True, "dropout": 0.5}},
}


def sentences_of(seed: int, count: int = 50) -> list[list[str]]:
    choose = random.Random(seed)
    lengths = [1, 30, *(choose.randint(1, 20) for _ in range(count - 2))]
    return [choose.choices(WORDS, k=length) for length in lengths]


def pipeline_of(kind: str) -> LabelingPipeline:
    pipeline = tagger(**{"labels": SPANS, **MODELS[kind]})
    features = pipeline.model.features
    if kind == "vectors":  # some are stored in half precision
        lexicon, rows = pipeline.reader.lexicon, features.vectors.weight
        lexicon.kept_vectors = 3
        features.kept_vectors = torch.nn.Parameter(rows[-3:].detach().half(), requires_grad=False)
        features.kept_vectors.data[0, 0] = 3e-7  # a subnormal number in half precision
        features.vectors = torch.nn.Embedding(len(rows) - 3, rows.shape[1])
    return pipeline
