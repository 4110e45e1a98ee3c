"""The description of a tagger for exporters: a function that returns the best tags and the emissions of sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.models.tag_heads import TagHead
from ensue.tasks.contract.description import ModelDescription, TagOutput, TensorFunction, TensorSpec, mask_of
from ensue.tasks.words.export_inputs import ModelWithOrigins, WordExportInputs
from ensue.tasks.words.pipeline import WordPipeline
from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Labels

SENTENCES = {
    "places_of_sentences": TensorSpec(("sentences", "longest"), torch.int64),
    "lengths_of_sentences": TensorSpec(("sentences",), torch.int64),
}
"""The inputs for rows of several sentences: the indices of the words of each sentence among all positions of the padded
batch, and the number of words of each sentence.
"""


def describe(
    pipeline: WordPipeline, labels: TaggerLabels, context_words: int, data_set: Callable[[Any, Any], Any]
) -> ModelDescription:
    """Return the description of a tagger, without the inputs `SENTENCES` if `context_words` of the recipe is 0."""
    words = WordExportInputs(pipeline, keys=pipeline.model.repeats)

    def tag_sentences(module: ModelWithOrigins, **inputs: Any) -> dict[str, Tensor]:
        model: Any = module.model
        x, mask = words.features(module, inputs), words.mask(inputs)
        h = model.layers(x, mask=mask)[0] if words.tuned is None else words.slots(module, inputs)
        h = model.head_input(h, x, words.keys(inputs), mask)
        if context_words:
            places = inputs["places_of_sentences"]
            h, mask = h.flatten(0, 1)[places], mask_of(places, inputs["lengths_of_sentences"])
        emissions = model.head.emissions(h)
        tags = model.head.best(emissions, mask)
        tag_mask = mask if isinstance(labels, Labels) else mask.unsqueeze(-1)
        return {"tags": tags.masked_fill(~tag_mask, 0), "emissions": emissions.masked_fill(~mask.unsqueeze(-1), 0.0)}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        inputs = words.sample(batch, length)
        return inputs | _sample_sentences(inputs["lengths"]) if context_words else inputs

    settings = {**words.settings(), **tag_settings(pipeline.model.head, labels), "together": context_words}
    function = TensorFunction("model", tag_sentences, {**words.inputs, **(SENTENCES if context_words else {})}, sample)
    return ModelDescription(
        words.describe(), TagOutput(labels), pipeline.model, (function,), words.model, ("tagger", *words.programs),
        settings, words.tokenizers, data_set,
    )  # fmt: skip


def _sample_sentences(lengths: Tensor) -> dict[str, Tensor]:
    """Return inputs in which each row has two sentences, or one sentence if it has one word."""
    width, rows = int(lengths.max()), torch.arange(len(lengths))
    first = (lengths + 1) // 2
    begins = torch.cat((rows * width, rows * width + first))
    sizes = torch.cat((first, lengths - first))
    begins, sizes = begins[sizes > 0], sizes[sizes > 0]
    columns = torch.arange(int(sizes.max()))
    places = torch.where(columns < sizes.unsqueeze(1), begins.unsqueeze(1) + columns, 0)
    return {"places_of_sentences": places, "lengths_of_sentences": sizes}


def tag_settings(head: TagHead, labels: TaggerLabels) -> dict[str, Any]:
    """Return the settings with which a program writes tags as labels and computes probabilities."""
    if not isinstance(labels, Labels):
        pairs = zip(head.parts, labels.learned, strict=True)
        heads = [tag_settings(column_head, learned.labels) for column_head, learned in pairs]
        tags = [tag for settings in heads for tag in settings["tags"]]
        return {"tags": tags, "labels": labels.to_json(), "tables": [], "heads": heads}
    tables = [np.where(np.isinf(table), np.array(None), table).tolist() for table in head.tables() or ()]
    return {"tags": list(labels.tags.symbols), "labels": labels.to_json(), "tables": tables}
