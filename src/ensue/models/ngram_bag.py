"""Linear classifiers of texts and pairs from sets of n-grams.

Words are keys (`WordForms.keys`): positive for known words, negative hashes for unknown words, 0 for padding. With
n-grams of characters, the key of a word is followed by the hashes of the word's n-grams.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.modules import unwrap_methods
from ensue.nn.draws import apply_dropout

MULTIPLIER = 0x9E3779B97F4A7C15 >> 1
"""The multiplier of the hash, 2⁶³ divided by the golden ratio. Its multiples are spread evenly (Knuth, TAOCP 6.4)."""
CHARACTER_SHARE = 1 / 2
"""The share of n-grams of characters in the squared norm of the features of a text."""
OVERLAPS = 2
"""The kind of overlaps in `NgramBag.kinds`; n-grams of words have the kind 0, and n-grams of characters 1."""
MIN_TEXTS = 2
"""The minimum number of training texts with an n-gram; rarer n-grams have r = 0."""


class NgramBag(nn.Module):
    """A linear classifier `score_k = b_k + Σ_g r_g w_gk / √(Σ_g r_g²)` over the distinct n-grams g of a text.

    N-grams have up to `longest` words, all of which are known. With `characters`, the n-grams of characters of all
    words are scored, too, with `CHARACTER_SHARE` of the squared norm. The weight `r_g` is not trained, but computed
    from the training texts (`weigh_by_ratio`, `weigh_by_idf`). A hash function maps n-grams to `buckets` rows (Joulin
    et al. 2016). In training, each n-gram is dropped with the probability `dropout`. `remove_unweighted` removes rows
    with r = 0, which are not trained; `num_kept_rows` rows remain. Raises ValueError for fewer than two buckets.
    """

    tables = 1
    """The number of hash tables."""

    overlap: nn.Parameter
    place: nn.Parameter | None
    """The index of each row among the remaining rows; 0 for removed rows."""

    def __init__(
        self, num_labels: int, *, longest: int = 2, buckets: int = 1 << 19, dropout: float = 0.0,
        characters: bool = False, num_kept_rows: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if buckets < 2:
            raise ValueError(f"ngram_buckets is {buckets}; expected at least 2, since row 0 is for unknown words")
        self.longest, self.buckets, self.dropout, self.characters = longest, buckets, dropout, characters
        self.table_rows = (1 + characters) * buckets
        """The rows of a table: `buckets` rows for n-grams of words, then as many for n-grams of characters."""
        self.num_rows = self.tables * self.table_rows
        size = self.num_rows if num_kept_rows is None else 1 + num_kept_rows
        self.weight = nn.Parameter(torch.zeros(size, num_labels))
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.ratio = nn.Parameter(torch.ones(size), requires_grad=False)
        place = None if num_kept_rows is None else torch.zeros(self.num_rows, dtype=torch.int32)
        self.register_parameter("place", None if place is None else nn.Parameter(place, requires_grad=False))

    def ngrams(self, *texts: Int[Tensor, "B _ ..."]) -> Int[Tensor, "B N"]:
        """Return the distinct n-grams of each text as row numbers, padded with 0; sorted for single texts."""
        return self.compare(*texts)[0]

    def compare(self, *texts: Int[Tensor, "B _ ..."]) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B o"] | None]:
        """Return the distinct n-grams as rows, and the overlaps of pairs; None for single texts."""
        (keys,) = texts
        return _remove_duplicates(torch.cat(list(self._rows(keys, only_known=True)), dim=1)), None

    def _rows(self, keys: Int[Tensor, "B T ..."], *, only_known: bool) -> Iterator[Int[Tensor, "B N"]]:
        """Yield, for each n, the rows of n-grams of words (0 for unknown words if `only_known`), then of characters."""
        words = keys[..., 0] if self.characters else keys
        known, length = words > 0 if only_known else words != 0, words.shape[1]
        key, complete = torch.zeros_like(words), torch.ones_like(known)
        following, known = (F.pad(tensor, (0, self.longest)) for tensor in (words, known))
        for n in range(self.longest):
            key = (key + following[:, n : n + length]) * MULTIPLIER  # overflows, as intended for a hash
            complete = complete & known[:, n : n + length]
            yield ((key >> 20) % (self.buckets - 1) + 1).masked_fill(~complete, 0)
        if self.characters:
            hashes = keys[..., 1:].flatten(1)
            yield (hashes % (self.buckets - 1) + 1 + self.buckets).masked_fill(hashes == 0, 0)

    def forward(self, *texts: Int[Tensor, "B _ ..."]) -> Float[Tensor, "B K"]:
        """Return the scores of all labels for texts, or for pairs of texts."""
        ids, overlaps = self.compare(*texts)
        scores = self.bias.expand(len(ids), -1)
        if ids.shape[1]:  # embedding_bag needs at least one column
            ids, r = self._normalize(ids)
            scores = scores + F.embedding_bag(ids, self.weight, mode="sum", per_sample_weights=r)
        return scores if overlaps is None else scores + overlaps @ self.overlap

    @property
    def term_weights(self) -> list[nn.Parameter]:
        """The weights of the features of a text: of n-grams, then of overlaps."""
        return [weights for name, weights in self.named_parameters() if name in ("weight", "overlap")]

    def set_term_weights(self, weights: Float[Tensor, "G K"]) -> None:
        """Set `term_weights` to the rows of a matrix."""
        for table, rows in zip(self.term_weights, torch.split(weights, [*map(len, self.term_weights)]), strict=True):
            table.copy_(rows)

    @property
    def kinds(self) -> Int[Tensor, " G"]:
        """The kind of each feature: 0 for n-grams of words, 1 for n-grams of characters, `OVERLAPS` for overlaps."""
        rows = torch.arange(self.num_rows) if self.place is None else F.pad(self.place.nonzero().squeeze(1), (1, 0))
        overlaps = sum(map(len, self.term_weights)) - len(rows)
        return F.pad((rows % self.table_rows >= self.buckets).long(), (0, overlaps), value=OVERLAPS)

    def terms(self, *texts: Int[Tensor, "B _ ..."]) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B N"]]:
        """Return the numbers of the features of each text, padded with 0, and their values: r / norm, and overlaps."""
        ids, overlaps = self.compare(*texts)
        ids, r = self._normalize(ids)
        if overlaps is None:
            return ids, r
        numbers = len(self.weight) + torch.arange(overlaps.shape[1]).expand_as(overlaps)
        return torch.cat((ids, numbers), dim=1), torch.cat((r, overlaps), dim=1)

    def _normalize(self, ids: Int[Tensor, "B N"]) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B N"]]:
        """Return the indices of n-grams in `weight`, and r of each n-gram divided by the norm of r over the text."""
        rows = ids
        if self.place is not None:
            ids = F.embedding(ids, self.place.unsqueeze(1)).squeeze(2).long()
        r = F.embedding(ids, self.ratio.unsqueeze(1)).squeeze(2).masked_fill(ids == 0, 0.0)
        if self.training and self.dropout:
            r = apply_dropout(r, self.dropout)
        if not self.characters:
            return ids, r / r.norm(dim=1, keepdim=True).clamp(min=1e-6)
        of_characters = rows % self.table_rows >= self.buckets
        words, characters = (
            r.masked_fill(mask, 0.0).norm(dim=1, keepdim=True).clamp(min=1e-6) / math.sqrt(share)
            for mask, share in ((of_characters, 1 - CHARACTER_SHARE), (~of_characters, CHARACTER_SHARE))
        )
        return ids, r / torch.where(of_characters, characters, words)

    def remove_unweighted(self) -> int:
        """Remove the rows with r = 0, before training. Returns the number of remaining rows."""
        rows = self.ratio.detach().nonzero().squeeze(1)
        place = torch.zeros(self.num_rows, dtype=torch.int32)
        place[rows] = torch.arange(1, 1 + len(rows), dtype=torch.int32)
        self.place = nn.Parameter(place, requires_grad=False)
        self.ratio = nn.Parameter(F.pad(self.ratio.detach()[rows], (1, 0)), requires_grad=False)
        self.weight = nn.Parameter(torch.zeros(1 + len(rows), self.weight.shape[1]))
        return len(rows)

    def weigh_by_ratio(self, present: Float[Tensor, "G K"], *, min_texts: int = MIN_TEXTS) -> None:
        """Set r of each n-gram to the largest |log-count ratio| of naive Bayes over labels (Wang & Manning 2012).

        `present` has the number of training texts of each label that have an n-gram in each row.
        """
        total = present.sum(1, keepdim=True)
        frequent = _is_frequent(total, min_texts)
        inside, outside = ((counts + 1).masked_fill(~frequent, 0.0) for counts in (present, total - present))
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()
        self.weigh(ratios.abs().amax(1).masked_fill(~frequent.squeeze(1), 0.0))

    def weigh_by_idf(
        self, present: Float[Tensor, " G"], num_texts: int, *, min_texts: int = MIN_TEXTS, power: float = 1
    ) -> None:
        """Set r to a power of the inverse document frequency, log((1 + texts) / (1 + texts with the n-gram)) + 1.

        `present` has the number of training texts with each n-gram (Spärck Jones 1972, smoothed as in scikit-learn).
        """
        idf = (((1 + num_texts) / (1 + present)).log() + 1) ** power
        self.weigh(idf.masked_fill(~_is_frequent(present, min_texts), 0.0))

    def weigh(self, ratio: Float[Tensor, " G"]) -> None:
        """Set the weights r."""
        self.ratio = nn.Parameter(ratio, requires_grad=False)


class PairBag(NgramBag):
    """A linear classifier of pairs, `score_k = b_k + Σ_g r_g w_gk / √(Σ_g r_g²) + Σ_n o_n v_nk`.

    The sum is over the n-grams g of two texts, including n-grams with unknown words. N-grams that both texts share
    have rows in the second table, all others in the first. The overlap o of a text is the share of its n-grams that are
    also in the other text. The two overlaps for each n, and for n-grams of characters, are sorted, so that the
    order of the texts has no effect.
    """

    tables = 2

    def __init__(self, num_labels: int, *, longest: int = 2, characters: bool = False, **sizes: Any) -> None:
        super().__init__(num_labels, longest=longest, characters=characters, **sizes)
        self.overlap = nn.Parameter(torch.zeros(2 * (longest + characters), num_labels))

    def compare(self, *texts: Int[Tensor, "B _ ..."]) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B o"]]:
        """Return the distinct n-grams as rows (shared n-grams in the second table), and the overlaps."""
        all_rows, overlaps = [], []
        for rows in zip(*(self._rows(keys, only_known=False) for keys in texts), strict=True):
            first, second = map(_remove_duplicates, rows)
            # the union of both sets of numbers, padded with 0, and a mask of their intersection
            ids = torch.cat((first, second), dim=1).sort(dim=1).values
            is_repeated = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] > 0)
            union, shared = ids.masked_fill(F.pad(is_repeated, (0, 1)), 0), F.pad(is_repeated, (1, 0))
            all_rows.append(union + self.table_rows * shared)
            sizes = torch.stack([first.count_nonzero(1), second.count_nonzero(1)], dim=1).clamp(min=1)
            overlaps.append((shared.sum(1, keepdim=True).to(self.weight.dtype) / sizes).sort(dim=1).values)
        return torch.cat(all_rows, dim=1), torch.cat(overlaps, dim=1)


def _remove_duplicates(ids: Int[Tensor, "B N"]) -> Int[Tensor, "B N"]:
    """Sort each row, and replace repeated numbers by 0."""
    ids = ids.sort(dim=1).values
    return ids.masked_fill(F.pad(ids[:, 1:] == ids[:, :-1], (1, 0)), 0)


def _is_frequent(total: Float[Tensor, "G ..."], min_texts: int) -> Bool[Tensor, "G ..."]:
    """Return a mask of the n-grams in at least `min_texts` texts, False for row 0 (padding and unknown words)."""
    frequent = total >= min_texts
    frequent[0] = False
    return frequent


MAX_TEXTS = 5_000
"""The maximum number of texts, since memory and time are quadratic in the number of texts."""
MAX_CHUNK_TEXTS = 256
"""The maximum number of rows of the Gram matrix that are computed together."""
DENSE_SHARE = 1 / 8
"""Features in more than this share of the texts are multiplied as a dense matrix, which is faster."""
SOLVER_IDF_POWER = 1.5
"""The power of inverse document frequencies for `solve`."""
MAX_EXACT_LABELS = 20
"""With more labels, `solve` minimizes in float32, which takes about half the time."""
NUM_FOLDS = 5
INVERSE_STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""The candidates for C in the objective C Σ cross-entropy + ½ ‖w‖², in ascending order."""
OTHER_NORMS = (0.1, 3.0)
"""The candidates for the mean squared norm of dense features, in addition to 1."""
ONLY_NORM = 10.0
"""The mean squared norm of dense features without n-grams."""
JITTER = 1e-7
"""The multiple of the identity that is added to the Gram matrix, which is singular if two texts are equal."""
PRIOR_DEVIATION = 3.0
"""The standard deviation of the normal priors of the logarithm of a scale, and of shifts, in `_calibrate`."""
EQUAL_SHARES = 1 / 4
"""The prior probability that all labels are equally frequent in future texts, as in many collections."""


