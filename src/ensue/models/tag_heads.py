"""The heads of taggers: softmax, softmax with Viterbi decoding, and linear-chain CRF."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.nn import ChainScores, LegalTags, LinearChainCRF, Posterior, Tap, marginals, posterior, viterbi, viterbi_path
from ensue.nn.heads.chain import Emissions
from ensue.types import Mask

PADDING = -1
"""The id of padding."""


class DecodedSentence(NamedTuple):
    """The tags (T,) of a sentence, and the probabilities of all paths if they were requested."""

    tags: NDArray[np.int64]
    posterior: Posterior | None


class TagHead(nn.Module, ABC):
    """A linear map from features to emission scores of tags, with a loss and a decoder.

    In every method `h` (B, T, d) are features, `emissions` (B, T, K) are scores, `mask` (B, T) is True at real
    positions (None: all), and `tags` (B, T) are ids, `PADDING` at padding. For a loss, `tags` may be probabilities
    (B, T, K), 0 at padding.
    """

    def __init__(self, d_in: int, num_tags: int) -> None:
        super().__init__()
        self.num_tags = num_tags
        self.projection = nn.Linear(d_in, num_tags)
        self.emission = Tap()
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)

    def emissions(self, h: Float[Tensor, "B T d"]) -> Emissions:
        """Return the scores of all tags, in float32."""
        return self.emission(self.projection(h).float())

    @property
    def parts(self) -> "Sequence[TagHead]":
        """The independent heads of all label columns."""
        return [self]

    def fix_projection(self) -> Self:
        """Fix the projection to the identity, for features that are scores of tags; a CRF then computes in float32."""
        identity = torch.split(torch.eye(self.num_tags), [part.num_tags for part in self.parts])
        for part, rows in zip(self.parts, identity, strict=True):
            part.projection.weight = nn.Parameter(rows.clone(), requires_grad=False)
            if isinstance(part, CRFTagHead):
                part.crf.in_float32 = True
        return self

    def start_from_counts(self, counts: NDArray[np.int64]) -> None:
        """Set the biases to the log frequencies of the tags, with 1 added to each count."""
        frequencies = torch.from_numpy(counts + 1.0)
        self.projection.bias.data.copy_((frequencies / frequencies.sum()).log())

    def total_nats(self, h: Float[Tensor, "B T d"], tags: Tensor, mask: Mask) -> Tensor:
        """Return the loss in nats, summed over all real positions."""
        return self.nats(self.emissions(h), tags, mask)

    @abstractmethod
    def nats(self, emissions: Emissions, tags: Tensor, mask: Mask) -> Tensor:
        """Return the loss in nats from emissions, summed over all real positions."""

    def scores(self, emissions: Emissions) -> Emissions:
        """Return the scores for decoding: log-probabilities of tags, except for a CRF."""
        return emissions.log_softmax(-1)

    def chain(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the scores of start, transitions and end; None for independent tags."""
        return None

    def tables(self) -> ChainScores | None:
        """Return the scores of `chain` as numpy arrays."""
        chain = self.chain()
        return None if chain is None else ChainScores(*(scores.detach().cpu().numpy() for scores in chain))

    def best(self, emissions: Emissions, mask: Mask) -> Int[Tensor, "B T"]:
        """Return the ids of the tags on the best path."""
        chain = self.chain()
        return emissions.argmax(-1) if chain is None else viterbi(self.scores(emissions), *chain, mask)[0]

    def marginals(self, emissions: Emissions, mask: Mask) -> Float[Tensor, "B T K"]:
        """Return the probability of each tag at each position."""
        chain = self.chain()
        return emissions.softmax(-1) if chain is None else marginals(self.scores(emissions), *chain, mask)

    def posteriors(self, emissions: Emissions, lengths: Sequence[int]) -> list[Posterior]:
        """Return the distribution over paths of each row; `lengths` are the numbers of real positions."""
        chain, tables, scores = self.chain(), self.tables(), self.scores(emissions)
        ends = torch.tensor(lengths, device=scores.device).unsqueeze(1)
        mask = torch.arange(scores.shape[1], device=scores.device) < ends
        sums = None if chain is None else posterior(scores, *chain, mask)
        rows = [row[:length] for row, length in zip(scores.cpu().numpy(), lengths, strict=True)]
        if sums is None:
            return [Posterior.of(row, tables) for row in rows]
        marginals_of_row, suffixes_of_row = (tensor.cpu().numpy() for tensor in sums)
        results = zip(rows, marginals_of_row, suffixes_of_row, strict=True)
        return [Posterior(row, tables, p[: len(row)], suffixes[: len(row)]) for row, p, suffixes in results]

    def decode_sentence(self, emissions: NDArray[np.float32], *, with_posterior: bool = False) -> DecodedSentence:
        """Decode one sentence, in numpy, which is faster than torch. The posterior is computed on request."""
        tables, scores = self.tables(), self.scores(torch.from_numpy(emissions)).numpy()
        path = emissions.argmax(-1) if tables is None else viterbi_path(scores, *tables)
        return DecodedSentence(path, Posterior.of(scores, tables) if with_posterior else None)


