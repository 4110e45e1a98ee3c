"""Models that read a text in both directions and predict each word from what is beside it: ELMo, context2vec.

A batch has its distinct words once. Each direction reads rows of their numbers, in its own order. Words 0 and 1 are
what stands before a text and behind it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.language_model import LanguageModel
from ensue.models.layer_outputs import output_sizes, read_layers, widened
from ensue.nn import HighwayCharacterCNN, SoftmaxHead, Stack, TokenEmbedding, WordSample
from ensue.nn.combinators import reverse_rows
from ensue.types import Loss, State

TEXT_BEGIN, TEXT_END, FIRST_WORD = 0, 1, 2
"""Numbers of words in a batch."""


class Direction(NamedTuple):
    """The input of one direction: numbers of words (B, T), in the order of reading."""

    inputs: Tensor
    targets: Tensor
    """(B, T): for each position the id of the word that is read next."""


class BothDirections(NamedTuple):
    """The features of one layer of each direction, (B, T, d_model) each, in the order of reading."""

    rightward: Tensor
    leftward: Tensor


class BidirectionalModel(nn.Module):
    """Two stacks of layers over the vectors of words: one reads from left to right, one from right to left.

    `words` maps a batch's words, (U, characters) or (U,), to vectors (U, d_words). Raises `ValueError` for stacks of
    other sizes.
    """

    def __init__(self, words: HighwayCharacterCNN | TokenEmbedding, rightward: Stack, leftward: Stack) -> None:
        super().__init__()
        if not words.d_out == rightward.d_in == leftward.d_in or rightward.d_out != leftward.d_out:
            raise ValueError(f"words of {words.d_out} features and stacks that do not fit: {rightward!r}, {leftward!r}")
        self.words, self.rightward, self.leftward = words, rightward, leftward

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """The number of layers of a word, L."""

    @property
    @abstractmethod
    def d_layers(self) -> int:
        """The size of a word's vector in each layer, d."""

    @abstractmethod
    def layers_of_words(
        self, features: Sequence[BothDirections], mask: Bool[Tensor, "B T"], ids: Int[Tensor, "B T"] | None
    ) -> list[Tensor]:
        """The vectors (B, T, d) of words in each layer, from what `read` gives behind a boundary, and word ids."""

    @property
    def fitting(self) -> Float[Tensor, "V d"] | None:
        """The vectors of the words that contexts are near, in a model of contexts."""
        return None

    @abstractmethod
    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Begins as suits the counts of the words in the vocabulary."""

    def init_state(self, batch_size: int) -> State:
        """The state of both directions before the first word."""
        return self.rightward.init_state(batch_size), self.leftward.init_state(batch_size)

    def read(
        self,
        words: Int[Tensor, "U ..."],
        rightward: Int[Tensor, "B T"],
        leftward: Int[Tensor, "B T"],
        state: State = None,
        *,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[list[BothDirections], State]:
        """The features of each layer after each word, those that the layers read first; and the state at the end."""
        vectors = self.words(words)
        ways, states = [], []
        numbers = zip((self.rightward, self.leftward), (rightward, leftward), state or (None, None), strict=True)
        for layers, inputs, before in numbers:
            found, after = read_layers(layers, F.embedding(inputs, vectors), before, mask=mask)
            ways.append(found)
            states.append(after)
        return [BothDirections(*pair) for pair in zip(*ways, strict=True)], tuple(states)

    def beside(
        self, features: BothDirections, mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"]]:
        """The features of each direction at each of T words before it reads the word; they begin at a boundary."""
        return features.rightward[:, :-1], reverse_rows(features.leftward[:, :-1], mask)

    def including(
        self, features: BothDirections, mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"]]:
        """The features of each direction at each of T words once it has read the word; they begin at a boundary."""
        return features.rightward[:, 1:], reverse_rows(features.leftward[:, 1:], mask)


class BidirectionalLanguageModel(BidirectionalModel):
    """Predicts each word from those to its left, and from those to its right (Peters et al. 2018):

        P→(w_t) = softmax(V h→_{t-1} + b)[w_t]        P←(w_t) = softmax(V h←_{t+1} + b)[w_t]

    The vectors of words and the softmax are shared by the two directions. Without a `head` it gives vectors alone.
    """

    def __init__(
        self,
        words: HighwayCharacterCNN | TokenEmbedding,
        rightward: Stack,
        leftward: Stack,
        head: SoftmaxHead | None,
    ) -> None:
        super().__init__(words, rightward, leftward)
        self.head = head

    @property
    def num_layers(self) -> int:
        return len(output_sizes(self.rightward))

    @property
    def d_layers(self) -> int:
        return 2 * max(output_sizes(self.rightward))

    def layers_of_words(self, features: Sequence[BothDirections], mask: Tensor, ids: Tensor | None) -> list[Tensor]:
        """The vectors of words, twice, and each layer's features of both directions side by side, padded with zeros."""
        return widened([torch.cat(self.including(both, mask), -1) for both in features])

    def start_from_counts(self, counts: Tensor) -> None:
        if self.head is not None:
            self.head.start_from_counts(counts)

    def loss(
        self,
        words: Tensor,
        rightward: Direction,
        leftward: Direction,
        state: State = None,
        *,
        sample: WordSample | None = None,
    ) -> tuple[Loss, State]:
        """The summed surprisal of all targets of both directions with their number, and the state at the end."""
        assert self.head is not None
        layers, state = self.read(words, rightward.inputs, leftward.inputs, state)
        h, targets = torch.cat(layers[-1]), torch.cat((rightward.targets, leftward.targets))
        return Loss(self.head.total_nats(h, targets, sample=sample), targets.numel()), state


