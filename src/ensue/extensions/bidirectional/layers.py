"""Models that read a text in both directions and predict each word from its context: ELMo and context2vec.

A batch has a table of its distinct words. Entries 0 and 1 of the table are the boundaries before and after a text. The
input of a direction has rows of indices into this table, in the order in which the direction reads the words.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.language_model import LanguageModel
from ensue.models.layer_outputs import output_sizes, pad_features, read_layers
from ensue.nn import HighwayCharacterCNN, SoftmaxHead, Stack, TokenEmbedding, WordSample
from ensue.nn.combinators import reverse_rows
from ensue.types import Loss, State

TEXT_BEGIN, TEXT_END, FIRST_WORD = 0, 1, 2
"""The indices of both boundaries, and of the first word, in the table of a batch."""


class Direction(NamedTuple):
    """The input and targets of one direction, in the order of reading."""

    inputs: Tensor
    """The indices of words in the table, (B, T)."""
    targets: Tensor
    """The vocabulary ids of the next words, (B, T)."""


class BothDirections(NamedTuple):
    """The outputs (B, T, d_model) of a layer in both directions, each in its order of reading."""

    rightward: Tensor
    leftward: Tensor


class BidirectionalModel(nn.Module):
    """Two stacks of layers over the vectors of words, from left to right and from right to left.

    `words` maps the characters (U, C) or ids (U,) of U distinct words to vectors (U, d_words). Raises ValueError if the
    sizes of `words` and the stacks do not match.
    """

    def __init__(self, words: HighwayCharacterCNN | TokenEmbedding, rightward: Stack, leftward: Stack) -> None:
        super().__init__()
        if not words.d_out == rightward.d_in == leftward.d_in or rightward.d_out != leftward.d_out:
            raise ValueError(f"words of {words.d_out} features do not match the stacks {rightward!r}, {leftward!r}")
        self.words, self.rightward, self.leftward = words, rightward, leftward

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """The number of vectors of a word, L."""

    @property
    @abstractmethod
    def d_layers(self) -> int:
        """The size of each vector, d."""

    @abstractmethod
    def layers_of_words(
        self, features: Sequence[BothDirections], mask: Bool[Tensor, "B T"], ids: Int[Tensor, "B T"] | None
    ) -> list[Tensor]:
        """Return the vectors (B, T, d) of words in each layer, from the features of `read`. context2vec reads `ids`."""

    @property
    def target_vectors(self) -> Float[Tensor, "V d"] | None:
        """The vectors of predicted words, to compare with vectors of contexts; None for a language model."""
        return None

    @abstractmethod
    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Initialize the bias of the softmax, or the distribution of noise words, from the counts of words."""

    def init_state(self, batch_size: int) -> State:
        """Return the state of both directions before the first word."""
        return self.rightward.init_state(batch_size), self.leftward.init_state(batch_size)

    def read(
        self, words: Int[Tensor, "U ..."], rightward: Int[Tensor, "B T"], leftward: Int[Tensor, "B T"],
        state: State = None, *, mask: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[list[BothDirections], State]:  # fmt: skip
        """Run both directions; return the input of the first layer, the outputs of all layers, and the last state."""
        vectors = self.words(words)
        directions = zip((self.rightward, self.leftward), (rightward, leftward), state or (None, None), strict=True)
        results = [read_layers(layers, F.embedding(ids, vectors), s, mask=mask) for layers, ids, s in directions]
        features = zip(*(outputs for outputs, _ in results), strict=True)
        return [BothDirections(*pair) for pair in features], tuple(last_state for _, last_state in results)

    def features_before(
        self, features: BothDirections, mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T d"]]:
        """Return the features of both directions before they read each word; `features` begin with a boundary."""
        return features.rightward[:, :-1], reverse_rows(features.leftward[:, :-1], mask)


class BidirectionalLanguageModel(BidirectionalModel):
    """A model that predicts each word from the words on its left, and from the words on its right (Peters et al. 2018):

        P→(w_t) = softmax(V h→_{t-1} + b)[w_t]        P←(w_t) = softmax(V h←_{t+1} + b)[w_t]

    Both directions share the vectors of words and the softmax. A model without a `head` returns only vectors.
    """

    def __init__(
        self, words: HighwayCharacterCNN | TokenEmbedding, rightward: Stack, leftward: Stack, head: SoftmaxHead | None
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
        """Return each word vector twice, concatenated, then the features of each layer, padded to d."""
        after = ((both.rightward[:, 1:], reverse_rows(both.leftward[:, 1:], mask)) for both in features)
        return pad_features([torch.cat(pair, -1) for pair in after])

    def start_from_counts(self, counts: Tensor) -> None:
        if self.head is not None:
            self.head.start_from_counts(counts)

    def loss(
        self, words: Tensor, rightward: Direction, leftward: Direction, state: State = None, *,
        sample: WordSample | None = None,
    ) -> tuple[Loss, State]:  # fmt: skip
        """Return the summed surprisal of the targets of both directions, and the last state."""
        assert self.head is not None
        layers, state = self.read(words, rightward.inputs, leftward.inputs, state)
        h, targets = torch.cat(layers[-1]), torch.cat((rightward.targets, leftward.targets))
        return Loss(self.head.total_nats(h, targets, sample=sample), targets.numel()), state


class ContextModel(BidirectionalModel):
    """context2vec, which trains the vectors of contexts to be near the vectors of fitting words (Melamud et al. 2016):

        c_t = L_2 relu(L_1 [h→_{t-1}; h←_{t+1}])        s(w, t) = v_w · c_t
        loss = -log σ(s(w_t, t)) - Σ_k log σ(-s(w_k, t))

    w_k are noise words. `targets` has the vectors v. `counts` has the counts of words, from which noise is drawn.
    """

    num_layers = 2

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
    def d_layers(self) -> int:
        return self.targets.d_out

    @property
    def target_vectors(self) -> Tensor:
        return self.targets.weight

    def layers_of_words(self, features: Sequence[BothDirections], mask: Tensor, ids: Tensor | None) -> list[Tensor]:
        """Return the vectors of words, and the vectors of the words' contexts."""
        assert ids is not None
        return [self.targets(ids), self.contexts(*self.features_before(features[-1], mask))]

    def start_from_counts(self, counts: Tensor) -> None:
        self.counts.copy_(counts)

    def contexts(self, left: Float[Tensor, "B T d"], right: Float[Tensor, "B T d"]) -> Float[Tensor, "B T c"]:
        """Return the vectors of contexts, from the features of the words on both sides."""
        return self.context(torch.cat((left, right), dim=-1))

    def loss(self, words: Tensor, rightward: Direction, leftward: Direction, noise: Int[Tensor, "B T K"]) -> Loss:
        """Return the summed loss of all words. The rows of `leftward` are the reversed rows of `rightward`."""
        layers, _ = self.read(words, rightward.inputs, leftward.inputs)
        c = self.contexts(layers[-1].rightward, layers[-1].leftward.flip(1))
        targets = rightward.targets
        positive = (self.targets(targets) * c).sum(-1)
        negative = torch.einsum("btkd,btd->btk", self.targets(noise), c)
        is_noise = noise != targets.unsqueeze(-1)
        return Loss(-F.logsigmoid(positive).sum() - (F.logsigmoid(-negative) * is_noise).sum(), targets.numel())


class DirectionalLanguageModel(LanguageModel):
    """A language model of one direction, whose inputs are indices of the F distinct words of a text.

    `vectors` (F, d) are the vectors of the distinct words, and `ids` (F,) their ids in the vocabulary of the softmax.
    """

    def __init__(self, vectors: Tensor, layers: Stack, head: SoftmaxHead, ids: Int[Tensor, " F"]) -> None:
        words: Any = nn.Embedding.from_pretrained(vectors)  # type: ignore[no-untyped-call]
        words.vocabulary_size = len(vectors)
        super().__init__(words, layers, head)
        self.ids, self.vocabulary_size = ids, head.vocabulary_size

    def nats(self, ids: Tensor, targets: Tensor, state: State = None) -> tuple[Tensor, State]:
        return super().nats(ids, self.ids[targets], state)
