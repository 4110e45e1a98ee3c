"""The sections of a page for an output and its source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ensue.decode.search import BeamSearch
from ensue.inspection.drawing import WordColumns, matrix
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.markup import clipped, escaped, plain, share
from ensue.inspection.page import Section, cut, paragraph, table
from ensue.inspection.texts import STRONGEST
from ensue.tasks.sequence_to_sequence.search_page import search_sections
from ensue.tasks.sequence_to_sequence.view import SequenceView

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
    return [
        Section("Source and output", _both_sides(view)),
        *_alignments(view),
        *_copying(view),
        Section("Token by token", _tokens(view)),
        *search_sections(view, search),
        *encoder,
    ]


def _both_sides(view: SequenceView) -> str:
    about = "The more surprising an output token is to the model, the stronger is its color."
    if view.alignment is not None:
        about += " Rest on one: the source tokens that the model looks at while it writes it are colored."
    source = "".join(
        f'<span class="w weight" data-t="s{place}" style="--s:0%">{escaped(token)}</span> '
        for place, token in enumerate(view.source[:MOST_SOURCE])
    )
    output = "".join(_written(view, place) for place in range(min(len(view.output), MOST_OUTPUT)))
    return (
        f"{paragraph(about)}{_cuts(view)}"
        f'<div class="text looked" dir="auto">{source}</div><div class="text" dir="auto">{output}</div>'
    )


def _written(view: SequenceView, place: int) -> str:
    """A token of the output, with what it looks at for the script."""
    nats, token = -float(view.log_probabilities[place]), view.output[place]
    strength = STRONGEST * min(1.0, nats / UNLIKELY)
    looks = ""
    if view.alignment is not None:
        of_token = view.alignment[place, :MOST_SOURCE]
        strengths = STRONGEST * of_token / max(float(of_token.max(initial=0.0)), 1e-9)
        looks = f' data-look="{" ".join(f"{value:.0f}" for value in strengths)}"'
    return (
        f'<span class="w for" data-t="t{place}"{looks} style="--s:{strength:.0f}%"'
        f' title="{escaped(f"{clipped(token, 60)}: {nats:.4f} nats")}">{escaped(token)}</span> '
    )


def _cuts(view: SequenceView) -> str:
    return cut(len(view.source), min(len(view.source), MOST_SOURCE), "tokens of the source") + cut(
        len(view.output), min(len(view.output), MOST_OUTPUT), "tokens of the output"
    )


def _alignments(view: SequenceView) -> list[Section]:
    """What each token looks at, by layers and heads."""
    if not view.alignments:
        about = "The decoder has no attention: all that it knows of the source is one vector, the encoder's last state."
        return [Section("Attention to the source", paragraph(about))]
    about = (
        "The row of an output token shows which source tokens the decoder looks at in the step that writes it. A row "
        "sums to 1."
    ) + (" The last layer comes first." if len(view.alignments) > 1 else "")
    rows = sum(found.weights.shape[0] for found in view.alignments) * len(view.output)
    drawn = []
    for name, weights in reversed(view.alignments):
        if len(weights) == 1:
            drawn.append(_matrix(view, weights[0], name))
            continue
        heads = [_matrix(view, weights.mean(0), f"{name}, mean of its heads")]
        if rows <= MOST_ROWS:
            heads += [
                _matrix(view, of_head, f"{name}, head {head}", side=HEAD_SIDE)
                for head, of_head in enumerate(weights, start=1)
            ]
        drawn.append(f'<div class="many">{"".join(heads)}</div>')
    only = paragraph("The texts are long: of each layer only the mean of its heads is shown.", "note")
    note = only if rows > MOST_ROWS and any(len(found.weights) > 1 for found in view.alignments) else ""
    return [Section("Attention to the source", paragraph(about) + note + "".join(drawn))]


def _matrix(view: SequenceView, weights: NDArray[np.float32], name: str, *, side: int = 0) -> str:
    shown = weights[:MOST_OUTPUT, :MOST_SOURCE]
    drawing = matrix(shown, view.output[:MOST_OUTPUT], view.source[:MOST_SOURCE], name=name, key="t", side=side)
    return f"<div><h3>{escaped(name)}</h3>{drawing}</div>"


def _copying(view: SequenceView) -> list[Section]:
    if view.copying is None:
        return []
    about = (
        "The head generates a token from the vocabulary, or copies one from the source. The row of an output token "
        "shows from where it would copy. “Token by token” has how much of each token's probability is copied."
    )
    drawing = _matrix(view, view.copying.weights, "where the head copies from")
    return [Section("Copying", paragraph(about) + drawing)]


def _tokens(view: SequenceView) -> str:
    """A row for each token: its probability, what else could have come, the share of copying."""
    head = ["", "token", "#ln P", "#P", "", "#copied", "#P(generate)", "most probable here"]
    if view.copying is None:
        del head[5:7]
    rows = [_row(view, place) for place in range(min(len(view.output), MOST_OUTPUT))]
    total = float(view.log_probabilities.sum())
    said = f"The sum of ln P is {plain(total, 4)}: {plain(total / len(view.output), 4)} for each of {len(view.output)}."
    return paragraph(said) + cut(len(view.output), len(rows), "tokens of the output") + table(head, rows)


def _row(view: SequenceView, place: int) -> str:
    log_p = float(view.log_probabilities[place])
    p = float(np.exp(log_p))
    copied = ""
    if view.copying is not None:
        copied = "".join(
            f'<td class="number" title="{value:.6f}">{share(value)}</td>'
            for value in (float(view.copying.shares[place]), float(view.copying.generates[place]))
        )
    return (
        f'<tr data-t="t{place}"><td class="number faint">{place + 1}</td><td><bdi>'
        f"{escaped(clipped(view.output[place], 30))}</bdi></td>"
        f'<td class="number" title="{plain(log_p, 6)}">{plain(log_p)}</td><td class="number">{share(p)}</td>'
        f'<td><span class="share" style="width:{80 * p:.1f}px"></span></td>{copied}'
        f"<td>{_options(view, place)}</td></tr>"
    )


def _options(view: SequenceView, place: int) -> str:
    chosen = view.output[place]
    return "".join(
        f'<span class="tag"><bdi>{_strong(clipped(symbol, 24), symbol == chosen)}</bdi> '
        f'<span class="faint">{share(probability)}</span></span>'
        for symbol, probability in view.options[place]
    )


def _strong(text: str, is_chosen: bool) -> str:
    return f"<b>{escaped(text)}</b>" if is_chosen else escaped(text)