class SoftmaxTagHead(TagHead):
    """A softmax for each position, `P(tag_t | words) = softmax(W h_t + b)`."""

    def __init__(self, d_in: int, num_tags: int, *, label_smoothing: float = 0.0) -> None:
        super().__init__(d_in, num_tags)
        self.label_smoothing = label_smoothing

    def nats(self, emissions: Emissions, tags: Tensor, mask: Mask) -> Tensor:
        if tags.is_floating_point():
            real = tags.any(-1)
            emissions, tags = emissions[real], tags[real]
        else:
            emissions, tags = emissions.flatten(0, 1), tags.flatten()
        return F.cross_entropy(
            emissions, tags, ignore_index=PADDING, reduction="sum", label_smoothing=self.label_smoothing
        )


class ViterbiTagHead(SoftmaxTagHead):
    """A softmax whose best path maximizes `Σ_t log P(tag_t | words) + w Σ_t log P(tag_t | tag_{t-1})`.

    P(tag_t | tag_{t-1}) is estimated from counts of training tags, including start and end, with 1 added to each legal
    count. Illegal transitions have probability 0.
    """

    def __init__(
        self, d_in: int, num_tags: int, *, legal: LegalTags | None = None, weight: float = 1.0,
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(d_in, num_tags, label_smoothing=label_smoothing)
        self.weight, self.legal = weight, legal
        for name, shape in (("start", (num_tags,)), ("transitions", (num_tags, num_tags)), ("end", (num_tags,))):
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))
        self.count_bigrams([])

    def count_bigrams(self, sentences: Iterable[Sequence[int] | NDArray[np.integer]]) -> None:
        """Estimate P(tag_t | tag_{t-1}) from the tags of sentences, which may be joined by the separator `num_tags`."""
        size = self.num_tags
        shape = (size + 1, size + 1)  # last row: start of a sentence; last column: end
        counts = np.zeros(shape)
        for tags in sentences:
            path = np.concatenate(([size], tags, [size])).astype(np.int64)
            counts += np.bincount(path[:-1] * shape[1] + path[1:], minlength=counts.size).reshape(shape)
        legal = np.ones((size + 1, size + 1), bool)
        if self.legal is not None:
            legal[:size, :size] = self.legal.pairs.numpy()
            legal[size, :size], legal[:size, size] = self.legal.start.numpy(), self.legal.end.numpy()
        legal[size, size] = False
        smoothed = np.where(legal, counts + 1, 0.0)
        p = np.where(legal, smoothed / smoothed.sum(1, keepdims=True), 1.0)
        scores = torch.from_numpy(np.where(legal, self.weight * np.log(p), -np.inf)).float()
        values = scores[size, :size], scores[:size, :size], scores[:size, size]
        for table, table_values in zip(self.chain(), values, strict=True):
            table.data.copy_(table_values)

    def chain(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.get_parameter("start"), self.get_parameter("transitions"), self.get_parameter("end")


class CRFTagHead(TagHead):
    """A linear-chain CRF over the emissions (Lafferty et al. 2001; Lample et al. 2016)."""

    def __init__(self, d_in: int, num_tags: int, *, legal: LegalTags | None = None) -> None:
        super().__init__(d_in, num_tags)
        self.crf = LinearChainCRF(num_tags, legal=legal)

    def nats(self, emissions: Emissions, tags: Tensor, mask: Mask) -> Tensor:
        if tags.is_floating_point():
            return self.crf.expected_nats(emissions, tags, mask)
        return self.crf.nats(emissions, tags.clamp(min=0), mask).sum()

    def scores(self, emissions: Emissions) -> Emissions:
        return emissions

    def chain(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.crf.chain()

    def tables(self) -> ChainScores:
        return self.crf.tables()


class TagHeads(TagHead):
    """Several heads over the same features, one for each column of labels. The loss is the sum of their losses.

    `tags` (B, T, C) has an id for each head. Emissions and marginals (B, T, K) of the heads are concatenated.
    """

    def __init__(self, heads: Sequence[TagHead]) -> None:
        nn.Module.__init__(self)
        self.heads = nn.ModuleList(heads)
        self.num_tags = sum(head.num_tags for head in heads)

    @property
    def parts(self) -> Sequence[TagHead]:
        return list(self.heads)  # type: ignore[arg-type]

    def emissions(self, h: Float[Tensor, "B T d"]) -> Emissions:
        weight = torch.cat([head.projection.weight for head in self.parts])
        bias = torch.cat([head.projection.bias for head in self.parts])
        scores = self._split(F.linear(h, weight, bias).float())  # one product for all heads is faster
        return torch.cat([head.emission(head_scores) for head, head_scores in scores], dim=-1)

    def nats(self, emissions: Emissions, tags: Int[Tensor, "B T C"], mask: Mask) -> Tensor:
        pairs = zip(self._split(emissions), tags.unbind(-1), strict=True)
        return torch.stack([head.nats(scores, column, mask) for (head, scores), column in pairs]).sum()

    def _split(self, emissions: Tensor) -> Iterator[tuple[TagHead, Tensor]]:
        return zip(self.parts, torch.split(emissions, [head.num_tags for head in self.parts], dim=-1), strict=True)

    def best(self, emissions: Emissions, mask: Mask) -> Int[Tensor, "B T C"]:
        return torch.stack([head.best(scores, mask) for head, scores in self._split(emissions)], dim=-1)

    def marginals(self, emissions: Emissions, mask: Mask) -> Float[Tensor, "B T K"]:
        return torch.cat([head.marginals(scores, mask) for head, scores in self._split(emissions)], dim=-1)

    def posteriors(self, emissions: Emissions, lengths: Sequence[int]) -> list[Posterior]:
        rows = zip(*(head.posteriors(scores, lengths) for head, scores in self._split(emissions)), strict=True)
        return [Posterior.concatenate(posteriors) for posteriors in rows]

    def decode_sentence(self, emissions: NDArray[np.float32], *, with_posterior: bool = False) -> DecodedSentence:
        ends = np.cumsum([head.num_tags for head in self.parts])[:-1]
        results = [
            head.decode_sentence(scores, with_posterior=with_posterior)
            for head, scores in zip(self.parts, np.split(emissions, ends, axis=1), strict=True)
        ]
        paths = np.stack([path.tags for path in results], axis=-1)
        posteriors = [path.posterior for path in results if path.posterior is not None]
        return DecodedSentence(paths, Posterior.concatenate(posteriors) if posteriors else None)