@unwrap_methods
class LBFGS(torch.optim.LBFGS):
    """The limited-memory BFGS method (Liu & Nocedal 1989)."""


class Solution(NamedTuple):
    """The result of `solve`."""

    strength: float
    """The chosen factor C."""
    norm: float
    """The chosen mean squared norm of dense features."""
    logits: Float[Tensor, "N K"]
    """The logits of each text, from weights and a calibration that were estimated on the other folds."""
    loss: Tensor
    """The summed cross-entropy of these logits, in nats."""


def _build_features(
    bag: NgramBag | None, batches: Iterable[tuple[Tensor, tuple[Tensor, ...]]], num_texts: int
) -> tuple[Tensor, Int[Tensor, " G"]]:
    """Return the sparse matrix X (N, G) of the `NgramBag.terms` of N texts in float64, and the kinds of its columns.

    Without a bag, X has no columns. `batches` are as for `solve`.
    """
    if bag is None:
        return torch.zeros(num_texts, 0, dtype=torch.float64).to_sparse(), torch.zeros(0, dtype=torch.int64)
    places, values, shape = [], [], (num_texts, sum(map(len, bag.term_weights)))
    for numbers, texts in batches:
        ids, r = bag.terms(*texts)
        row, place = ids.nonzero(as_tuple=True)
        places.append(torch.stack((numbers[row], ids[row, place])))
        values.append(r[row, place].double())  # the hashes of two n-grams may be equal; `coalesce` adds their values
    features = torch.sparse_coo_tensor(torch.cat(places, 1), torch.cat(values), shape, check_invariants=False)
    return features.coalesce(), bag.kinds


