"""Export of tokenizers and detokenizers to C: characters, bytes, words, and byte-level subwords."""

from functools import cache
from typing import Any

import numpy as np

from ensue.extensions.exporting.c.printing import Weights, add_characters, add_hash_table, add_texts, c_array, ranges
from ensue.text import tokenizer as tokenizers
from ensue.text.pieces import import_library
from ensue.text.subwords import SubwordTokenizer, byte_characters, is_byte_level

CLOSES, OPENS, QUOTE, ENDS_LINE = 1, 2, 4, 8  # bits of a word for blanks.h
CLASSES = {"LETTERS": r"\p{L}", "NUMBERS": r"\p{N}", "BLANKS": r"\s"}
_CHUNK_CHARACTERS, _MAX_CODE_POINTS = 1 << 10, 0x40000
"""The number of characters per call of the splitter, and a bound above all code points of letters and numbers."""
MIN_WINDOW_BYTES = 1024
"""The minimum number of bytes that merges.h buffers until tokens become final."""
_MASK = (1 << 32) - 1


def lexer_templates(tokenizer: tokenizers.Tokenizer, weights: Weights) -> list[str]:
    """Return names of C templates and C tables, and add constants. Raises ValueError for an unsupported tokenizer."""
    if tokenizer.lowercase:
        raise ValueError("lowercasing is unsupported")
    if isinstance(tokenizer, tokenizers.CharacterTokenizer):
        weights.constants |= add_characters(tokenizer, weights)
        return ["points.h", "characters.h", "at_once.h"]
    if isinstance(tokenizer, tokenizers.ByteTokenizer):
        return ["bytes.h", "at_once.h"]
    if isinstance(tokenizer, SubwordTokenizer):
        return [subword_tables(tokenizer, weights), "merges.h", "subwords.h", "subword_lexer.h"]
    if not isinstance(tokenizer, tokenizers.WordTokenizer):
        raise ValueError(f"unsupported tokenizer {tokenizer.kind}")
    weights.constants |= {
        "IS_SIMPLE": int(tokenizer.splitter == "simple"), "LINE_END": tokenizer.start_id,
        "MAX_TOKEN_BYTES": max(len(symbol.encode("utf-8", "surrogatepass")) for symbol in tokenizer.symbols),
    }  # fmt: skip
    marks, digits = ranges(f"[{tokenizers.PUNCTUATION}]"), ranges(r"\d")
    tables = f"static const uint32_t MARKS[] = {{{marks}}};\nstatic const uint32_t DIGITS[] = {{{digits}}};\n"
    return ["lexicon.h", tables + add_hash_table("KNOWN_TOKEN", tokenizer.vocabulary, weights), "words.h"]


def detokenizer_constants(tokenizer: tokenizers.Tokenizer, symbols: list[bytes], weights: Weights) -> dict[str, Any]:
    """Add the texts of tokens, and return the C constants for blanks.h and for decoding ids."""
    at_starts, at_texts = add_texts(symbols, weights)
    is_words = isinstance(tokenizer, tokenizers.WordTokenizer)
    kinds = bytes(_classify_word(tokenizer, id) for id in range(len(symbols)) if is_words)
    offsets = {"AT_STARTS": at_starts, "AT_TEXTS": at_texts, "AT_KINDS": weights.add(kinds)}
    return offsets | {"IS_WORDS": int(is_words)}


def token_bytes(tokenizer: tokenizers.Tokenizer, id: int) -> bytes:
    """Return the bytes of a token, in UTF-8 unless it is a byte or a byte-level subword."""
    if isinstance(tokenizer, tokenizers.ByteTokenizer):
        return bytes([id])
    if isinstance(tokenizer, SubwordTokenizer):
        return tokenizer.pieces[id]
    return tokenizer.symbol(id).encode("utf-8", "surrogatepass")


def _classify_word(tokenizer: Any, id: int) -> int:
    word = tokenizer.word(id)
    if word == "\n":
        return ENDS_LINE
    if tokenizer.splitter != "simple":
        return 0
    if word in tokenizers.QUOTES:
        return QUOTE
    closes, opens = tokenizers.WordJoiner(joins_marks=True).mark_sides(word)
    return CLOSES * closes | OPENS * opens


