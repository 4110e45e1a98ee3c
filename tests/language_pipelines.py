"""Pipelines of small random language models."""

from typing import Any

import torch

from ensue.models.build_text import build_language_model
from ensue.models.specification import describe_encoder
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.text.tokenizers import train_tokenizer
from layer_tables import layers

TEXT = "The sea was calm.\nNobody spoke, and the sea was calm: nothing ended; été, naïve.\n" * 3


def pipeline_of(kind: str, specification: dict[str, Any] | None = None) -> LanguagePipeline:
    tokenizer = train_tokenizer(kind, [TEXT])
    torch.manual_seed(1)
    specification = specification or layers(kind="lstm", d_embedding=8, d_model=12)
    model = build_language_model(**specification, vocabulary_size=tokenizer.vocabulary_size)
    return LanguagePipeline(
        model.train(), tokenizer, encoder=describe_encoder(specification["encoder"]), run="runs/sea"
    )
