"""The page about a source and an output: alignment, copying, tokens, search and encoder."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.data.examples import Pair
from ensue.decode.candidates import Candidate
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError, check_type
from ensue.inspection.drawing import WordColumns, draw_matrix
from ensue.inspection.encoder_page import EncoderView, encoder_sections
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip, decimal, note_cut
from ensue.inspection.texts import MAX_COLOR_PERCENT
from ensue.runs.pictures import HeatMap
from ensue.tasks.sequence_to_sequence.task import Sources
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.sequence_to_sequence.view import OutputView, RecordedSearch, SequenceView, view_output
from ensue.tasks.sequence_to_sequence.writer import Writer, symbols_of

MAX_SOURCE, MAX_OUTPUT = 200, 100
"""The maximum numbers of tokens of the source and of the output in an alignment."""
MAX_ROWS = 1_500
"""The maximum number of rows of the matrices of all heads. A page with more rows has only the mean of each layer."""
MAX_ENCODER_TOKENS = 60
"""The maximum number of source tokens in drawings of the encoder."""
HEAD_SIDE_PIXELS = 12
"""The side of a cell in the matrix of a single head."""
FULL_COLOR_NATS = 5.0
"""The surprisal with the full color."""


def sequence_sections(view: SequenceView, search: BeamSearch) -> list[Section]:
    """Return the sections of the page about a source and an output."""
    columns = WordColumns(view.source[:MAX_ENCODER_TOKENS], key="s")
    encoder = encoder_sections([EncoderView(columns, view.traces, view.heads)])
    sides = {
        "has_alignment": view.alignment is not None,
        "notes": [
            note_cut(len(view.source), min(len(view.source), MAX_SOURCE), "tokens of the source"),
            note_cut(len(view.output), min(len(view.output), MAX_OUTPUT), "tokens of the output"),
        ],
        "source": view.source[:MAX_SOURCE],
        "output": [_describe_token(view, position) for position in range(min(len(view.output), MAX_OUTPUT))],
    }
    return [
        Section("Source and output", "tasks/sequence_to_sequence/sides.html", sides), _alignment_section(view),
        *_copying_sections(view), token_section(view), *search_sections(view, search), *encoder,
    ]  # fmt: skip


def _describe_token(view: SequenceView, position: int) -> tuple[str, float, float, str | None]:
    """Return a token, its surprisal, the strength of its color and the strengths of its attention, in percent."""
    nats, attention = -float(view.log_probabilities[position]), None
    if view.alignment is not None:
        weights = view.alignment[position, :MAX_SOURCE]
        strengths = MAX_COLOR_PERCENT * weights / max(float(weights.max(initial=0.0)), 1e-9)
        attention = " ".join(f"{value:.0f}" for value in strengths)
    return view.output[position], nats, MAX_COLOR_PERCENT * min(1.0, nats / FULL_COLOR_NATS), attention


def _alignment_section(view: SequenceView) -> Section:
    rows = sum(layer.weights.shape[0] for layer in view.alignments) * len(view.output)
    has_heads = any(len(layer.weights) > 1 for layer in view.alignments)
    content = {
        "layers": [_heads(view, *layer, is_long=rows > MAX_ROWS) for layer in reversed(view.alignments)],
        "only_means": has_heads and rows > MAX_ROWS,
    }
    pictures = {"attention": _draw_grids(view)} if view.alignments else {}
    return Section("Attention to the source", "tasks/sequence_to_sequence/alignments.html", content, pictures)


def _draw_grids(view: SequenceView) -> dict[str, HeatMap]:
    """Return the pictures of attention by title: the mean of the heads of each layer, and each head."""
    grids = {}
    for name, weights in reversed(view.alignments):
        heads = {f"{name}, head {number}": head for number, head in enumerate(weights, start=1)}
        for title, rows in {name: weights.mean(0), **(heads if len(weights) > 1 else {})}.items():
            grids[title] = HeatMap(view.output[:MAX_OUTPUT], view.source[:MAX_SOURCE], rows[:MAX_OUTPUT, :MAX_SOURCE])
    return grids


def _heads(view: SequenceView, name: str, weights: NDArray[np.float32], *, is_long: bool) -> list[tuple[str, Markup]]:
    """Return the names and drawings of a layer: a single head, or the mean of the heads and each head."""
    if len(weights) == 1:
        return [(name, _draw_matrix(view, weights[0], name))]
    mean = f"{name}, mean of its heads"
    drawings = [(mean, _draw_matrix(view, weights.mean(0), mean))]
    for number, head in enumerate([] if is_long else weights, start=1):
        title = f"{name}, head {number}"
        drawings.append((title, _draw_matrix(view, head, title, side=HEAD_SIDE_PIXELS)))
    return drawings


def _draw_matrix(view: SequenceView, weights: NDArray[np.float32], name: str, *, side: int = 0) -> Markup:
    weights = weights[:MAX_OUTPUT, :MAX_SOURCE]
    return draw_matrix(weights, view.output[:MAX_OUTPUT], view.source[:MAX_SOURCE], name=name, key="t", side=side)


def _copying_sections(view: SequenceView) -> list[Section]:
    if view.copying is None:
        return []
    about = (
        "The head generates a token from the vocabulary, or copies a token from the source. The row of an output token "
        "has the copy distribution over the source. “Token by token” has the copied share of each token's probability."
    )
    drawing = _draw_matrix(view, view.copying.weights, "where the head copies from")
    return [Section("Copying", "inspection/plain.html", {"about": about, "shown": drawing})]


def token_section(view: OutputView) -> Section:
    """Return the section with the probability of each token, the most probable tokens, and the share of copying."""
    count, copying = min(len(view.output), MAX_OUTPUT), view.copying
    shares: list[Any] = (
        [()] * count if copying is None else [*zip(copying.shares.tolist(), copying.generates.tolist(), strict=True)]
    )
    tokens = {
        "total": float(view.log_probabilities.sum()), "length": len(view.output), "has_copying": copying is not None,
        "note": note_cut(len(view.output), count, "tokens of the output"),
        "rows": list(zip(view.output, view.log_probabilities.tolist(), shares, view.options, strict=False))[:count],
    }  # fmt: skip
    return Section("Token by token", "tasks/sequence_to_sequence/tokens.html", tokens)


MAX_TOKENS = 2_000
"""The maximum number of tokens of a source or a target for a page."""


def inspect_output(
    writer: Writer[Pair], coder: PairCoder, source: str | Sequence[str], target: str | None = None
) -> Inspection:
    """Return the page about a source and its output, or a target. Raise EnsueError for texts that are too long."""
    check_type("the source", source, (str, tuple, list), "a text, or the texts of its columns")
    columns = (source,) if isinstance(source, str) else tuple(source)
    for text in columns:
        check_type("the source", text, str, "a string")
    source_ids, targets = coder.encode(columns, [] if target is None else [target])
    _check_length("source", len(source_ids))
    sources = writer.sources([Pair(columns)])
    if target is None:
        search = record_search(writer, sources, symbols_of(coder, columns))
        best = search.hypotheses[0]
        ids = [*best.ids, *([coder.target.end_id] if best.is_complete else [])]
        text = coder.decode(best.ids, columns)
    else:
        check_type("the target", target, str, "a string")
        search, text, ids = None, target, targets[0].tolist()
        _check_length("target", len(ids))
        writer.encode([(Pair(columns), target)])  # raises DataError for a target that is too long
    if not ids:
        raise EnsueError("nothing to inspect: the output has no tokens")
    view = view_output(writer.models, coder, columns, sources, ids, text=text, search=search)
    title = clip(" | ".join(columns), MAX_TITLE_CHARACTERS)
    facts = {
        **writer.facts(writer.recipe.describe()),
        "search": "none: the target is an argument" if view.search is None else writer.describe_search(),
        "tokens": f"{len(view.source):,} → {len(view.output):,}",
    }
    return Inspection(title, view, facts, sequence_sections(view, writer.search))


def record_search(writer: Writer[Any], sources: Sources, symbol: Callable[[int], str]) -> RecordedSearch:
    """Return the search for a single source, with all its candidates."""
    record: list[Candidate] = []
    (hypotheses,) = writer.hypotheses(sources, record=record)
    symbols = {id: symbol(id) for candidate in record for id in candidate.ids[-1:]}
    return RecordedSearch(record, hypotheses, symbols, *writer.limits(sources))


def _check_length(side: str, length: int) -> None:
    if length > MAX_TOKENS:
        raise EnsueError(f"the {side} has {length:,} tokens; a page has at most {MAX_TOKENS:,}")


MAX_STEPS, MAX_BEAMS = 40, 12
"""The maximum numbers of steps, and of hypotheses of the beam after a step, in the drawing of a search."""
MAX_ENDED = 20
"""The maximum number of listed complete hypotheses."""
MAX_DROPPED = 2
"""The maximum number of candidates of a step that are drawn though they are not in the beam."""
COLUMN_PIXELS, ROW_PIXELS, BOX_PIXELS = 128, 28, (104, 22)
"""The distances of columns and rows in the drawing, and the width and height of a box."""
CSS_CLASSES = {"ends": "ends", "is left out": "out", "comes too late": "late", "is too long": "late"}


class CandidateBox(NamedTuple):
    """A candidate in the drawing of a search."""

    candidate: Candidate
    row: int
    """The rank among candidates of the same length."""
    is_best: bool
    """Whether the output begins with the candidate."""
    reason: str
    """The reason for the outcome of the candidate."""

    @property
    def css_classes(self) -> str:
        """The CSS classes of the box."""
        return f"{CSS_CLASSES.get(self.candidate.fate, '')} {'best' if self.is_best else ''}".strip()

    @property
    def corner(self) -> tuple[int, int]:
        """The upper left corner, in pixels."""
        return COLUMN_PIXELS * (len(self.candidate.ids) - 1) + 2, ROW_PIXELS * self.row + 1


def search_sections(view: OutputView, search: BeamSearch) -> list[Section]:
    """Return a section with the drawing of a search and the best hypotheses; empty for a target."""
    if view.search is None:
        return []
    steps = max(len(candidate.ids) for candidate in view.search.candidates)
    complete = [candidate for candidate in view.search.candidates if candidate.fate == "ends"]
    complete.sort(key=lambda candidate: -_compute_score(candidate, search))
    content = {
        "width": search.width,
        "notes": [
            note_cut(steps, min(steps, MAX_STEPS), "steps"),
            note_cut(search.width, min(search.width, MAX_BEAMS), "beams", "best"),
        ],
        **_draw_search(list_boxes(view.search, search), view.search),
        "ended": [(_compute_score(best, search), best, _join(best, view.search)) for best in complete[:MAX_ENDED]],
        "ended_note": note_cut(len(complete), min(len(complete), MAX_ENDED), "outputs", "best"),
        "has_coverage": bool(search.coverage_penalty),
    }
    return [Section("The search", "tasks/sequence_to_sequence/search.html", content)]


def list_boxes(recorded: RecordedSearch, search: BeamSearch) -> list[CandidateBox]:
    """Return the candidates to draw, by length and probability: the beam, and the best candidates out of the beam."""
    best, boxes = recorded.hypotheses[0], list[CandidateBox]()
    candidates = sorted(recorded.candidates, key=lambda candidate: -candidate.log_probability)
    complete = [candidate for candidate in recorded.candidates if candidate.fate == "ends"]
    output = (*best.ids, *(candidate.ids[-1] for candidate in complete if candidate.ids[:-1] == best.ids))
    scores = sorted((_compute_score(candidate, search) for candidate in complete), reverse=True)
    for length in range(1, MAX_STEPS + 1):
        same_length = [candidate for candidate in candidates if len(candidate.ids) == length]
        beam = [candidate for candidate in same_length if candidate.fate != "is left out"]
        dropped = [candidate for candidate in same_length if candidate.fate == "is left out"][:MAX_DROPPED]
        for row, candidate in enumerate(beam[:MAX_BEAMS]):
            reason = _explain_fate(candidate, recorded, search, scores)
            boxes.append(CandidateBox(candidate, row, candidate.ids == output[:length], reason))
        for row, candidate in enumerate(dropped, start=len(beam[:MAX_BEAMS])):
            reason = f"out of the beam, whose last hypothesis has log p = {decimal(beam[-1].log_probability, 4)}"
            boxes.append(CandidateBox(candidate, row, False, reason))
    return boxes


def _explain_fate(candidate: Candidate, recorded: RecordedSearch, search: BeamSearch, scores: Sequence[float]) -> str:
    match candidate.fate:
        case "ends":
            score = _compute_score(candidate, search)
            return f"ended: score {decimal(score, 4)}, rank {scores.index(score) + 1} of the complete hypotheses"
        case "is too long":
            return f"stopped: the limit is {recorded.limit} tokens"
        case "comes too late":
            bound = candidate.log_probability / math.pow(recorded.limit + 1, search.length_penalty)
            score = recorded.hypotheses[-1].score
            return f"stopped: its score cannot exceed {decimal(bound, 4)}; the worst output has {decimal(score, 4)}"
    return "goes on"


def _compute_score(candidate: Candidate, search: BeamSearch) -> float:
    return candidate.log_probability / math.pow(len(candidate.ids), search.length_penalty)


def _draw_search(boxes: list[CandidateBox], recorded: RecordedSearch) -> dict[str, Any]:
    """Return the values of the drawing: lines from parents to their continuations, boxes and sizes."""
    boxes = sorted(boxes, key=lambda box: box.is_best)
    parents = {box.candidate.ids: box for box in boxes if box.candidate.fate == "goes on"}
    return {
        "edges": [(parents[above], box) for box in boxes if (above := box.candidate.ids[:-1]) in parents],
        "nodes": [(box, recorded.symbols[box.candidate.ids[-1]], _join(box.candidate, recorded)) for box in boxes],
        "size": (COLUMN_PIXELS + max(box.corner[0] for box in boxes), ROW_PIXELS + max(box.corner[1] for box in boxes)),
        "box": BOX_PIXELS,
        "gap": COLUMN_PIXELS - BOX_PIXELS[0],
    }


def _join(candidate: Candidate, recorded: RecordedSearch) -> str:
    return " ".join(recorded.symbols[id] for id in candidate.ids)
