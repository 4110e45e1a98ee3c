"""The scores of a tagger from right and said labels, of words or of frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ensue.metrics.comparison import ItemRows, ScoredItems, f1, ratio
from ensue.metrics.labeling import LabelingScores, LabelingTally, right_spans, right_tokens
from ensue.text.labels import Labels

Judged = tuple[Sequence[str], list[str]]
"""The right and the said labels of a sentence or series."""


def scores_of(labels: Labels, answers: Iterable[Judged]) -> LabelingScores:
    """The scores, in constant memory."""
    tally = LabelingTally(spans=labels.has_spans)
    for right, said in answers:
        tally.add(right, said)
    return tally.scores(known=labels.names)


def items_of(labels: Labels, answers: Iterable[Judged], unit: str) -> ScoredItems:
    """The same scores by their items, for a test of differences."""
    rows, spans = ItemRows(), labels.has_spans
    for right, said in answers:
        rows.append((*right_tokens(right, said), *(right_spans(right, said) if spans else ())))
    return rows.scored(unit, {"accuracy": ratio(0, 1)} | ({"f1": f1(2, 3, 4)} if spans else {}))
