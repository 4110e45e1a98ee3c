"""Vectors of words from their characters by filters and highways, as in ELMo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.nn.border import expect_words
from ensue.nn.embeddings import TokenEmbedding
from ensue.nn.highway import Highway


class HighwayCharacterCNN(nn.Module):
    """Filters over a word's characters, their largest responses, highways, a projection (Kim et al. 2016, section 2;
    Peters et al. 2018):

        r_j = g(max_t (W_j [x_t; ...; x_{t+k-1}] + b_j))        y = W_p highways(r) + b_p

    `filters` are pairs (width k, number). A word has `longest` characters; the positions behind its end hold the
    character `padding`, which is read like any other. Words of fewer positions are as if they were padded so.

    A word shorter than a filter is padded for it. Raises `ValueError` for filters that are none, or wider than a word.
    """

    def __init__(
        self,
        num_characters: int,
        *,
        d_character: int,
        d_out: int,
        filters: Sequence[tuple[int, int]],
        num_highways: int = 2,
        activation: Literal["relu", "tanh"] = "relu",
        longest: int = 50,
        padding: int,
    ) -> None:
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
