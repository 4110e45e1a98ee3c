"""A classifier elsewhere: the probability of each label for texts, or for pairs of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ensue.models.classifier import Classifier
from ensue.tasks.portable import Portable, PortableFunction, mask_of
from ensue.tasks.words.portable import (
    check_words,
    form_inputs,
    forms_of,
    sample_forms,
    sample_texts,
    text_inputs,
    word_settings,
)

if TYPE_CHECKING:
    from ensue.tasks.classification.pipeline import ClassificationPipeline

SUFFIXES = ("", "_2")
"""Of the inputs that are of the first text, and of the second one of a pair."""


def portable(pipeline: ClassificationPipeline) -> Portable:
    """The model as one function. Texts that it reads in segments are read whole, which gives the same."""
    check_words(pipeline)
    data, model, labels = pipeline.recipe.data, pipeline.model, pipeline.labels
    keys = model.bag is not None
    suffixes = SUFFIXES[: pipeline.num_texts]
    inputs = form_inputs(pipeline, keys=keys)

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        found = sample_forms(pipeline, keys=keys)
        for suffix, more in zip(suffixes, (0, 2), strict=False):
            found |= sample_texts(pipeline, batch, length + more, suffix=suffix)
        return found

    for suffix in suffixes:
        inputs |= text_inputs(pipeline, suffix)
    settings = {
        **word_settings(pipeline),
        "labels": list(labels.names),
        "multiple": labels.multiple,
        "threshold": labels.threshold,
        "most": data.max_tokens,
        "keep": data.keep,
        "pair": model.pair,
    }
    return Portable((PortableFunction("model", _classified, inputs, sample),), ("classifier", "words"), settings)


def _classified(model: Classifier, **given: Any) -> dict[str, Tensor]:
    forms, texts = forms_of(given), []
    for suffix in SUFFIXES:
        if (numbers := given.get(f"numbers{suffix}")) is None:
            continue
        mask = mask_of(numbers, given[f"lengths{suffix}"])
        x = numbers.new_zeros(*numbers.shape, 0).float()
        if model.pooling is not None:
            vectors = model.features.form_vectors(forms)
            x = model.features.in_place(vectors, numbers, numbers.unsqueeze(-1)[..., :0])
        texts.append(model.pooled(x, forms.keys[numbers], mask))
    logits = model.logits_of(texts)
    return {"probabilities": model.probabilities(logits), "logits": logits}
