"""A tagger elsewhere: the best tags of sentences, and the scores that they follow from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ensue.errors import EnsueError
from ensue.models.tagger import Tagger
from ensue.tasks.portable import Portable, PortableFunction, mask_of, no_export
from ensue.tasks.words.portable import (
    check_words,
    form_inputs,
    forms_of,
    sample_forms,
    sample_texts,
    text_inputs,
    word_settings,
)
from ensue.text.schemes import PREFIXES

if TYPE_CHECKING:
    from ensue.tasks.labeling.pipeline import LabelingPipeline

LETTERS = {"bio": "BIIB", "iob1": "IIII", "ioe2": "IIEE"}
"""The prefixes of the first word of a span, of those inside, of the last one, and of one alone."""


def portable(pipeline: LabelingPipeline) -> Portable:
    """The model as one function, with the best path inside."""
    check_words(pipeline)
    if pipeline.recipe.data.context_words:
        raise no_export(pipeline.run, "several sentences together (data.context_words)")
    labels = pipeline.labels
    if labels.scheme == "ioe1":
        raise EnsueError(f"{pipeline.run}: labels in the scheme ioe1 have no export to ONNX")

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        return sample_forms(pipeline, keys=pipeline.model.repeats) | sample_texts(pipeline, batch, length)

    inputs = form_inputs(pipeline, keys=pipeline.model.repeats) | text_inputs(pipeline)
    settings = {
        **word_settings(pipeline),
        "tags": list(labels.tags.symbols),
        "letters": LETTERS.get(labels.scheme, PREFIXES[labels.scheme]) if labels.scheme else None,
        "again": "B" if labels.scheme == "iob1" else None,
    }
    return Portable((PortableFunction("model", _tagged, inputs, sample),), ("tagger", "words"), settings)


def _tagged(model: Tagger, **given: Any) -> dict[str, Tensor]:
    numbers, forms = given["numbers"], forms_of(given)
    mask = mask_of(numbers, given["lengths"])
    columns = given.get("columns", numbers.unsqueeze(-1)[..., :0])
    x = model.features.in_place(model.features.form_vectors(forms), numbers, columns)
    emissions = model.emissions(x, forms.keys[numbers] if model.repeats else numbers, mask)
    tags = model.head.best(emissions, mask)
    return {"tags": tags.masked_fill(~mask, 0), "emissions": emissions.masked_fill(~mask.unsqueeze(-1), 0.0)}
