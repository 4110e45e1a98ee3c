"""The formats of labeled sentences by name."""

from __future__ import annotations

from ensue.data.sentences.columns import Columns
from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.json_sentences import JsonSentences
from ensue.data.sentences.plain import PlainText
from ensue.data.sentences.sentence import Format
from ensue.errors import DataError, nearest

FORMATS: dict[str, type[Format]] = {
    Columns.name: Columns,
    Conllu.name: Conllu,
    JsonSentences.name: JsonSentences,
    PlainText.name: PlainText,
}


def format_class(name: str) -> type[Format]:
    """The format of that name. Raises DataError, with all names, if there is none."""
    if name not in FORMATS:
        raise DataError(f'unknown format "{name}"; expected one of {", ".join(FORMATS)}{nearest(name, FORMATS)}')
    return FORMATS[name]
