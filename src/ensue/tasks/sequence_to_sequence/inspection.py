"""From a model, a source and perhaps a target to an `Inspection`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ensue.arguments import check_type
from ensue.data.pairs import Pair
from ensue.decode.record import Candidate
from ensue.errors import EnsueError
from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.markup import clipped
from ensue.tasks.sequence_to_sequence.output_view import Search
from ensue.tasks.sequence_to_sequence.page import sequence_sections
from ensue.tasks.sequence_to_sequence.sources import Sources
from ensue.tasks.sequence_to_sequence.symbols import Symbols
from ensue.tasks.sequence_to_sequence.view import SequenceView, view_output

if TYPE_CHECKING:
    from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
    from ensue.tasks.sequence_to_sequence.writer import Writer

LONGEST = 2_000
"""The most tokens of a source or a target for a page."""


def inspect_output(pipeline: SequencePipeline, source: str | Sequence[str], target: str | None = None) -> Inspection:
    """What happens in the model while it writes its output for a source, or a given target.

    Raises EnsueError for texts that are too long.
    """
    check_type("the source", source, (str, tuple, list), "a text, or the texts of its columns")
    columns = (source,) if isinstance(source, str) else tuple(source)
    for part in columns:
        check_type("the source", part, str, "a string")
    coder = pipeline.coder
    source_ids, targets = coder.encode(columns, [] if target is None else [target])
    _check_length("source", length := len(source_ids))
    sources = pipeline.sources([Pair(columns)])
    if target is None:
        search = searched(pipeline, sources, Symbols(coder, columns).of)
        best = search.hypotheses[0]
        ids = [*best.ids, *([coder.target.end_id] if best.is_complete else [])]
        text = coder.decode(best.ids, columns)
    else:
        check_type("the target", target, str, "a string")
        search, text, ids = None, target, targets[0].tolist()
        _check_length("target", len(ids))
        pipeline.check_lengths(Pair(columns), length, len(ids))
    if not ids:
        raise EnsueError("there is nothing to look into: the output has no tokens")
    view = view_output(pipeline.models, coder, columns, sources, ids, text=text, search=search)
    title = clipped(" | ".join(columns), TITLE)
    return Inspection(title, view, _facts(pipeline, view), sequence_sections(view, pipeline.search))


def _facts(pipeline: SequencePipeline, view: SequenceView) -> dict[str, str]:
    """What stands at the top of the page."""
    return {
        **pipeline.facts(pipeline.recipe.describe()),
        "search": "none, the target was given" if view.search is None else pipeline.protocol_of_search(),
        "tokens": f"{len(view.source):,} → {len(view.output):,}",
    }


def searched(pipeline: Writer[Any], sources: Sources, symbol: Callable[[int], str]) -> Search:
    """The search for one source, with all that it considered."""
    record: list[Candidate] = []
    (hypotheses,) = pipeline.hypotheses(sources, record=record)
    return Search(
        record, hypotheses, {id: symbol(id) for found in record for id in found.ids[-1:]}, *pipeline.limits(sources)
    )


def _check_length(what: str, length: int) -> None:
    if length > LONGEST:
        raise EnsueError(f"the {what} has {length:,} tokens; up to {LONGEST:,} can be looked into")