class ContextModel(BidirectionalModel):
    """The vector of a context, trained to be near the vectors of words that fit (context2vec; Melamud et al. 2016):

        c_t = L_2 relu(L_1 [h→_{t-1}; h←_{t+1}])        s(w, t) = v_w · c_t
        loss = -log σ(s(w_t, t)) - Σ_k log σ(-s(w_k, t))

    w_k are words of noise. `targets` has the vectors v, `counts` the counts by which noise is drawn.
    """

    def __init__(
        self, words: HighwayCharacterCNN | TokenEmbedding, rightward: Stack, leftward: Stack, *,
        vocabulary_size: int, d_context: int, d_hidden: int,
    ) -> None:  # fmt: skip
        super().__init__(words, rightward, leftward)
        self.context = nn.Sequential(
            nn.Linear(2 * rightward.d_out, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_context)
        )
        self.targets = TokenEmbedding(vocabulary_size, d_context, std=d_context**-0.5)
        self.counts: Tensor
        self.register_buffer("counts", torch.ones(vocabulary_size, dtype=torch.int64))

    @property
    def num_layers(self) -> int:
        return 2

    @property
    def d_layers(self) -> int:
        return self.targets.d_out

    @property
    def fitting(self) -> Tensor:
        return self.targets.weight

    def layers_of_words(self, features: Sequence[BothDirections], mask: Tensor, ids: Tensor | None) -> list[Tensor]:
        """The vector of the word and that of its context, of which the word is no part."""
        assert ids is not None
        return [self.targets(ids), self.contexts(*self.beside(features[-1], mask))]

    def start_from_counts(self, counts: Tensor) -> None:
        self.counts.copy_(counts)

    def contexts(self, left: Float[Tensor, "B T d"], right: Float[Tensor, "B T d"]) -> Float[Tensor, "B T c"]:
        """The vectors of contexts from what is known of both sides."""
        found: Tensor = self.context(torch.cat((left, right), dim=-1))
        return found

    def loss(self, words: Tensor, rightward: Direction, leftward: Direction, noise: Int[Tensor, "B T K"]) -> Loss:
        """The summed loss of all words of rows that both directions read from end to end, with their number."""
        layers, _ = self.read(words, rightward.inputs, leftward.inputs)
        c = self.contexts(layers[-1].rightward, layers[-1].leftward.flip(1))
        targets = rightward.targets
        right = (self.targets(targets) * c).sum(-1)
        wrong = torch.einsum("btkd,btd->btk", self.targets(noise), c)
        counts = noise != targets.unsqueeze(-1)
        total = -F.logsigmoid(right).sum() - (F.logsigmoid(-wrong) * counts).sum()
        return Loss(total, targets.numel())


class WordRows(nn.Module):
    """Vectors (F, d) that are known already, by their numbers."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors, self.vocabulary_size, self.d_out = vectors, len(vectors), vectors.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors of `ids`."""
        return F.embedding(ids, self.vectors)


class OneDirection(LanguageModel):
    """One direction of a bidirectional language model, to score a text whose distinct words have these `vectors`.

    The vectors are (F, d). It reads numbers of these words; `ids` (F,) are their ids in the softmax.
    """

    def __init__(self, vectors: Tensor, layers: Stack, head: SoftmaxHead, ids: Int[Tensor, " F"]) -> None:
        super().__init__(WordRows(vectors), layers, head)  # type: ignore[arg-type]
        self.ids = ids

    @property
    def vocabulary_size(self) -> int:
        return self.head.vocabulary_size

    def nats(self, ids: Tensor, targets: Tensor, state: State = None) -> tuple[Tensor, State]:
        return super().nats(ids, self.ids[targets], state)
