"""Vectors of words from their characters, trained with the task: by an LSTM in both directions, or by a convolution.

These are not layers: the characters of U words (U, L), right-padded, give one vector for each word (U, d_out). For a
batch of sentences, compute each distinct word once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.border import expect, expect_words
from ensue.nn.combinators import reverse_rows
from ensue.nn.embeddings import TokenEmbedding
from ensue.nn.layer import blank
from ensue.nn.pooling import MaxPooling
from ensue.nn.recurrent.lstm import LSTM
from ensue.nn.taps import Tap


class Highway(nn.Module):
    """Changes x where a gate is open, and leaves it as it is elsewhere (Srivastava et al. 2015):

        g = σ(W_g x + b_g)        y = g ⊙ relu(W x + b) + (1 - g) ⊙ x

    It maps (..., d) to (..., d). The bias of the gate starts at -2, so that most of x goes through.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d
        self.transform, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """The features of `x`. Raises `ValueError` for a wrong size, `TypeError` for a wrong type."""
        expect(type(self).__name__, "x", x, (..., self.d), self.gate.bias.dtype, like=self.gate.bias)
        return torch.lerp(x, torch.relu(self.transform(x)), torch.sigmoid(self.gate(x)))

    def __repr__(self) -> str:
        return f"Highway({self.d})"


class HighwayCharacterCNN(nn.Module):
    """Filters over a word's characters, their largest responses, highways, a projection (Kim et al. 2016, section 2;
    Peters et al. 2018):

        r_j = g(max_t (W_j [x_t; ...; x_{t+k-1}] + b_j))        y = W_p highways(r) + b_p

    `filters` are pairs (width k, number). A word has `longest` characters; the positions behind its end hold the
    character `padding`, which is read like any other. Words of fewer positions are as if they were padded so.

    A word shorter than a filter is padded for it. Raises `ValueError` for filters that are none, or wider than a word.
    """

    def __init__(
        self, num_characters: int, *, d_character: int, d_out: int, filters: Sequence[tuple[int, int]],
        num_highways: int = 2, activation: Literal["relu", "tanh"] = "relu", longest: int = 50, padding: int,
    ) -> None:  # fmt: skip
        super().__init__()
        if not filters or min(min(pair) for pair in filters) < 1:
            raise ValueError(f"filters are pairs of a width and a number, both at least 1, not {filters!r}")
        if max(width for width, _ in filters) > longest:
            raise ValueError(f"a filter is not wider than a word of {longest} characters: {filters!r}")
        self.filters, self.longest, self.padding = tuple(filters), longest, padding
        self.d_out, d = d_out, sum(number for _, number in filters)
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.convolutions = nn.ModuleList(nn.Conv1d(d_character, number, width) for width, number in filters)
        self.nonlinearity: nn.Module = nn.ReLU() if activation == "relu" else nn.Tanh()
        self.highways = nn.Sequential(*(Highway(d) for _ in range(num_highways)))
        self.projection = nn.Linear(d, d_out)

    def forward(self, ids: Int[Tensor, "U L"]) -> Float[Tensor, "U {self.d_out}"]:
        """The vectors of words. Raises `ValueError` for a wrong size, `TypeError` for a wrong type."""
        expect_words(type(self).__name__, ids, None)
        if ids.shape[1] > self.longest:
            raise ValueError(f"{type(self).__name__} expects up to {self.longest} characters, found {ids.shape[1]}")
        x = self.embedding(self.padded(ids)).transpose(1, 2)
        responses = [convolution(x).amax(2) for convolution in self.convolutions]
        word: Tensor = self.projection(self.highways(self.nonlinearity(torch.cat(responses, dim=1))))
        return word

    def padded(self, ids: Tensor) -> Tensor:
        """The positions up to one window of padding alone for each filter; further ones would respond the same."""
        columns = (ids != self.padding).any(0).nonzero()
        length = int(columns[-1]) + 1 if len(columns) else 0
        wanted = min(self.longest, length + max(width for width, _ in self.filters))
        if wanted <= ids.shape[1]:
            return ids[:, :wanted]
        return nn.functional.pad(ids, (0, wanted - ids.shape[1]), value=self.padding)

    def extra_repr(self) -> str:
        return f"filters={self.filters}, longest={self.longest}"


class CharacterLSTM(nn.Module):
    """The last states of an LSTM that reads a word's characters forward and of one that reads them backward.

    Ling et al. 2015; Lample et al. 2016, section 4.1. `[h_forward(last); h_backward(first)]`, half of `d_out` each.
    """

    def __init__(self, num_characters: int, *, d_character: int, d_out: int) -> None:
        super().__init__()
        if d_out % 2:
            raise ValueError(f"d_out is shared by two directions; {d_out} is odd")
        self.d_character, self.d_out = d_character, d_out
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.rightward, self.leftward = LSTM(d_character, d_out // 2), LSTM(d_character, d_out // 2)
        self.word = Tap()

    def forward(
        self, ids: Int[Tensor, "U L"], mask: Bool[Tensor, "U L"] | None = None
    ) -> Float[Tensor, "U {self.d_out}"]:
        """The vectors of words. `mask` is True on a word's characters, which come first; an empty word gives zeros."""
        expect_words(type(self).__name__, ids, mask)
        backward = reverse_rows(ids.unsqueeze(-1), mask).squeeze(-1)
        _, last = self.rightward(self.embedding(ids), mask=mask)
        _, first = self.leftward(self.embedding(backward), mask=mask)
        word: Tensor = self.word(torch.cat((last.h, first.h), dim=1))
        return word


class CharacterCNN(nn.Module):
    """The largest response of each filter over a word's characters (dos Santos & Zadrozny 2014; Ma & Hovy 2016).

        r_j = max_t (W [x_{t-k}; ...; x_t; ...; x_{t+k}] + b)_j

    The windows of width 2 k + 1 are centered on each character; an even width has one more character on the right.
    Zeros stand before and after the word. The widths share `d_out` equally.
    """

    def __init__(self, num_characters: int, *, d_character: int, d_out: int, widths: Sequence[int] = (3,)) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(f"widths are one or more numbers of characters, not {widths!r}")
        if d_out % len(widths):
            raise ValueError(f"d_out is shared equally by the widths; {d_out} does not divide by {len(widths)}")
        self.d_character, self.d_out, self.widths = d_character, d_out, tuple(widths)
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.filters = nn.ModuleList(nn.Linear(width * d_character, d_out // len(widths)) for width in widths)
        self.maximum = MaxPooling(d_out)
        self.responses = Tap()

    def forward(
        self, ids: Int[Tensor, "U L"], mask: Bool[Tensor, "U L"] | None = None
    ) -> Float[Tensor, "U {self.d_out}"]:
        """The vectors of words. `mask` is True on a word's characters, which come first; an empty word gives zeros."""
        expect_words(type(self).__name__, ids, mask)
        x = blank(self.embedding(ids), mask)
        responses = [linear(_windows(x, width)) for linear, width in zip(self.filters, self.widths, strict=True)]
        word: Tensor = self.maximum(self.responses(torch.cat(responses, dim=-1)), mask)
        return word

    def extra_repr(self) -> str:
        return f"widths={self.widths}"


def _windows(x: Tensor, width: int) -> Tensor:
    """`x` (U, L, d) as (U, L, width * d): each position with its neighbors."""
    before = (width - 1) // 2
    padded = nn.functional.pad(x, (0, 0, before, width - 1 - before))
    return torch.cat([padded[:, k : k + x.shape[1]] for k in range(width)], dim=-1)