@cache
def library_ranges(expression: str) -> list[int]:
    """Return the first and last code point of each range of a class, by the Unicode data of the tokenizers library."""
    library, result = import_library(), list[int]()
    splitter = library.pre_tokenizers.Split(library.Regex(f"{expression}+"), "removed", invert=True)
    for begin in range(0, _MAX_CODE_POINTS, _CHUNK_CHARACTERS):
        text = "".join(chr(point) for point in range(begin, begin + _CHUNK_CHARACTERS) if not 0xD800 <= point < 0xE000)
        for match, _ in splitter.pre_tokenize_str(text):
            first, last = ord(match[0]), ord(match[-1])
            if result and result[-1] == first - 1:
                result[-1] = last
            else:
                result += [first, last]
    return result


def subword_tables(tokenizer: SubwordTokenizer, weights: Weights) -> str:
    """Return the tables of merges.h and subwords.h. Raises ValueError for an unsupported tokenizer."""
    content = tokenizer.tokenizer
    if not is_byte_level(content):
        raise ValueError("expected the pre-tokenizer of GPT-2")
    merges = merge_table(content["model"])
    # sorted from the last byte to the first, so that merges.h finds the tokens with which a prefix may end
    ids = sorted(_find_mergeable(merges), key=lambda id: tokenizer.pieces[id][::-1])
    slots = 4 << len(merges).bit_length()
    pairs, table = np.zeros(slots, np.uint32), np.zeros((tokenizer.vocabulary_size, 3), np.uint32)
    for id, (left, right, rank) in merges.items():
        table[id] = left, right, rank
        if rank:
            slot = left * 0x9E3779B1 + right * 0x85EBCA6B & _MASK  # the hash function of merges.h
            slot = (slot ^ slot >> 15) & slots - 1
            while pairs[slot]:
                slot = (slot + 1) & slots - 1
            pairs[slot] = id + 1
    longest = max(len(tokenizer.pieces[id]) for id in ids)
    at_starts, at_pieces = add_texts(tokenizer.pieces, weights)
    weights.constants |= {
        "WINDOW": max(MIN_WINDOW_BYTES, 8 * longest), "MAX_TOKEN_BYTES": longest, "ENDINGS": len(ids),
        "PAIR_MASK": slots - 1, "AT_ENDINGS": weights.add(np.array(ids, np.uint32)), "AT_MERGES": weights.add(table),
        "AT_PAIRS": weights.add(pairs), "AT_PIECE_STARTS": at_starts, "AT_PIECES": at_pieces,
        "VOCABULARY": tokenizer.vocabulary_size,
    }  # fmt: skip
    return "".join(c_array("uint32_t", name, library_ranges(expression)) for name, expression in CLASSES.items())


def merge_table(model: dict[str, Any]) -> dict[int, tuple[int, int, int]]:
    """Return (left, right, rank) for each token that results from a merge, and (0, 0, 0) for each byte.

    Raises ValueError if a merge precedes the merge of its left or right token, or if two merges have the same result.
    """
    ids: dict[str, int] = model["vocab"]
    result = {ids[character]: (0, 0, 0) for character in byte_characters()}
    for rank, merge in enumerate(model["merges"], 1):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        token = ids[left + right]
        if token in result or not {ids[left], ids[right]} <= result.keys():
            raise ValueError(f'the merges are not in training order ("{left} {right}")')
        result[token] = ids[left], ids[right], rank
    return result


def _find_mergeable(merges: dict[int, tuple[int, int, int]]) -> list[int]:
    """Return the tokens whose text is encoded as a single token: bytes, and merges of two compatible tokens.

    Two tokens are compatible if the merges of their bytes give these two tokens (van Antwerpen & Neubeck 2024). Merges
    at the boundary are undone, the latest first; a merge across the boundary must not have a lower rank.
    """
    ranks = {(left, right): rank for left, right, rank in merges.values() if rank}

    def is_compatible(left: int, right: int, limit: int) -> bool:
        while limit and ranks.get((left, right), limit) >= limit:
            left_merge, right_merge = merges[left], merges[right]
            if max(left_merge[2], right_merge[2]) == 0:
                return True
            if left_merge[2] > right_merge[2]:
                limit, left = left_merge[2], left_merge[1]
            else:
                limit, right = right_merge[2] + 1, right_merge[0]
        return not limit

    return [id for id, merge in merges.items() if is_compatible(*merge)]