def _compute_grams(features: Tensor, kinds: Int[Tensor, " G"], folds: Int[Tensor, " N"]) -> Float[Tensor, "2 N N"]:
    """Return X Xᵀ, and Z Xᵀ with the features Z that each text has if its fold is left out.

    As in a prediction, the norm of a left-out text does not include n-grams that no text of the other folds has. For
    texts of two folds and each kind of n-grams, Z Xᵀ is X Xᵀ times the ratio of the two norms.
    """
    (row, column), squares = features.indices(), features.values().square()
    same_fold = folds[row] * features.shape[1] + column
    is_known = (kinds[column] == OVERLAPS) | (torch.bincount(column)[column] > torch.bincount(same_fold)[same_fold])
    grams, chunks = squares.new_zeros(2, *folds.shape * 2), torch.split(torch.arange(len(folds)), MAX_CHUNK_TEXTS)
    is_dense = torch.bincount(column, minlength=len(kinds)) > DENSE_SHARE * len(folds)
    for kind in range(int(kinds.max()) + 1 if len(kinds) else 0):
        dense, sparse = (
            features.index_select(1, ((kinds == kind) & mask).nonzero().squeeze(1)) for mask in (is_dense, ~is_dense)
        )
        columns, dense = sparse.t().coalesce(), dense.to_dense()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
            product = torch.cat([torch.sparse.mm(sparse.index_select(0, rows), columns).to_dense() for rows in chunks])
        product.addmm_(dense, dense.t())
        known = squares * (is_known & (kinds[column] == kind))
        norm = squares.new_zeros(len(features)).index_add_(0, row, known)
        grams[0] += product
        grams[1] += product.mul_((product.diagonal() / norm).sqrt().masked_fill(norm == 0, 0.0)[:, None])
    return grams


