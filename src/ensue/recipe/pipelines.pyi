"""The recipes of each pipeline, for type checkers. `python docs/recipe_types.py` writes this file."""

from typing import Literal

ClassificationPipeline = Literal[
    "classify-bag", "classify-linear", "classify-lstm", "classify-pairs", "classify-pretrained",
]  # fmt: skip
CutterPipeline = Literal[
    "cut-lstm",
]  # fmt: skip
LabelingPipeline = Literal[
    "tag-columns", "tag-linear", "tag-lstm", "tag-lstm-crf", "tag-nested", "tag-pretrained", "tag-transformer-crf",
]  # fmt: skip
LanguagePipeline = Literal[
    "bpe-transformer", "char-clockwork", "char-coupled", "char-depth-gated", "char-elman", "char-grid", "char-gru",
    "char-layer-norm", "char-lstm", "char-lstm-large", "char-lstm-wide", "char-mingru", "char-minlstm", "char-peephole",
    "char-projected", "char-qrnn", "char-transformer", "char-zoneout", "word-elman", "word-lstm", "word-lstm-awd",
    "word-window",
]  # fmt: skip
MaskedLanguagePipeline = Literal[
    "bert-base", "bert-large", "bert-mini", "bert-small", "bert-tiny",
]  # fmt: skip
SentenceVectorsPipeline = Literal[
    "sentence-vectors",
]  # fmt: skip
SequencePipeline = Literal[
    "answer-transformer", "summarize-lm", "summarize-pointer", "summarize-transformer", "transduce-few",
    "transduce-lstm", "transduce-transformer", "translate-few", "translate-lstm", "translate-lstm-plain",
    "translate-transformer",
]  # fmt: skip
