"""Texts as tokens in C, and tokens as texts: characters, bytes, words, and byte-level subwords with their merges."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ensue.extensions.exporting.c.printing import Weights, c_array, character_table, ranges, texts, vocabulary
from ensue.text.characters import CharacterTokenizer
from ensue.text.pieces import import_library
from ensue.text.subwords import SubwordTokenizer, byte_characters, is_byte_level
from ensue.text.tokenizer import Tokenizer
from ensue.text.utf8 import ByteTokenizer
from ensue.text.words import PUNCTUATION, QUOTES, WordTokenizer, WrittenWords

CLOSES, OPENS, QUOTE, ENDS_LINE = 1, 2, 4, 8
CLASSES = {"LETTERS": r"\p{L}", "NUMBERS": r"\p{N}", "BLANKS": r"\s"}
_AT_ONCE, _END = 1 << 10, 0x40000
"""Characters that are looked at together, and behind the last plane with letters or numbers."""
_FEWEST_BYTES = 1024
"""Of a window of the C file."""
_WORD = (1 << 32) - 1


def lexer_pieces(tokenizer: Tokenizer, weights: Weights, constants: dict[str, Any]) -> list[str]:
    """The pieces that find the tokens of a text. Raises ValueError for a tokenizer that these do not have."""
    if tokenizer.lowercase:
        raise ValueError("texts are lowercased")
    if isinstance(tokenizer, CharacterTokenizer):
        constants |= character_table(tokenizer, weights)
        return ["points.h", "characters.h", "at_once.h"]
    if isinstance(tokenizer, ByteTokenizer):
        return ["bytes.h", "at_once.h"]
    if isinstance(tokenizer, SubwordTokenizer):
        return [subword_tables(tokenizer, weights, constants), "merges.h", "subwords.h", "subword_lexer.h"]
    if not isinstance(tokenizer, WordTokenizer):
        raise ValueError(f"its tokens are {tokenizer.kind}")
    constants |= {
        "IS_SIMPLE": int(tokenizer.splitter == "simple"), "LINE_END": tokenizer.start_id,
        "LONGEST": max(len(symbol.encode("utf-8", "surrogatepass")) for symbol in tokenizer.symbols),
    }  # fmt: skip
    marks, digits = ranges(f"[{PUNCTUATION}]"), ranges(r"\d")
    tables = f"static const uint32_t MARKS[] = {{{marks}}};\nstatic const uint32_t DIGITS[] = {{{digits}}};\n"
    return ["lexicon.h", tables + vocabulary("KNOWN_TOKEN", tokenizer.vocabulary, weights), "words.h"]


def token_texts(tokenizer: Tokenizer, symbols: list[bytes], weights: Weights) -> dict[str, Any]:
    """The constants of blanks.h, and where the `symbols` are, the texts of tokens."""
    at_starts, at_texts = texts(symbols, weights)
    kinds = bytes(_kind(tokenizer, id) for id in range(len(symbols)) if isinstance(tokenizer, WordTokenizer))
    places = {"AT_STARTS": at_starts, "AT_TEXTS": at_texts, "AT_KINDS": weights.add(kinds)}
    return places | {"IS_WORDS": int(isinstance(tokenizer, WordTokenizer))}


def symbol(tokenizer: Tokenizer, id: int) -> bytes:
    """The bytes that stand in a text for a token."""
    if isinstance(tokenizer, ByteTokenizer):
        return bytes([id])
    if isinstance(tokenizer, SubwordTokenizer):
        return tokenizer.pieces[id]
    return tokenizer.symbol(id).encode("utf-8", "surrogatepass")


def _kind(tokenizer: WordTokenizer, id: int) -> int:
    """How a word is written beside others: bits."""
    word = tokenizer.word(id)
    if word == "\n":
        return ENDS_LINE
    if tokenizer.splitter != "simple":
        return 0
    if word in QUOTES:
        return QUOTE
    closes, opens = WrittenWords(joins_marks=True).sides(word)
    return CLOSES * closes | OPENS * opens


@cache
def class_ranges(expression: str) -> list[int]:
    """The code points (first, last) of each range of the library's expressions, whose Unicode is not Python's."""
    library, found = import_library(), list[int]()
    splitter = library.pre_tokenizers.Split(library.Regex(f"{expression}+"), "removed", invert=True)
    for begin in range(0, _END, _AT_ONCE):
        text = "".join(chr(point) for point in range(begin, begin + _AT_ONCE) if not 0xD800 <= point < 0xE000)
        for part, _ in splitter.pre_tokenize_str(text):
            first, last = ord(part[0]), ord(part[-1])
            if found and found[-1] == first - 1:
                found[-1] = last
            else:
                found += [first, last]
    return found


def subword_tables(tokenizer: SubwordTokenizer, weights: Weights, constants: dict[str, Any]) -> str:
    """The tables of merges.h and subwords.h. Raises ValueError for a tokenizer that these do not have."""
    content = tokenizer.tokenizer
    if not is_byte_level(content):
        raise ValueError("another splitter than GPT-2's cuts its text into words")
    merges = merge_table(content["model"])
    ids = sorted(_made(merges), key=lambda id: tokenizer.pieces[id][::-1])
    slots = 4 << len(merges).bit_length()
    pairs, table = np.zeros(slots, np.uint32), np.zeros((tokenizer.vocabulary_size, 3), np.uint32)
    for id, (left, right, rank) in merges.items():
        table[id] = left, right, rank
        if rank:
            at = left * 0x9E3779B1 + right * 0x85EBCA6B & _WORD
            at = (at ^ at >> 15) & slots - 1
            while pairs[at]:
                at = (at + 1) & slots - 1
            pairs[at] = id + 1
    longest = max(len(tokenizer.pieces[id]) for id in ids)
    at_starts, at_pieces = texts(tokenizer.pieces, weights)
    constants |= {
        "WINDOW": max(_FEWEST_BYTES, 8 * longest), "LONGEST": longest, "ENDINGS": len(ids), "PAIR_MASK": slots - 1,
        "AT_ENDINGS": weights.add(np.array(ids, np.uint32)), "AT_MERGES": weights.add(table),
        "AT_PAIRS": weights.add(pairs), "AT_PIECE_STARTS": at_starts, "AT_PIECES": at_pieces,
        "VOCABULARY": tokenizer.vocabulary_size,
    }  # fmt: skip
    return "".join(c_array("uint32_t", name, class_ranges(expression)) for name, expression in CLASSES.items())


def merge_table(model: dict[str, Any]) -> dict[int, tuple[int, int, int]]:
    """Of each token that is a byte or comes of a merge: its parts, and the number of the merge, from 1 on; 0 of bytes.

    Raises ValueError if a merge stands before those of its parts, or a token comes of two.
    """
    ids: dict[str, int] = model["vocab"]
    found = {ids[character]: (0, 0, 0) for character in byte_characters()}
    for rank, merge in enumerate(model["merges"], 1):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        token = ids[left + right]
        if token in found or not {ids[left], ids[right]} <= found.keys():
            raise ValueError(f'its merges are not in the order of a training ("{left} {right}")')
        found[token] = ids[left], ids[right], rank
    return found


def _made(merges: dict[int, tuple[int, int, int]]) -> list[int]:
    """The tokens that the merges make of their own bytes, as `stand_together` of merges.h finds it."""
    ranks = {(left, right): rank for left, right, rank in merges.values() if rank}

    def is_made(left: int, right: int, limit: int) -> bool:
        while limit and ranks.get((left, right), limit) >= limit:
            one, other = merges[left], merges[right]
            if max(one[2], other[2]) == 0:
                return True
            if one[2] > other[2]:
                limit, left = one[2], one[1]
            else:
                limit, right = other[2] + 1, other[0]
        return not limit

    return [id for id, merge in merges.items() if is_made(*merge)]