def _minimize(objective: Callable[[], Tensor], parameters: list[Tensor]) -> None:
    """Set the parameters to the minimum of an objective, by L-BFGS; in float32 with a shorter history, in less time."""
    optimizer = LBFGS(
        [weight.requires_grad_() for weight in parameters], max_iter=100, tolerance_grad=1e-6, tolerance_change=1e-9,
        history_size=100 if parameters[0].dtype == torch.float64 else 10, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    for parameter in parameters:
        parameter.requires_grad_(False)


def _calibrate(logits: Float[Tensor, "N K"], loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Float[Tensor, " K"]]:
    """Return the scale s > 0 and the shifts d (K,) that minimize the loss of s · logits + d and priors (Platt 1999)."""
    spread = (logits.square().sum() / max(1, logits.numel())).sqrt().clamp(min=1e-6)
    log_scale, shift = logits.new_zeros(()), logits.new_zeros(logits.shape[1])

    def objective() -> Tensor:
        prior = (log_scale.square() + shift.square().sum()) / (2 * PRIOR_DEVIATION**2)
        return (loss(log_scale.exp() / spread * logits + shift) + prior) / max(1, len(logits))

    _minimize(objective, [log_scale, shift])
    return log_scale.exp() / spread, shift


def _correct_shares(counts: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """Return weights of labels, with which the labels of a sample have the expected shares in future texts.

    The expectation is over two hypotheses, given the counts of the sample: all shares are equal, with the prior
    probability `EQUAL_SHARES`, or all vectors of shares are equally probable.
    """
    total, num_labels = counts.sum(), counts.new_tensor(len(counts))
    evidence = (counts + 1).lgamma().sum() + num_labels.lgamma() - (total + num_labels).lgamma()
    equal = (math.log(EQUAL_SHARES / (1 - EQUAL_SHARES)) - total * num_labels.log() - evidence).sigmoid()
    shares = equal / num_labels + (1 - equal) * (counts + 1) / (total + num_labels)
    return shares * total / counts.clamp(min=1e-6)


def _loss_function(weights: Float[Tensor, " K"] | None, *, multiple: bool) -> partial[Tensor]:
    """Return a function from logits and targets to the summed cross-entropy, with weights of labels."""
    if multiple:
        return partial(F.binary_cross_entropy_with_logits, pos_weight=weights, reduction="sum")
    return partial(F.cross_entropy, weight=weights, reduction="sum")


def _has_labels_elsewhere(indicators: Float[Tensor, "N K"], folds: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Return for each text whether each of its labels also occurs in another fold."""
    in_fold = indicators.new_zeros(int(folds.max()) + 1, indicators.shape[1]).index_add_(0, folds, indicators)
    return ~((in_fold.sum(0) - in_fold < 1e-9)[folds] & (indicators > 0)).any(1)


def _standardize(values: Float[Tensor, "N p"]) -> tuple[Float[Tensor, "N p"], Float[Tensor, "N p"]]:
    """Return the centered values in float64, and the centered values divided by their mean squared norm."""
    centered = values.double() - values.double().mean(0)
    return centered, centered / centered.square().sum(1).mean().clamp(min=1e-12)


def solve(
    bag: NgramBag | None, batches: Iterable[tuple[Tensor, tuple[Tensor, ...]]], targets: Tensor,
    folds: Int[Tensor, " N"], *, weights: Float[Tensor, " K"] | None, multiple: bool,
    dense: tuple[Float[Tensor, "N p"], nn.Linear] | None = None,
    report: Callable[[str, float], None] = lambda name, share: None,
) -> Solution:  # fmt: skip
    """Set the weights w of `bag` and of `dense` to the minimum of C Σ cross-entropy + ½ ‖w‖², by L-BFGS.

    The minimum is a sum over the texts, w = Xᵀ a (Kimeldorf & Wahba 1970). With the Cholesky factor L of the Gram
    matrix X Xᵀ, the logits are L v for v = Lᵀ a, and ‖w‖ = ‖v‖. So there is one unknown for each text and label.

    Args:
        bag: The bag in evaluation mode. The weights r of its n-grams are set, and do not depend on the labels. None:
            only the features `dense` are used.
        batches: Batches of the numbers of texts (B,), and the keys of the words (B, T) of these texts, or of the first
            and the second texts of pairs.
        targets: The ids of labels (N,), or with `multiple` indicators (N, K), or probabilities (N, K).
        folds: The number of the fold of each text, with two distinct numbers or more.
        weights: The weights of the labels in the loss; None: 1.
        multiple: Whether the task is multi-label: labels are independent of each other.
        dense: Further features, and the linear layer that reads them. The features are centered, and scaled to a mean
            squared norm: 1, the norm of the n-grams of a text, or one of `OTHER_NORMS`; `ONLY_NORM` without n-grams.
        report: Receives "cross-validation" and its completed share.

    Returns:
        The `Solution` with the least cross-entropy of left-out texts; C is chosen first, then the norm.
    """
    if dense is not None:
        (values, layer), (centered, scaled) = dense, _standardize(dense[0])
    intercept = layer.bias if bag is None else bag.bias
    features, kinds = _build_features(bag, batches, len(targets))
    grams = _compute_grams(features, kinds, folds)
    indicators = (targets if targets.dim() == 2 else F.one_hot(targets.long(), len(intercept))).double()
    dtype = torch.float64 if len(intercept) <= MAX_EXACT_LABELS else torch.float32
    targets = indicators.to(dtype) if targets.dim() == 2 else targets.long()
    loss = _loss_function(None if weights is None else weights.to(dtype), multiple=multiple)
    comparable = _has_labels_elsewhere(indicators, folds)
    zeros = torch.zeros(indicators.shape, dtype=dtype), torch.zeros(len(intercept), dtype=dtype)
    fits, norms = count(), () if dense is None or bag is None else OTHER_NORMS

    @lru_cache(1)
    def kernel(norm: float) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factor L, and the products of left-out texts with all texts."""
        gram, left_out = grams if dense is None else grams + norm * scaled @ centered.t()
        return torch.linalg.cholesky(gram + JITTER * torch.eye(len(gram), dtype=gram.dtype)), left_out

    def fit(v: Tensor, bias: Tensor, factor: Tensor, rows: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        v, bias, inputs = v.clone(), bias.clone(), factor[rows].to(dtype)

        def objective() -> Tensor:
            return (loss(bias + inputs @ v, targets[rows]) + v.square().sum() / (2 * strength)) / len(inputs)

        _minimize(objective, [v, bias])
        return v, bias

    def calibrate(logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        is_corrected = weights is None and not multiple
        options = {"weight": _correct_shares(indicators[rows].sum(0)).to(dtype)} if is_corrected else {}
        return _calibrate(logits[rows], partial(loss, **options, target=targets[rows]))

    def cross_validate(norm: float, strengths: Iterable[float]) -> tuple[Solution, Tensor]:
        """Try strengths until the loss does not fall. Return the best solution, and its logits before calibration."""
        (factor, left_out), best = kernel(norm), (Solution(0.0, norm, zeros[0], torch.tensor(math.inf)), zeros[0])
        solutions = dict.fromkeys(sorted({*folds.tolist()}), zeros)
        for strength in strengths:
            logits, final = torch.empty_like(zeros[0]), torch.empty_like(zeros[0])
            for fold, start in solutions.items():
                report("cross-validation", next(fits) / len(solutions) / (len(INVERSE_STRENGTHS) + len(norms)))
                solutions[fold] = v, bias = fit(*start, factor, folds != fold, strength)
                coefficients = torch.linalg.solve_triangular(factor.t(), v.to(factor), upper=True)
                logits[folds == fold] = bias + (left_out[folds == fold] @ coefficients).to(dtype)
            for fold in solutions:
                scale, shift = calibrate(logits, comparable & (folds != fold))
                final[folds == fold] = scale * logits[folds == fold] + shift
            if (total := loss(final, targets)) >= best[0].loss:
                break
            best = Solution(strength, norm, final, total), logits
        return best

    best, logits = cross_validate(ONLY_NORM if bag is None else 1.0, INVERSE_STRENGTHS)
    for norm in norms:
        best, logits = min((best, logits), cross_validate(norm, [best.strength]), key=lambda pair: float(pair[0].loss))
    (scale, shift), (factor, _) = calibrate(logits, comparable), kernel(best.norm)
    v, bias = fit(*zeros, factor, folds >= 0, best.strength)
    coefficients = torch.linalg.solve_triangular(factor.t(), (scale * v).to(factor), upper=True)
    with torch.no_grad():
        intercept.zero_()
        if dense is not None:
            layer.weight.copy_(best.norm * coefficients.t() @ scaled)
            layer.bias.copy_(-layer.weight @ values.mean(0))
        intercept.add_(scale * bias + shift)
        if bag is not None:
            bag.set_term_weights(torch.sparse.mm(features.t(), coefficients))
    return best
