"""From a language model and a text to an `Inspection`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.inspection import Inspection
from ensue.inspection.token_page import title_of
from ensue.tasks.language_modeling.page import language_sections
from ensue.tasks.language_modeling.view import LanguageView, view_text

if TYPE_CHECKING:
    from ensue.tasks.language_modeling.pipeline import LanguagePipeline


def inspect_text(pipeline: LanguagePipeline, text: str) -> Inspection:
    """What happens in the model while it reads a text. Raises EnsueError for a text without tokens."""
    check_type("the text", text, str, "a string")
    ids = pipeline.tokenizer.encode(text).astype(np.int64)
    if not len(ids):
        raise EnsueError("there is nothing to look into: the text has no tokens")
    view = view_text(pipeline.model, pipeline.tokenizer, ids)
    sections = language_sections(view, pipeline.tokenizer)
    title = title_of(text)
    return Inspection(title, view, _facts(pipeline, view), sections)


def _facts(pipeline: LanguagePipeline, view: LanguageView) -> dict[str, str]:
    """What stands at the top of the page."""
    nats, count = float(view.predictions.surprisals[:-1].mean()), len(view.tokens)
    unknown = int((view.ids == pipeline.tokenizer.unknown_id).sum())
    return {
        **({} if pipeline.run is None else {"run": Path(pipeline.run).name}),
        "model": pipeline.encoder,
        "parameters": f"{pipeline.num_parameters:,}",
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        "nats per token": f"{nats:.4f}",
        "perplexity": f"{np.exp(nats):.4g}",
    }
