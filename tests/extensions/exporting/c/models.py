"""Language models with large random weights, and a text with everything that a splitter distinguishes."""

from typing import Any

import torch

from ensue.models.language_model import LanguageModel
from ensue.nn import SoftmaxHead, TokenEmbedding
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.text.tokenizers import train_tokenizer
from language_pipelines import TEXT, pipeline_of
from layer_tables import layers

MIXED = (
    TEXT + "It's 3.5 or 3,a 4. well-known—no ‘quotes’ <unk> <un <<unk>> ’tis été\n\n“So,” ¿no? \u0663.\u0664 x\x85y\t"
)
TRANSFORMER: dict[str, Any] = {"kind": "transformer", "num_heads": 3, "context": 21}
KINDS = ("characters", "bytes", "words", "simple")
SAMPLINGS: list[dict[str, Any]] = [
    {}, {"temperature": 0.7}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1},
    {"repetition_penalty": 1.5},
    {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
]  # fmt: skip


def pipeline(kind: str, /, **specification: Any) -> LanguagePipeline:
    """Return a model with large random weights."""
    table = layers(**{"kind": "lstm", "d_embedding": 8, "d_model": 12, "num_layers": 2, **specification})
    pipeline = pipeline_of("words" if kind == "simple" else kind, table)
    if kind == "simple":
        tokenizer = train_tokenizer("words", [MIXED], splitter="simple")
        model = LanguageModel(
            TokenEmbedding(tokenizer.vocabulary_size, 8), pipeline.model.layers,
            SoftmaxHead(12, tokenizer.vocabulary_size), context=pipeline.model.context,
        )  # fmt: skip
        pipeline = LanguagePipeline(model, tokenizer)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in pipeline.model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return pipeline
