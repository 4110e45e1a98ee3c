"""From a masked language model and a text to an `Inspection`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.inspection import Inspection
from ensue.inspection.token_page import title_of
from ensue.tasks.masked_language_modeling.page import masked_sections
from ensue.tasks.masked_language_modeling.view import MaskedView, view_masked

if TYPE_CHECKING:
    from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline


def inspect_masked(pipeline: MaskedLanguagePipeline, text: str) -> Inspection:
    """What happens in the model with a text, in which `[MASK]` may stand. Raises EnsueError for one without tokens."""
    check_type("the text", text, str, "a string")
    ids = pipeline.coder.encode_masked(text).ids
    if not len(ids):
        raise EnsueError("there is nothing to look into: the text has no tokens")
    view = view_masked(pipeline.model, pipeline.coder, ids)
    sections = masked_sections(view, pipeline.coder, pipeline.model.context)
    title = title_of(text)
    return Inspection(title, view, _facts(pipeline, view), sections)


def _facts(pipeline: MaskedLanguagePipeline, view: MaskedView) -> dict[str, str]:
    """What stands at the top of the page."""
    nats, count = view.predictions.surprisals[~view.is_mask], len(view.tokens)
    return {
        **pipeline.facts(pipeline.recipe.describe()),
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        "masks": f"{int(view.is_mask.sum()):,}",
        **({"nats per hidden token": f"{nats.mean():.4f}"} if len(nats) else {}),
    }
