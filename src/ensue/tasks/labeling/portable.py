"""A tagger elsewhere: the best tags of sentences, and the scores that they follow from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ensue.models.subword_encoder import beside
from ensue.tasks.portable import Portable, PortableFunction, no_export
from ensue.tasks.words.portable import PortableWords, WithOrigins
from ensue.text.labels import Labels
from ensue.text.schemes import PREFIXES, Scheme

if TYPE_CHECKING:
    from ensue.tasks.labeling.pipeline import LabelingPipeline

LETTERS = {"bio": "BIIB", "iob1": "IIII", "ioe1": "IIII", "ioe2": "IIEE"}
"""The prefixes of the first word of a span, of those inside, of the last one, and of one alone."""
PARTING = {"iob1": "B", "ioe1": "E"}
"""The prefix between two spans of one class that touch: of the first word of the second, or the last of the first."""


def portable(pipeline: LabelingPipeline) -> Portable:
    """The model as one function, with the best path inside."""
    if pipeline.recipe.data.context_words:
        raise no_export(pipeline.run, "several sentences together (data.context_words)")
    words = PortableWords(pipeline, keys=pipeline.model.repeats)

    def tagged(both: WithOrigins, **given: Any) -> dict[str, Tensor]:
        model: Any = both.model
        x, mask = words.features(both, given), words.mask(given)
        h = model.layers(x, mask=mask)[0] if words.tuned is None else beside(words.slots(both, given), x, first=0)
        emissions = model.head.emissions(model.with_repeats(h, words.keys(given), mask))
        tags = model.head.best(emissions, mask)
        return {"tags": tags.masked_fill(~mask, 0), "emissions": emissions.masked_fill(~mask.unsqueeze(-1), 0.0)}

    settings = {**words.settings(), **tag_settings(pipeline.labels)}
    function = PortableFunction("model", tagged, words.inputs, words.sample)
    return Portable(words.model, (function,), ("tagger", "labels", *words.programs), settings, words.tokenizers)


def tag_settings(labels: Labels) -> dict[str, Any]:
    """What a program needs to write tags as labels."""
    return {"tags": list(labels.tags.symbols), **written_as(labels.scheme)}


def written_as(scheme: Scheme | None) -> dict[str, Any]:
    """How the program of the export writes spans; None: tags are labels."""
    if scheme is None:
        return {"letters": None}
    return {"letters": LETTERS.get(scheme, PREFIXES[scheme]), "parting": PARTING.get(scheme)}
