"""Tokenizer of masked language models: a text between [CLS] and [SEP], with [MASK] in place of tokens."""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ensue.text.special_tokens import ExtendedTokenizer
from ensue.text.tokenizer import Tokenizer
from ensue.text.wordpiece import BEGIN, MASK, PADDING, SEPARATOR

FRAME_TOKENS = (PADDING, BEGIN, SEPARATOR, MASK)


class MaskedTokenizer(ExtendedTokenizer):
    """A tokenizer with the special tokens of masked language models. Tokens that `tokenizer` lacks get new ids.

    A model reads `begin_id` before a text and `separator_id` after the text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = dict(tokenizer.special_ids)
        super().__init__(tokenizer, [name for name in FRAME_TOKENS if name not in ids])
        ids |= {name: tokenizer.vocabulary_size + index for index, name in enumerate(self.added)}
        self.padding_id, self.begin_id, self.separator_id, self.mask_id = (ids[name] for name in FRAME_TOKENS)
        special = {*self.special_ids, tokenizer.unknown_id}
        self.text_ids = np.array([id for id in range(self.vocabulary_size) if id not in special], np.int64)
        """The ids of all tokens except special tokens and the unknown token."""
        symbols = [self.symbol(id) for id in range(self.vocabulary_size)]
        if tokenizer.inside:
            begins = [not symbol.startswith(tokenizer.inside) for symbol in symbols]
        else:  # tokens at the start of a word begin with a blank or a punctuation mark
            begins = [not symbol[:1].isalnum() for symbol in symbols]
        self.begins_word = np.array(begins)
        """Whether each token begins a word, (V,)."""

    def add_frame(self, *texts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]`, as ids."""
        segments = [ids for text in texts for ids in (text, [self.separator_id])]
        return np.concatenate([[self.begin_id], *segments]).astype(np.int64)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids (N,) of a text, and the offsets (N, 2) of each token, which exclude a leading blank."""
        before = len(self._before) if text else 0
        ids, offsets = self.tokenizer.encode_with_offsets(self._before[:before] + text)
        offsets = np.maximum(offsets - before, 0)
        for index, (start, stop) in enumerate(offsets.tolist()):
            blanks = len(text[start:stop]) - len(text[start:stop].lstrip())
            offsets[index, 0] += blanks if blanks < stop - start else 0
        return ids.astype(np.int64), offsets

    def encode_masked(self, text: str) -> tuple[NDArray[np.int64], list[str]]:
        """Return the ids of a text in which each `[MASK]` stands for one token, and the strings around the masks."""
        strings = text.split(MASK)
        joins = self.tokenizer.joins_blanks
        first, *others = [text.removesuffix(" ") if joins else text for text in strings[:-1]] + strings[-1:]
        ids = [self.encode(first)]
        for string in others:
            ids += [np.array([self.mask_id]), self.tokenizer.encode(string).astype(np.int64)]
        return np.concatenate(ids), strings

    def fill(self, strings: Sequence[str], fills: Sequence[int]) -> str:
        """Return the text with its masks replaced by the tokens `fills`. No blank precedes a token inside a word."""
        text = strings[0]
        for id, string in zip(fills, strings[1:], strict=True):
            symbol = self.symbol(id)
            if self.tokenizer.joins_blanks or not self.begins_word[id]:
                text = text.removesuffix(" ")
            if not text:
                symbol = symbol.removeprefix(" ")
            text += symbol.removeprefix(self.tokenizer.inside) + string
        return text

    def __repr__(self) -> str:
        return f"MaskedTokenizer({self.tokenizer!r})"


Documents = Literal["lines", "blank-lines"]
FORMAT_VERSION = 1
_BREAK = re.compile(r"((?:[ \t\r]*\n)+[ \t\r]*)")
_BLANKS = re.compile(r"[ \t\r]+")


class DocumentStream:
    """A tokenizer of a text of several documents, with [SEP] between documents.

    A document is a line, or it ends at a blank line. With `sentences`, each line is a sentence: [SEP] separates
    sentences, and [CLS] separates documents. Each run of blanks is replaced by one blank. If the text is cut at a
    boundary (`boundaries.py`), the ids do not change.
    """

    def __init__(self, coder: MaskedTokenizer, *, documents: Documents, sentences: bool = False) -> None:
        self.coder, self.documents, self.sentences = coder, documents, sentences
        self.vocabulary_size, self.unknown_id = coder.vocabulary_size, coder.tokenizer.unknown_id

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a chunk of the text."""
        ids: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        pieces = _BREAK.split(text)
        for piece, ending in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            if words := _BLANKS.sub(" ", piece).strip(" "):
                ids.append(self.coder.encode(words))
            if (separator := self._separator(ending)) is not None:
                ids.append(np.array([separator]))
        return np.concatenate(ids)

    def _separator(self, ending: str) -> int | None:
        is_document = self.documents == "lines" or ending.count("\n") > 1
        if not ending or not (is_document or self.sentences):
            return None
        return self.coder.begin_id if is_document and self.sentences else self.coder.separator_id

    def to_json(self) -> dict[str, Any]:
        """Return the settings that the ids depend on, as JSON values."""
        kind = {"documents": self.documents, "sentences": self.sentences, "format": FORMAT_VERSION}
        return {**kind, "tokenizer": self.coder.tokenizer.to_json()}
