"""Embeddings of tokens, and vectors of words from their characters, by an LSTM in both directions or by convolutions.

The modules for characters are not sequence layers: they map the characters of U words (U, L), right-padded, to vectors
(U, d_out). For a batch of sentences, compute each distinct word once.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.border import expect, expect_words
from ensue.nn.combinators import reverse_rows
from ensue.nn.draws import check_probability
from ensue.nn.layer import mask_padding
from ensue.nn.pooling import MaxPooling
from ensue.nn.recurrent.lstm import LSTM
from ensue.nn.taps import Tap


class TokenEmbedding(nn.Module):
    """A table of trained vectors, which maps ids of tokens (...) to features (..., d_out).

    Vectors are multiplied by `scale` (Vaswani et al. 2017, section 3.4). The initial standard deviation of the table is
    `std`, by default 1/`scale`, so that features have unit variance. A table that is tied to the softmax needs smaller
    initial values: set a larger `scale` or a small `std`.

    `dropout` is the probability that the vector of a token is zero in a training step, at all its positions. All other
    vectors are scaled up (Gal & Ghahramani 2016).
    """

    def __init__(
        self, vocabulary_size: int, d_out: int, *, dropout: float = 0.0, scale: float = 1.0, std: float | None = None
    ) -> None:
        super().__init__()
        self.vocabulary_size, self.d_out, self.dropout = vocabulary_size, d_out, check_probability(dropout)
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_out))
        nn.init.normal_(self.weight, std=1 / scale if std is None else std)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_out"]:
        """Return the vectors of `ids`, of any shape. Raises TypeError unless `ids` are integers."""
        expect(type(self).__name__, "ids", ids, (...,), int, like=self.weight)
        if not self.training or self.dropout == 0:
            features = F.embedding(ids, self.weight)
            return features if self.scale == 1 else features * self.scale
        factors = F.dropout(self.weight.new_full((self.vocabulary_size, 1), self.scale), self.dropout)
        return F.embedding(ids, self.weight) * factors[ids]

    def extra_repr(self) -> str:
        return f"vocabulary_size={self.vocabulary_size}, d_out={self.d_out}, dropout={self.dropout}, scale={self.scale}"


class Highway(nn.Module):
    """A highway layer, a gated mean of transformed and unchanged features (Srivastava et al. 2015):

        g = σ(W_g x + b_g)        y = g ⊙ relu(W x + b) + (1 - g) ⊙ x

    It maps (..., d) to (..., d). The bias of the gate starts at -2, so that y is close to x at first.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d
        self.transform, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Return the features. Raises ValueError for a wrong size, TypeError for a wrong type."""
        expect(type(self).__name__, "x", x, (..., self.d), self.gate.bias.dtype, like=self.gate.bias)
        return torch.lerp(x, torch.relu(self.transform(x)), torch.sigmoid(self.gate(x)))

    def __repr__(self) -> str:
        return f"Highway({self.d})"


class HighwayCharacterCNN(nn.Module):
    """Convolutions over a word's characters, their maxima, highway layers and a projection (Kim et al. 2016, section 2;
    Peters et al. 2018):

        r_j = g(max_t (W_j [x_t; ...; x_{t+k-1}] + b_j))        y = W_p highways(r) + b_p

    `filters` are pairs (width k, number of filters). Words are padded to `longest` characters with the character
    `padding`, which is read like any other. Raises ValueError without filters, and for a filter wider than `longest`.
    """

    def __init__(
        self, num_characters: int, *, d_character: int, d_out: int, filters: Sequence[tuple[int, int]],
        num_highways: int = 2, activation: Literal["relu", "tanh"] = "relu", longest: int = 50, padding: int,
    ) -> None:  # fmt: skip
        super().__init__()
        if not filters or min(min(pair) for pair in filters) < 1:
            raise ValueError(f"filters must be pairs of a width and a number, both at least 1, found {filters!r}")
        if max(width for width, _ in filters) > longest:
            raise ValueError(f"filters must not be wider than `longest` = {longest} characters; found {filters!r}")
        self.filters, self.longest, self.padding = tuple(filters), longest, padding
        self.d_out, d = d_out, sum(number for _, number in filters)
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.convolutions = nn.ModuleList(nn.Conv1d(d_character, number, width) for width, number in filters)
        self.nonlinearity: nn.Module = nn.ReLU() if activation == "relu" else nn.Tanh()
        self.highways = nn.Sequential(*(Highway(d) for _ in range(num_highways)))
        self.projection = nn.Linear(d, d_out)

    def forward(self, ids: Int[Tensor, "U L"]) -> Float[Tensor, "U {self.d_out}"]:
        """Return the vectors of words. Raises ValueError for a wrong size, TypeError for a wrong type."""
        expect_words(type(self).__name__, ids, None)
        if ids.shape[1] > self.longest:
            raise ValueError(f"{type(self).__name__} expects up to {self.longest} characters, found {ids.shape[1]}")
        x = self.embedding(self.pad(ids)).transpose(1, 2)
        responses = [convolution(x).amax(2) for convolution in self.convolutions]
        return self.projection(self.highways(self.nonlinearity(torch.cat(responses, dim=1))))

    def pad(self, ids: Tensor) -> Tensor:
        """Return `ids` with one window of padding at the end. All windows of padding have the same responses."""
        columns = (ids != self.padding).any(0).nonzero()
        length = int(columns[-1]) + 1 if len(columns) else 0
        length = min(self.longest, length + max(width for width, _ in self.filters))
        if length <= ids.shape[1]:
            return ids[:, :length]
        return nn.functional.pad(ids, (0, length - ids.shape[1]), value=self.padding)

    def extra_repr(self) -> str:
        return f"filters={self.filters}, longest={self.longest}"


class CharacterLSTM(nn.Module):
    """The final states of two LSTMs, which read a word's characters forward and backward.

    The vector is `[h_forward(last); h_backward(first)]`; each LSTM has `d_out / 2` units. Source: Ling et al. 2015;
    Lample et al. 2016, section 4.1.
    """

    def __init__(self, num_characters: int, *, d_character: int, d_out: int) -> None:
        super().__init__()
        if d_out % 2:
            raise ValueError(f"d_out must be even (half for each direction), found {d_out}")
        self.d_character, self.d_out = d_character, d_out
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.rightward, self.leftward = LSTM(d_character, d_out // 2), LSTM(d_character, d_out // 2)
        self.word = Tap()

    def forward(
        self, ids: Int[Tensor, "U L"], mask: Bool[Tensor, "U L"] | None = None
    ) -> Float[Tensor, "U {self.d_out}"]:
        """Return the vectors of words; `mask` is True on characters, which come first. Empty words get zeros."""
        expect_words(type(self).__name__, ids, mask)
        backward = reverse_rows(ids.unsqueeze(-1), mask).squeeze(-1)
        _, final_forward = self.rightward(self.embedding(ids), mask=mask)
        _, final_backward = self.leftward(self.embedding(backward), mask=mask)
        return self.word(torch.cat((final_forward.h, final_backward.h), dim=1))


class CharacterCNN(nn.Module):
    """The maximum of each filter over a word's characters (dos Santos & Zadrozny 2014; Ma & Hovy 2016).

        r_j = max_t (W [x_{t-k}; ...; x_t; ...; x_{t+k}] + b)_j

    A window of width 2 k + 1 is centered on each character; a window of even width has one more character on the right.
    Words are padded with zeros. There are d_out / len(widths) filters of each width.
    """

    def __init__(self, num_characters: int, *, d_character: int, d_out: int, widths: Sequence[int] = (3,)) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(f"widths must be one or more numbers of characters, found {widths!r}")
        if d_out % len(widths):
            raise ValueError(f"d_out is divided equally among the widths; {d_out} is not divisible by {len(widths)}")
        self.d_character, self.d_out, self.widths = d_character, d_out, tuple(widths)
        self.embedding = TokenEmbedding(num_characters, d_character)
        self.filters = nn.ModuleList(nn.Linear(width * d_character, d_out // len(widths)) for width in widths)
        self.maximum = MaxPooling(d_out)
        self.responses = Tap()

    def forward(
        self, ids: Int[Tensor, "U L"], mask: Bool[Tensor, "U L"] | None = None
    ) -> Float[Tensor, "U {self.d_out}"]:
        """Return the vectors of words; `mask` is True on characters, which come first. Empty words get zeros."""
        expect_words(type(self).__name__, ids, mask)
        x = mask_padding(self.embedding(ids), mask)
        responses = [linear(_windows(x, width)) for linear, width in zip(self.filters, self.widths, strict=True)]
        return self.maximum(self.responses(torch.cat(responses, dim=-1)), mask)

    def extra_repr(self) -> str:
        return f"widths={self.widths}"


def _windows(x: Tensor, width: int) -> Tensor:
    """Return the window (U, L, width · d) around each position of `x` (U, L, d)."""
    before = (width - 1) // 2
    padded = nn.functional.pad(x, (0, 0, before, width - 1 - before))
    return torch.cat([padded[:, k : k + x.shape[1]] for k in range(width)], dim=-1)
