"""The description of a tagger for exporters: the best tags of sentences, and the scores behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.models.subword_encoder import beside
from ensue.models.tag_heads import TagHead
from ensue.tasks.contract.description import ModelDescription, TagOutput, TensorForm, TensorFunction, mask_of
from ensue.tasks.words.pipeline import WordPipeline
from ensue.tasks.words.portable import PortableWords, WithOrigins
from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Labels

SENTENCES = {
    "places_of_sentences": TensorForm(("sentences", "longest"), torch.int64),
    "lengths_of_sentences": TensorForm(("sentences",), torch.int64),
}
"""Where sentences are in rows of several: the numbers of their words, counted row by row over the padded batch."""


def describe(
    pipeline: WordPipeline, labels: TaggerLabels, together: int, data_set: Callable[[Any, Any], Any]
) -> ModelDescription:
    """Return the description of a tagger: one function, with the best path inside.

    Args:
        pipeline: The tagger.
        labels: The labels of its tags.
        together: The most words of a row of several sentences, whose places are an input; 0: a row has one sentence.
        data_set: (recipe, run) to labeled sentences.
    """
    words = PortableWords(pipeline, keys=pipeline.model.repeats)

    def tagged(both: WithOrigins, **given: Any) -> dict[str, Tensor]:
        model: Any = both.model
        x, mask = words.features(both, given), words.mask(given)
        h = model.layers(x, mask=mask)[0] if words.tuned is None else beside(words.slots(both, given), x, first=0)
        h = model.with_repeats(h, words.keys(given), mask)
        if together:
            places = given["places_of_sentences"]
            h, mask = h.flatten(0, 1)[places], mask_of(places, given["lengths_of_sentences"])
        emissions = model.head.emissions(h)
        tags = model.head.best(emissions, mask)
        real = mask if isinstance(labels, Labels) else mask.unsqueeze(-1)
        return {"tags": tags.masked_fill(~real, 0), "emissions": emissions.masked_fill(~mask.unsqueeze(-1), 0.0)}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        given = words.sample(batch, length)
        return given | _halves(given["lengths"]) if together else given

    settings = {**words.settings(), **tag_settings(pipeline.model.head, labels), "together": together}
    function = TensorFunction("model", tagged, {**words.inputs, **(SENTENCES if together else {})}, sample)
    return ModelDescription(
        words.described(), TagOutput(labels), pipeline.model, (function,), words.model, ("tagger", *words.programs),
        settings, words.tokenizers, data_set,
    )  # fmt: skip


def _halves(lengths: Tensor) -> dict[str, Tensor]:
    """Two sentences in each row of so many words; a row of one word has one."""
    width, rows = int(lengths.max()), torch.arange(len(lengths))
    first = (lengths + 1) // 2
    begins = torch.cat((rows * width, rows * width + first))
    sizes = torch.cat((first, lengths - first))
    begins, sizes = begins[sizes > 0], sizes[sizes > 0]
    columns = torch.arange(int(sizes.max()))
    places = torch.where(columns < sizes.unsqueeze(1), begins.unsqueeze(1) + columns, 0)
    return {"places_of_sentences": places, "lengths_of_sentences": sizes}


def tag_settings(head: TagHead, labels: TaggerLabels) -> dict[str, Any]:
    """The settings with which a program writes tags as labels, and knows how probable they are.

    Of a head that chooses paths these are the scores of pairs of tags and of both ends, too, null for -inf. Of several
    heads, `heads` has the tags and scores of each.
    """
    if not isinstance(labels, Labels):
        both = zip(head.parts, labels.learned, strict=True)
        heads = [tag_settings(part, learned.labels) for part, learned in both]
        tags = [tag for part in heads for tag in part["tags"]]
        return {"tags": tags, "labels": labels.to_json(), "tables": [], "heads": heads}
    tables = [np.where(np.isinf(part), np.array(None), part).tolist() for part in head.tables() or ()]
    return {"tags": list(labels.tags.symbols), "labels": labels.to_json(), "tables": tables}
