"""Many documents as one stream of ids, with a mark between them."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ensue.text.masked_tokens import MaskedTokenizer

Documents = Literal["lines", "blank-lines"]
FORMAT = 1
_BREAK = re.compile(r"((?:[ \t\r]*\n)+[ \t\r]*)")
_BLANKS = re.compile(r"[ \t\r]+")


class DocumentStream:
    """A text as ids with [SEP] between two documents, which are lines, or end at blank lines.

    Between two words of a document is one blank. With `sentences`, each line is a sentence: [SEP] is between two of
    them, and [CLS] between two documents. A cut at a boundary (`boundaries.py`) changes no id.
    """

    def __init__(self, coder: MaskedTokenizer, *, documents: Documents, sentences: bool = False) -> None:
        self.coder, self.documents, self.sentences = coder, documents, sentences
        self.vocabulary_size, self.unknown_id = coder.vocabulary_size, coder.tokenizer.unknown_id

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a part of the text."""
        found: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        pieces = _BREAK.split(text)
        for piece, ending in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            if words := _BLANKS.sub(" ", piece).strip(" "):
                found.append(self.coder.encode(words))
            if (mark := self._mark(ending)) is not None:
                found.append(np.array([mark]))
        return np.concatenate(found)

    def _mark(self, ending: str) -> int | None:
        """The id in place of line ends; None for nothing."""
        is_document = self.documents == "lines" or ending.count("\n") > 1
        if not ending or not (is_document or self.sentences):
            return None
        return self.coder.begin_id if is_document and self.sentences else self.coder.separator_id

    def to_json(self) -> dict[str, Any]:
        """The settings that the ids depend on, as JSON values."""
        kind = {"documents": self.documents, "sentences": self.sentences, "format": FORMAT}
        return {**kind, "tokenizer": self.coder.tokenizer.to_json()}
