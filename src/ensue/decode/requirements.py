"""Phrases that must occur: how much of each a hypothesis has, and what one more token changes.

For each phrase a hypothesis has a state: how many of the phrase's tokens stand at its end (Knuth, Morris & Pratt 1977),
or all of them once the phrase has occurred. Phrases may overlap. The sum of the states is the hypothesis's bank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from ensue.decode.hypotheses import Phrase


class Requirements:
    """The required phrases of each of B inputs, as tables: C phrases of up to L tokens, A different tokens."""

    def __init__(self, phrases: Sequence[Sequence[Phrase]], device: torch.device) -> None:
        self.phrases = [tuple(dict.fromkeys(of_input)) for of_input in phrases]
        tokens = [sorted({token for phrase in of_input for token in phrase}) for of_input in self.phrases]
        most = max(map(len, self.phrases))
        longest = max((len(phrase) for of_input in self.phrases for phrase in of_input), default=0)
        self.alphabet = torch.full((len(phrases), max(map(len, tokens))), -1)
        self.lengths = torch.zeros(len(phrases), most, dtype=torch.long)
        self.next = torch.zeros(len(phrases), most, longest + 1, self.alphabet.shape[1] + 1, dtype=torch.long)
        for number, (of_input, alphabet) in enumerate(zip(self.phrases, tokens, strict=True)):
            self.alphabet[number, : len(alphabet)] = torch.tensor(alphabet, dtype=torch.long)
            for place, phrase in enumerate(of_input):
                self.lengths[number, place] = len(phrase)
                self._fill(self.next[number, place], phrase, alphabet)
        self.alphabet, self.lengths, self.next = (
            table.to(device) for table in (self.alphabet, self.lengths, self.next)
        )

    @staticmethod
    def _fill(table: Tensor, phrase: Phrase, alphabet: list[int]) -> None:
        for state in range(len(phrase) + 1):
            table[state] = len(phrase) if state == len(phrase) else 0
            for symbol, token in enumerate(alphabet if state < len(phrase) else ()):
                table[state, symbol] = _suffix(phrase, (*phrase[:state], token))

    @property
    def count(self) -> int:
        """The most phrases that an input has, C."""
        return self.lengths.shape[1]

    def after(
        self, inputs: Int[Tensor, " B"], states: Int[Tensor, "B S C"], tokens: Int[Tensor, "B S M"]
    ) -> Int[Tensor, "B S M C"]:
        """The states of hypotheses of `inputs` after each of M tokens."""
        if not self.count:
            return tokens.new_empty(*tokens.shape, 0)
        same = tokens.unsqueeze(-1) == self.alphabet[inputs][:, None, None]
        symbols = torch.where(same.any(-1), same.int().argmax(-1), self.alphabet.shape[1])
        phrases = torch.arange(states.shape[2], device=tokens.device)
        return self.next[inputs[:, None, None, None], phrases, states.unsqueeze(2), symbols.unsqueeze(-1)]

    def lacked(self, number: int, states: Tensor) -> tuple[Phrase, ...]:
        """The phrases of an input that a hypothesis with these states (C,) lacks."""
        pairs = zip(self.phrases[number], states.tolist(), strict=False)
        return tuple(phrase for phrase, state in pairs if state < len(phrase))


def _suffix(phrase: Phrase, read: Phrase) -> int:
    """The length of the longest beginning of `phrase` that `read` ends with."""
    return next(length for length in range(len(read), -1, -1) if phrase[:length] == read[len(read) - length :])
