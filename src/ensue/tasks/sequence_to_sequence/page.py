"""From models, a source and perhaps an output to a page about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.arguments import check_type
from ensue.data.examples import Pair
from ensue.decode.candidates import Candidate
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError
from ensue.inspection.drawing import WordColumns, matrix
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.inspection.texts import STRONGEST
from ensue.runs.pictures import Grid
from ensue.tasks.sequence_to_sequence.outputs import Symbols
from ensue.tasks.sequence_to_sequence.search_page import search_sections
from ensue.tasks.sequence_to_sequence.task import Sources
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.sequence_to_sequence.view import OutputView, Search, SequenceView, view_output
from ensue.tasks.sequence_to_sequence.writer import Writer

MOST_SOURCE, MOST_OUTPUT = 200, 100
"""The most tokens of each side in an alignment."""
MOST_ROWS = 1_500
"""The most rows of all heads together; of more, the mean of a layer's heads is drawn."""
MOST_ENCODER = 60
HEAD_SIDE = 12
"""Pixels of a cell in the matrix of one of several heads."""
UNLIKELY = 5.0
"""A surprisal in nats that has the full color."""


def sequence_sections(view: SequenceView, search: BeamSearch) -> list[Section]:
    """All sections. `search` is how outputs are found."""
    columns = WordColumns(view.source[:MOST_ENCODER], key="s")
    encoder = encoder_sections([Seen(columns, view.traces, view.heads)])
    sides = {
        "has_alignment": view.alignment is not None,
        "notes": [
            cut(len(view.source), min(len(view.source), MOST_SOURCE), "tokens of the source"),
            cut(len(view.output), min(len(view.output), MOST_OUTPUT), "tokens of the output"),
        ],
        "source": view.source[:MOST_SOURCE],
        "output": [_written(view, place) for place in range(min(len(view.output), MOST_OUTPUT))],
    }
    return [
        Section("Source and output", "tasks/sequence_to_sequence/sides.html", sides),
        _alignments(view),
        *_copying(view),
        token_section(view),
        *search_sections(view, search),
        *encoder,
    ]


def _written(view: SequenceView, place: int) -> tuple[str, float, float, str | None]:
    """A token, its surprisal, the percentage of its color, and the percentages of what it looks at."""
    nats, looks = -float(view.log_probabilities[place]), None
    if view.alignment is not None:
        of_token = view.alignment[place, :MOST_SOURCE]
        strengths = STRONGEST * of_token / max(float(of_token.max(initial=0.0)), 1e-9)
        looks = " ".join(f"{value:.0f}" for value in strengths)
    return view.output[place], nats, STRONGEST * min(1.0, nats / UNLIKELY), looks


def _alignments(view: SequenceView) -> Section:
    """Attention to the source, by layers and heads; the last layer comes first."""
    rows = sum(found.weights.shape[0] for found in view.alignments) * len(view.output)
    has_heads = any(len(found.weights) > 1 for found in view.alignments)
    shown = {
        "layers": [_heads(view, *found, is_long=rows > MOST_ROWS) for found in reversed(view.alignments)],
        "only_means": has_heads and rows > MOST_ROWS,
    }
    pictures = {"attention": _plotted(view)} if view.alignments else {}
    return Section("Attention to the source", "tasks/sequence_to_sequence/alignments.html", shown, pictures)


def _plotted(view: SequenceView) -> dict[str, Grid]:
    """Pictures for matplotlib: the mean of the heads of each layer, and each head."""
    found = {}
    for name, weights in reversed(view.alignments):
        heads = {f"{name}, head {number}": of_head for number, of_head in enumerate(weights, start=1)}
        for which, of in {name: weights.mean(0), **(heads if len(weights) > 1 else {})}.items():
            found[which] = Grid(view.output[:MOST_OUTPUT], view.source[:MOST_SOURCE], of[:MOST_OUTPUT, :MOST_SOURCE])
    return found


