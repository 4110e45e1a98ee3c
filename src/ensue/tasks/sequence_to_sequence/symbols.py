"""Tokens of a source and an output, as they are shown one by one."""

from __future__ import annotations

from collections.abc import Sequence

from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.special_tokens import TokenizerWithSpecials


class Symbols:
    """The texts of ids: of tokens, and of words of the source that can be copied.

    A subword that continues a word has a dot before it; a blank by itself is shown as ␣.
    """

    def __init__(self, coder: PairCoder, columns: Sequence[str], *, is_source: bool = False) -> None:
        self.side = coder.source if is_source else coder.target
        self.words = {id: word for word, id in coder.unknown_words(columns).items()}

    def of(self, id: int) -> str:
        """The text of an id."""
        if id in self.words:
            return self.words[id]
        return shown(self.side, id)


def shown(tokenizer: TokenizerWithSpecials, id: int) -> str:
    """The text of an id of a tokenizer."""
    symbol = tokenizer.symbol(id)
    if tokenizer.tokenizer.kind == "bpe" and symbol[:1].isalnum():
        return f"·{symbol}"
    return symbol.strip() or {" ": "␣", "\n": "⏎"}.get(symbol, "␣")
