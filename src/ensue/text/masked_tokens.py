"""A tokenizer for models that fill in masks: a text between [CLS] and [SEP], and [MASK] in place of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.text.special_tokens import ExtendedTokenizer
from ensue.text.tokenizer import Tokenizer
from ensue.text.wordpiece import BEGIN, MASK, PADDING, SEPARATOR

FRAMING = (PADDING, BEGIN, SEPARATOR, MASK)


class MaskedText(NamedTuple):
    """The ids of a text with masks, and the text between them."""

    ids: NDArray[np.int64]
    parts: tuple[str, ...]


class MaskedTokenizer(ExtendedTokenizer):
    """The ids of `tokenizer`, then those of the special tokens that it has not itself. WordPiece has all of them.

    A model reads `begin_id` before a text and `separator_id` after it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        own = dict(tokenizer.special_ids)
        super().__init__(tokenizer, [name for name in FRAMING if name not in own])
        behind = {name: tokenizer.vocabulary_size + place for place, name in enumerate(self.behind)}
        self.padding_id, self.begin_id, self.separator_id, self.mask_id = ((own | behind)[name] for name in FRAMING)
        special = {*self.special_ids, tokenizer.unknown_id}
        self.text_ids = np.array([id for id in range(self.vocabulary_size) if id not in special], np.int64)
        """The ids of known tokens."""
        symbols = [self.symbol(id) for id in range(self.vocabulary_size)]
        if tokenizer.inside:
            begins = [not symbol.startswith(tokenizer.inside) for symbol in symbols]
        else:  # a blank or a punctuation mark
            begins = [not symbol[:1].isalnum() for symbol in symbols]
        self.begins_word = np.array(begins)
        """Whether a token begins a word, for each id."""

    def framed(self, *texts: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]`."""
        ends = [part for text in texts for part in (text, [self.separator_id])]
        return np.concatenate([[self.begin_id], *ends]).astype(np.int64)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of a text, and from where to where each goes in it, (N, 2), without the blank before a word."""
        before = len(self._before) if text else 0
        ids, offsets = self.tokenizer.encode_with_offsets(self._before[:before] + text)
        offsets = np.maximum(offsets - before, 0)
        for place, (start, stop) in enumerate(offsets.tolist()):
            blanks = len(text[start:stop]) - len(text[start:stop].lstrip())
            offsets[place, 0] += blanks if blanks < stop - start else 0
        return ids.astype(np.int64), offsets

    def encode_masked(self, text: str) -> MaskedText:
        """The ids of a text in which `[MASK]` stands for tokens."""
        parts = text.split(MASK)
        joins = self.tokenizer.joins_blanks
        lefts = [part.removesuffix(" ") if joins else part for part in parts[:-1]] + parts[-1:]
        pieces = [self.encode(lefts[0])]
        for part in lefts[1:]:
            pieces += [np.array([self.mask_id]), self.tokenizer.encode(part).astype(np.int64)]
        return MaskedText(np.concatenate(pieces), tuple(parts))

    def filled(self, parts: Sequence[str], fills: Sequence[int]) -> str:
        """The text with these tokens in place of its masks. A token that goes on with a word comes without a blank."""
        text = parts[0]
        for id, part in zip(fills, parts[1:], strict=True):
            symbol = self.symbol(id)
            if self.tokenizer.joins_blanks or not self.begins_word[id]:
                text = text.removesuffix(" ")
            if not text:
                symbol = symbol.removeprefix(" ")
            text += symbol.removeprefix(self.tokenizer.inside) + part
        return text

    def __repr__(self) -> str:
        return f"MaskedTokenizer({self.tokenizer!r})"


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