def _heads(view: SequenceView, name: str, weights: NDArray[np.float32], *, is_long: bool) -> list[tuple[str, Markup]]:
    """The names and drawings of a layer: of its only head, or of the mean of its heads and of each."""
    if len(weights) == 1:
        return [(name, _matrix(view, weights[0], name))]
    mean = f"{name}, mean of its heads"
    found = [(mean, _matrix(view, weights.mean(0), mean))]
    for number, of_head in enumerate([] if is_long else weights, start=1):
        head = f"{name}, head {number}"
        found.append((head, _matrix(view, of_head, head, side=HEAD_SIDE)))
    return found


def _matrix(view: SequenceView, weights: NDArray[np.float32], name: str, *, side: int = 0) -> Markup:
    shown = weights[:MOST_OUTPUT, :MOST_SOURCE]
    return matrix(shown, view.output[:MOST_OUTPUT], view.source[:MOST_SOURCE], name=name, key="t", side=side)


def _copying(view: SequenceView) -> list[Section]:
    if view.copying is None:
        return []
    about = (
        "The head generates a token from the vocabulary, or copies one from the source. The row of an output token "
        "shows from where it would copy. “Token by token” has how much of each token's probability is copied."
    )
    drawing = _matrix(view, view.copying.weights, "where the head copies from")
    return [Section("Copying", "inspection/plain.html", {"about": about, "shown": drawing})]


def token_section(view: OutputView) -> Section:
    """A row for each token: its probability, what else could have come, the share of copying."""
    count, copying = min(len(view.output), MOST_OUTPUT), view.copying
    tokens = {
        "total": float(view.log_probabilities.sum()),
        "length": len(view.output),
        "note": cut(len(view.output), count, "tokens of the output"),
        "has_copying": copying is not None,
        "rows": [
            (
                view.output[place],
                float(view.log_probabilities[place]),
                () if copying is None else (float(copying.shares[place]), float(copying.generates[place])),
                view.options[place],
            )
            for place in range(count)
        ],
    }
    return Section("Token by token", "tasks/sequence_to_sequence/tokens.html", tokens)


LONGEST = 2_000
"""The most tokens of a source or a target for a page."""


def inspect_output(
    writer: Writer[Pair], coder: PairCoder, source: str | Sequence[str], target: str | None = None
) -> Inspection:
    """The page about a source and its output, or a given target. Raises EnsueError for texts that are too long."""
    check_type("the source", source, (str, tuple, list), "a text, or the texts of its columns")
    columns = (source,) if isinstance(source, str) else tuple(source)
    for part in columns:
        check_type("the source", part, str, "a string")
    source_ids, targets = coder.encode(columns, [] if target is None else [target])
    _check_length("source", len(source_ids))
    sources = writer.sources([Pair(columns)])
    if target is None:
        search = recorded_search(writer, sources, Symbols(coder, columns).of)
        best = search.hypotheses[0]
        ids = [*best.ids, *([coder.target.end_id] if best.is_complete else [])]
        text = coder.decode(best.ids, columns)
    else:
        check_type("the target", target, str, "a string")
        search, text, ids = None, target, targets[0].tolist()
        _check_length("target", len(ids))
        writer.encoded([(Pair(columns), target)])  # which checks its length
    if not ids:
        raise EnsueError("there is nothing to look into: the output has no tokens")
    view = view_output(writer.models, coder, columns, sources, ids, text=text, search=search)
    title = clipped(" | ".join(columns), TITLE)
    facts = {
        **writer.facts(writer.recipe.describe()),
        "search": "none, the target was given" if view.search is None else writer.protocol_of_search(),
        "tokens": f"{len(view.source):,} → {len(view.output):,}",
    }
    return Inspection(title, view, facts, sequence_sections(view, writer.search))


def recorded_search(writer: Writer[Any], sources: Sources, symbol: Callable[[int], str]) -> Search:
    """The search for one source, with all that it considered."""
    record: list[Candidate] = []
    (hypotheses,) = writer.hypotheses(sources, record=record)
    return Search(
        record, hypotheses, {id: symbol(id) for found in record for id in found.ids[-1:]}, *writer.limits(sources)
    )


def _check_length(what: str, length: int) -> None:
    if length > LONGEST:
        raise EnsueError(f"the {what} has {length:,} tokens; up to {LONGEST:,} can be looked into")
