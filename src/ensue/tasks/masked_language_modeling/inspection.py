"""From a masked language model and a text to an `Inspection`."""

from __future__ import annotations

from collections.abc import Mapping

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.page import Inspection
from ensue.inspection.token_page import title_of
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.masked_language_modeling.page import masked_sections
from ensue.tasks.masked_language_modeling.view import MaskedView, view_masked
from ensue.text.masked_tokens import MaskedTokenizer


def inspect_masked(
    model: MaskedLanguageModel, coder: MaskedTokenizer, text: str, facts: Mapping[str, str]
) -> Inspection:
    """A text in a model, as `MaskedLanguagePipeline.inspect` says; `facts` are those of the model."""
    check_type("the text", text, str, "a string")
    ids = coder.encode_masked(text).ids
    if not len(ids):
        raise EnsueError("there is nothing to look into: the text has no tokens")
    view = view_masked(model, coder, ids)
    sections = masked_sections(view, coder, model.context)
    return Inspection(title_of(text), view, {**facts, **_facts(view)}, sections)


def _facts(view: MaskedView) -> dict[str, str]:
    """The facts of the text, at the top of the page."""
    nats, count = view.predictions.surprisals[~view.is_mask], len(view.tokens)
    return {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        "masks": f"{int(view.is_mask.sum()):,}",
        **({"nats per hidden token": f"{nats.mean():.4f}"} if len(nats) else {}),
    }
