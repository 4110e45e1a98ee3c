"""The numbers of data: amounts, lengths, labels, and the first mistake. It prints nothing.

Files are read once, in memory that grows only with their distinct words, characters, labels and lengths.
"""

from __future__ import annotations

from pathlib import Path

from ensue.data.decoding import checked_encoding
from ensue.data.detection.kind import data_kind, take
from ensue.data.survey.counts import Summary
from ensue.data.survey.document_survey import survey_documents
from ensue.data.survey.pair_survey import survey_pairs
from ensue.data.survey.plain_survey import survey_plain
from ensue.data.survey.sentence_survey import survey_sentences
from ensue.errors import DataError

_KINDS = {"sentences": "labeled sentences", "texts": "labeled texts", "text": "plain text"}


def summarize(
    location: str | Path,
    *,
    format: str = "",
    words: str = "",
    labels: str = "",
    sources: str = "",
    targets: str = "",
    against: str = "",
    encoding: str = "utf-8",
) -> Summary:
    """Data read from end to end, or up to the first wrong line. `words` and `labels` are columns or keys; of texts,
    `words` may be several with commas between them: two are a pair, more are one text in parts.

    `sources` and `targets` name columns of pairs, several with commas between them. `against` is the location of a
    test, whose pairs are looked for in the data.

    Raises DataError where nothing can be read at all: no such file, nothing in it, an unknown format or encoding.
    """
    encoding = "utf-8" if checked_encoding(encoding) == "utf-8" else encoding
    are_pairs = bool(sources or targets)
    taken = take(location, format=format, words=words, labels=labels, are_pairs=are_pairs, encoding=encoding)
    if against and taken.kind != "pairs":
        raise DataError(
            f"it is taken for {_KINDS.get(taken.kind, taken.kind)}; only pairs can be held against others", location
        )
    match taken.kind:
        case "sentences":
            return survey_sentences(taken, str(location), words, labels, encoding)
        case "texts":
            return survey_documents(taken, str(location), words, labels, encoding)
        case "pairs":
            if asked := words or labels:
                raise DataError(f'no column "{asked}": they are pairs; --sources and --targets name columns', location)
            return survey_pairs(taken, str(location), _names(sources), _names(targets), encoding, against)
        case "text":
            if asked := words or labels:
                advice = "it is taken for plain text, which has none; --format says what it is"
                raise DataError(f'no column "{asked}": {advice}', location)
            return survey_plain(taken, str(location), encoding)
    return data_kind(taken.kind).survey(taken, str(location), words, labels, encoding)  # type: ignore[no-any-return]


def _names(columns: str) -> list[str]:
    return list(filter(None, columns.split(",")))
