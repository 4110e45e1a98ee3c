"""The mistakes of a tagger as a table: a row for each word whose label is wrong, in the order of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ensue.data.sentences.sentence import Sentence
from ensue.errors import EnsueError
from ensue.tasks.labeling.judging import Judged

COLUMNS = ("place", "word", "right", "predicted", "before", "after")
CONTEXT = 8
"""The most words that are shown on each side."""


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
