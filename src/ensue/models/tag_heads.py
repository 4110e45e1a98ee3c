"""The heads of a tagger, from features to tags: each tag by itself, or the best path through a sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.nn import LegalTags, LinearChainCRF, Tap, marginals, marginals_of_one, viterbi, viterbi_path

PADDING = -1
"""The tag of padding."""


class OnePath(NamedTuple):
    """The tags (T,) of a single sentence, and the probability of each tag at each position (T, K), if asked for."""

    tags: NDArray[np.int64]
    marginals: NDArray[np.float32] | None


class TagHead(nn.Module, ABC):
    """A linear map to a score for each tag and position, the emissions, with a loss and a way to choose tags.

    In every method `h` are the features of words, `emissions` (B, T, K) are scores, `mask` (B, T) is True on real
    positions (None: all), and `tags` (B, T) are ids, `PADDING` where `mask` is False.
    """

    def __init__(self, d_in: int, num_tags: int) -> None:
        super().__init__()
        self.num_tags = num_tags
        self.projection = nn.Linear(d_in, num_tags)
        self.emission = Tap()
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)

    def emissions(self, h: Float[Tensor, "B T d"]) -> Float[Tensor, "B T K"]:
        """The scores of all tags, in float32."""
        scores: Tensor = self.emission(self.projection(h).float())
        return scores

    @property
    def parts(self) -> Sequence[TagHead]:
        """The heads that choose by themselves: this one."""
        return [self]

    def start_from_counts(self, counts: NDArray[np.int64]) -> None:
        """Sets the biases to the tags' log frequencies, with 1 added to each count."""
        frequencies = torch.from_numpy(counts + 1.0)
        self.projection.bias.data.copy_((frequencies / frequencies.sum()).log())

    @abstractmethod
    def total_nats(
        self, h: Float[Tensor, "B T d"], tags: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        """The loss in nats, summed over all real positions: a scalar."""

    @abstractmethod
    def best(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T"]:
        """The ids of the tags on the best path."""

    @abstractmethod
    def marginals(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
        """The probability of each tag at each position."""

    @abstractmethod
    def one(self, emissions: NDArray[np.float32], *, with_marginals: bool = False) -> OnePath:
        """`best`, and if asked for `marginals`, for the emissions (T, K) of a single sentence: in numpy, which is
        faster for one.
        """


class SoftmaxTagHead(TagHead):
    """`P(tag_t | words) = softmax(W h_t + b)`, each position by itself (SLP ch. 8)."""

    def __init__(self, d_in: int, num_tags: int, *, label_smoothing: float = 0.0) -> None:
        super().__init__(d_in, num_tags)
        self.label_smoothing = label_smoothing

    def total_nats(
        self, h: Float[Tensor, "B T d"], tags: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        logits = self.emissions(h).flatten(0, 1)
        return F.cross_entropy(
            logits, tags.flatten(), ignore_index=PADDING, reduction="sum", label_smoothing=self.label_smoothing
        )

    def best(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T"]:
        return emissions.argmax(-1)

    def marginals(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
        return emissions.softmax(-1)

    def one(self, emissions: NDArray[np.float32], *, with_marginals: bool = False) -> OnePath:
        return OnePath(emissions.argmax(-1), np.exp(_log_softmax(emissions)) if with_marginals else None)


class ViterbiTagHead(SoftmaxTagHead):
    """The path that maximizes `Σ_t log P(tag_t | words) + w Σ_t log P(tag_t | tag_{t-1})`.

    The second distribution is counted in the training tags, with start and end, and 1 added to each legal count. It is
    not trained by gradients. Illegal tags have probability 0.
    """

    def __init__(
        self,
        d_in: int,
        num_tags: int,
        *,
        legal: LegalTags | None = None,
        weight: float = 1.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(d_in, num_tags, label_smoothing=label_smoothing)
        self.weight, self.legal = weight, legal
        for name, shape in (("start", (num_tags,)), ("transitions", (num_tags, num_tags)), ("end", (num_tags,))):
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))
        self.count_bigrams([])

    def count_bigrams(self, sentences: Iterable[Sequence[int] | NDArray[np.int64]]) -> None:
        """Estimates the tag-bigram model from the tag ids of the training sentences."""
        size = self.num_tags
        counts = np.zeros((size + 1, size + 1))  # the last row is the start of a sentence, the last column its end
        for tags in sentences:
            path = np.array([size, *tags, size])
            np.add.at(counts, (path[:-1], path[1:]), 1.0)
        legal = np.ones((size + 1, size + 1), bool)
        if self.legal is not None:
            legal[:size, :size] = self.legal.pairs.numpy()
            legal[size, :size], legal[:size, size] = self.legal.start.numpy(), self.legal.end.numpy()
        legal[size, size] = False
        smoothed = np.where(legal, counts + 1, 0.0)
        shares = np.where(legal, smoothed / smoothed.sum(1, keepdims=True), 1.0)
        scores = torch.from_numpy(np.where(legal, self.weight * np.log(shares), -np.inf)).float()
        self.get_parameter("transitions").data.copy_(scores[:size, :size])
        self.get_parameter("start").data.copy_(scores[size, :size])
        self.get_parameter("end").data.copy_(scores[:size, size])

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.get_parameter("start"), self.get_parameter("transitions"), self.get_parameter("end")

    def best(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T"]:
        return viterbi(emissions.log_softmax(-1), *self._tables(), mask)[0]

    def marginals(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
        return marginals(emissions.log_softmax(-1), *self._tables(), mask)

    def one(self, emissions: NDArray[np.float32], *, with_marginals: bool = False) -> OnePath:
        scores = [_log_softmax(emissions), *(table.cpu().numpy() for table in self._tables())]
        return OnePath(viterbi_path(*scores), marginals_of_one(*scores) if with_marginals else None)


class CRFTagHead(TagHead):
    """A linear-chain CRF over the emissions (Lafferty et al. 2001; Lample et al. 2016)."""

    def __init__(self, d_in: int, num_tags: int, *, legal: LegalTags | None = None) -> None:
        super().__init__(d_in, num_tags)
        self.crf = LinearChainCRF(num_tags, legal=legal)

    def total_nats(
        self, h: Float[Tensor, "B T d"], tags: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        return self.crf.nats(self.emissions(h), tags.clamp(min=0), mask).sum()

    def best(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T"]:
        return self.crf.best(emissions, mask)[0]

    def marginals(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
        return self.crf.marginals(emissions, mask)

    def one(self, emissions: NDArray[np.float32], *, with_marginals: bool = False) -> OnePath:
        scores = emissions, *self.crf.tables()
        return OnePath(viterbi_path(*scores), marginals_of_one(*scores) if with_marginals else None)


class TagHeads(TagHead):
    """Several heads side by side over the same features, one for each column of labels. Their losses are added up.

    `tags` (B, T, C) have an id for each head. Emissions and marginals (B, T, K) are those of all heads, one after
    another.
    """

    def __init__(self, heads: Sequence[TagHead]) -> None:
        nn.Module.__init__(self)
        self.heads = nn.ModuleList(heads)
        self.num_tags = sum(head.num_tags for head in heads)

    @property
    def parts(self) -> Sequence[TagHead]:
        return list(self.heads)  # type: ignore[arg-type]

    def emissions(self, h: Float[Tensor, "B T d"]) -> Float[Tensor, "B T K"]:
        return torch.cat([head.emissions(h) for head in self.parts], dim=-1)

    def total_nats(
        self, h: Float[Tensor, "B T d"], tags: Int[Tensor, "B T C"], mask: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        nats = [head.total_nats(h, tags[..., place], mask) for place, head in enumerate(self.parts)]
        return torch.stack(nats).sum()

    def _split(self, emissions: Tensor) -> Iterator[tuple[TagHead, Tensor]]:
        start = 0
        for head in self.parts:
            yield head, emissions[..., start : start + head.num_tags]
            start += head.num_tags

    def best(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T C"]:
        return torch.stack([head.best(own, mask) for head, own in self._split(emissions)], dim=-1)

    def marginals(self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T K"]:
        return torch.cat([head.marginals(own, mask) for head, own in self._split(emissions)], dim=-1)

    def one(self, emissions: NDArray[np.float32], *, with_marginals: bool = False) -> OnePath:
        ends = np.cumsum([head.num_tags for head in self.parts])[:-1]
        found = [
            head.one(own, with_marginals=with_marginals)
            for head, own in zip(self.parts, np.split(emissions, ends, axis=1), strict=True)
        ]
        shares = [path.marginals for path in found if path.marginals is not None]
        paths = np.stack([path.tags for path in found], axis=-1)
        return OnePath(paths, np.concatenate(shares, axis=1) if shares else None)


def _log_softmax(emissions: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = emissions - emissions.max(-1, keepdims=True)
    found: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found
