"""Sentences that are read together: those that follow each other in a document, up to a number of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ensue.data.sentences.sentence import Sentence


def contexts(sentences: Iterable[Sentence], most_words: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of a document while they have at most `most_words` words together.

    A longer sentence is alone, and so is a sentence of a file that has no documents. 0: every sentence is alone.
    """
    context: list[Sentence] = []
    words = 0
    for sentence in sentences:
        size = max(1, len(sentence.words))  # so that a context has an end if no sentence has words
        words += size
        if context and not (words <= most_words and _follows(sentence, context[-1])):
            yield context
            context, words = [], size
        context.append(sentence)
    if context:
        yield context


def _follows(sentence: Sentence, before: Sentence) -> bool:
    """Whether both are of one document."""
    places = [(found.source.name, found.document) for found in (sentence, before)]
    return sentence.document is not None and places[0] == places[1]
