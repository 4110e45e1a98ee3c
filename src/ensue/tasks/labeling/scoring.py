"""The scores of a tagger of words or of frames from right and said labels, and its mistakes as a table: a row for each
word whose label is wrong, in the order of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ensue.data.sentences.sentence import Sentence
from ensue.errors import EnsueError
from ensue.metrics.comparison import ItemRows, ScoredItems, f1, ratio
from ensue.metrics.labeling import LabelingScores, LabelingTally, right_spans, right_tokens
from ensue.text.labels import Labels

Judged = tuple[Sequence[str], list[str]]
"""The right and the said labels of a sentence or series."""
COLUMNS = ("place", "word", "right", "predicted", "before", "after")
CONTEXT = 8
"""The most words that are shown on each side."""


def scores_of(labels: Labels, answers: Iterable[Judged]) -> LabelingScores:
    """The scores, in constant memory."""
    tally = LabelingTally(spans=labels.has_spans)
    for right, said in answers:
        tally.add(right, said)
    return tally.scores(known=labels.names)


def items_of(labels: Labels, answers: Iterable[Judged], unit: str) -> ScoredItems:
    """The items of these scores, for a test of differences."""
    rows, spans = ItemRows(), labels.has_spans
    for right, said in answers:
        rows.append((*right_tokens(right, said), *(right_spans(right, said) if spans else ())))
    return rows.scored(unit, {"accuracy": ratio(0, 1)} | ({"f1": f1(2, 3, 4)} if spans else {}))


def with_mistakes(answers: Iterable[tuple[Sentence, Sequence[str], list[str]]], path: Path) -> Iterator[Judged]:
    """The right and the said labels of sentences as they come, while the wrong ones are written to `path`, with tabs
    between the columns. `place` is the file and the line where the sentence begins.

    Raises EnsueError if the file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write("\t".join(COLUMNS) + "\n")
            for sentence, right, said in answers:
                file.writelines(_rows(sentence, right, said))
                yield right, said
    except OSError as error:
        raise EnsueError(f"{path}: cannot be written ({error.strerror or error})") from error


def _rows(sentence: Sentence, right: Sequence[str], said: Sequence[str]) -> Iterator[str]:
    words = sentence.words
    for place, (gold, found) in enumerate(zip(right, said, strict=True)):
        if gold != found:
            before, after = words[max(0, place - CONTEXT) : place], words[place + 1 : place + 1 + CONTEXT]
            cells = (
                f"{sentence.source.name}:{sentence.line}",
                words[place],
                gold,
                found,
                *map(" ".join, (before, after)),
            )
            yield "\t".join(" ".join(cell.split()) for cell in cells) + "\n"
