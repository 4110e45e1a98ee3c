"""A classifier elsewhere: the probability of each label for texts, or for pairs of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ensue.models.classifier import Pooled
from ensue.nn.layer import blank
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.contract.description import ClassOutput, ModelDescription, TensorFunction, mask_of
from ensue.tasks.words.pipeline import WordPipeline
from ensue.tasks.words.portable import PortableWords, WithOrigins
from ensue.text.labels import Classes


def describe(
    pipeline: WordPipeline, labels: Classes, data: ClassificationData, data_set: Callable[[Any, Any], Any]
) -> ModelDescription:
    """Return the description of a classifier: one function. It reads at once what the model reads in segments.

    Args:
        pipeline: The classifier.
        labels: Its labels.
        data: The table of its recipe.
        data_set: (recipe, run) to labeled texts.
    """
    bag = pipeline.model.bag
    words = PortableWords(pipeline, keys=bag is not None)

    def one(both: WithOrigins, given: Any, suffix: str) -> Pooled:
        """A text after pooling."""
        model: Any = both.model
        found: Pooled = model.pooled(
            words.features(both, given, suffix)
            if model.pooling is not None
            else words.numbers(given, suffix).unsqueeze(-1)[..., :0].float(),
            words.keys(given, suffix),
            words.mask(given, suffix),
        )
        return found

    def tuned(both: WithOrigins, given: Any) -> list[Pooled]:
        """A text, or the two of a pair that layers of another run read as one."""
        model: Any = both.model
        slots = words.slots(both, given)
        x = slots[..., :0] if model.pair else blank(words.features(both, given), words.mask(given))
        real = mask_of(slots, words.lengths(given) + 1)
        vector = model.pooled_slots(slots, x, real, first=int(not pipeline.model.layers.is_causal))
        keys = [words.keys(given, s).masked_fill(~words.mask(given, s), 0) for s in words.suffixes if bag is not None]
        return [Pooled(vector, each) for each in keys] or [Pooled(vector, slots[..., 0])]

    def classified(both: WithOrigins, **given: Any) -> dict[str, Tensor]:
        model: Any = both.model
        if words.tuned is None or model.pooling is None:
            texts = [one(both, given, suffix) for suffix in words.suffixes]
        else:
            texts = tuned(both, given)
        logits = model.logits_of(texts)
        return {"probabilities": model.probabilities(logits), "logits": logits}

    function = TensorFunction("model", classified, words.inputs, words.sample)
    settings = words.settings() | {
        "classes": labels.to_json(),
        "most": data.max_tokens,
        "keep": data.keep,
        "pair": pipeline.model.pair,
    }
    return ModelDescription(
        words.described(max_words=data.max_tokens, kept_end=data.keep, max_read=pipeline.recipe.most_read),
        ClassOutput(labels), pipeline.model, (function,), words.model, ("classifier", *words.programs), settings,
        words.tokenizers, data_set,
    )  # fmt: skip
