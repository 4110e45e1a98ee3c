"""The description of a classifier for exporters: a function from texts or pairs to the probabilities of labels."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ensue.models.classifier import PooledTexts, real_keys
from ensue.nn.layer import mask_padding
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.contract.description import ClassOutput, ModelDescription, TensorFunction, mask_of
from ensue.tasks.words.export_inputs import ModelWithOrigins, WordExportInputs
from ensue.tasks.words.pipeline import WordPipeline
from ensue.text.labels import Classes


def describe(
    pipeline: WordPipeline, labels: Classes, data: ClassificationData, data_set: Callable[[Any, Any], Any]
) -> ModelDescription:
    """Return the description of a classifier. The described function reads all segments of a text in one call."""
    bag = pipeline.model.bag
    words = WordExportInputs(pipeline, keys=bag is not None)

    def pool_text(module: ModelWithOrigins, inputs: Any, suffix: str) -> PooledTexts:
        model: Any = module.model
        if model.pooling is not None:
            x = words.features(module, inputs, suffix)
        else:
            x = words.numbers(inputs, suffix).unsqueeze(-1)[..., :0].float()
        return model.pool(x, words.keys(inputs, suffix), words.mask(inputs, suffix))

    def pool_tuned(module: ModelWithOrigins, inputs: Any) -> list[PooledTexts]:
        """Return the pooled outputs of fine-tuned layers, which read a text or a pair together."""
        model: Any = module.model
        slots = words.slots(module, inputs)
        x = slots[..., :0] if model.pair else mask_padding(words.features(module, inputs), words.mask(inputs))
        slot_mask = mask_of(slots, words.lengths(inputs) + 1)
        vector = model.pool_slots(slots, x, slot_mask, first=int(not pipeline.model.layers.is_causal))
        keys = [real_keys(words.keys(inputs, s), words.mask(inputs, s)) for s in words.suffixes if bag is not None]
        return [PooledTexts(vector, keys_of_text) for keys_of_text in keys] or [PooledTexts(vector, slots[..., 0])]

    def classify(module: ModelWithOrigins, **inputs: Any) -> dict[str, Tensor]:
        model: Any = module.model
        if words.tuned is None or model.pooling is None:
            texts = [pool_text(module, inputs, suffix) for suffix in words.suffixes]
        else:
            texts = pool_tuned(module, inputs)
        logits = model.compute_logits(texts)
        return {"probabilities": model.probabilities(logits), "logits": logits}

    function = TensorFunction("model", classify, words.inputs, words.sample)
    settings = words.settings() | {"classes": labels.to_json(), "most": data.max_tokens, "keep": data.keep}
    settings["pair"] = pipeline.model.pair
    return ModelDescription(
        words.describe(max_words=data.max_tokens, truncation_keeps=data.keep, max_read=pipeline.recipe.max_words),
        ClassOutput(labels), pipeline.model, (function,), words.model, ("classifier", *words.programs), settings,
        words.tokenizers, data_set,
    )  # fmt: skip
