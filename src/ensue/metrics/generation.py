"""Scores of generated texts against references: BLEU, chrF++, ROUGE, exact match and edit rate.

sacrebleu computes BLEU (Papineni et al. 2002) and chrF++ (Popović 2017), and rouge-score computes ROUGE with stemming
(Lin 2004). Both libraries are imported at first use.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from ensue.errors import EnsueError
from ensue.metrics.scores import RESAMPLES, ItemRows, ScoredItems, Scores, card_columns, differences, of_sums, quotient

ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class SystemComparison(Scores):
    """The scores of two systems, ours and theirs, on the same texts, and p-values of a two-sided paired bootstrap."""

    bleu: tuple[float, float]
    chrf: tuple[float, float]
    p_bleu: float
    p_chrf: float

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "bleu": list(self.bleu), "chrf": list(self.chrf), "resamples": RESAMPLES}

    def summary(self) -> str:
        ours, theirs = self.bleu
        return (
            f"BLEU {ours:.2f} against {theirs:.2f} (p = {self.p_bleu:.3f}), chrF++ {self.chrf[0]:.2f} against "
            f"{self.chrf[1]:.2f} (p = {self.p_chrf:.3f}); paired bootstrap, {RESAMPLES:,} samples"
        )


@dataclass(frozen=True)
class GenerationScores(Scores):
    """Scores of texts against their references. All scores except `nats_per_token` are in percent.

    The edit rate is the number of insertions, deletions and substitutions per word of the nearest reference, or per
    character for the tokenizer "char" and for references without spaces. `nats_per_token` is the mean surprisal of the
    tokens in first references.
    """

    on_card = card_columns(".4g", "nats_per_token", "bleu", "chrf", *ROUGES, "exact_match", "edit_rate")
    bleu: float
    chrf: float
    exact_match: float
    edit_rate: float
    examples: int
    signature: str
    nats_per_token: float | None = None
    rouge: dict[str, float] | None = None
    comparison: SystemComparison | None = None

    def as_json(self) -> dict[str, Any]:
        names = ("exact_match", "edit_rate", "nats_per_token", "examples", "signature")
        scores = {"bleu": self.bleu, "chrf": self.chrf, **(self.rouge or {})}
        scores |= {name: getattr(self, name) for name in names}
        return scores if self.comparison is None else scores | {"comparison": self.comparison.as_json()}

    def summary(self) -> str:
        scores = (self.rouge or {}).items()
        rouge = "".join(f", {name.replace('rouge', 'ROUGE-')} {score:.1f}" for name, score in scores)
        return f"BLEU {self.bleu:.2f}, chrF++ {self.chrf:.2f}{rouge}, exact match {self.exact_match:.2f} %"


def score_texts(
    texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str,
    nats: Sequence[tuple[float, int]] | None = None,
) -> GenerationScores:  # fmt: skip
    """Return the scores of texts. Each text has one or several references. Raises EnsueError without texts.

    `tokenize` is a tokenizer of sacrebleu. `nats` has the surprisal and number of tokens of each first reference.
    """
    if not texts:
        raise EnsueError("there is nothing to score: no text with a reference")
    items, signature = scored_items(texts, references, tokenize=tokenize, nats=nats)
    scores = items.compute()
    has_words = tokenize != "char" and any(" " in text for text in chain.from_iterable(references))
    split: Callable[[str], list[str]] = str.split if has_words else list
    pairs = zip(map(split, texts), references, strict=True)
    edits = [nearest_edits(units, map(split, text_references)) for units, text_references in pairs]
    return GenerationScores(
        bleu=scores["bleu"], chrf=scores["chrf"], exact_match=scores["exact_match"],
        edit_rate=100 * sum(count for count, _ in edits) / max(1, sum(length for _, length in edits)),
        examples=len(texts), signature=signature, nats_per_token=scores.get("nats_per_token"),
        rouge=rouge_scores(texts, references) if has_words else None,
    )  # fmt: skip


def check_scorable() -> None:
    """Raise EnsueError if sacrebleu or rouge-score is not installed."""
    if missing := [name for name in ("sacrebleu", "rouge_score") if find_spec(name) is None]:
        raise EnsueError(f"scores of generated texts need the package {missing[0]}: pip install 'ensue[scores]'")


def bleu_metric(tokenize: str) -> Any:
    """Return the BLEU of sacrebleu with one of its tokenizers ("13a", "none", "char", ...)."""
    check_scorable()
    from sacrebleu.metrics import BLEU  # noqa: PLC0415 (a slow import)

    return BLEU(tokenize=tokenize, force=True)


def rouge_scores(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L, with Porter stemming, for the best reference of each text."""
    scorer = _rouge_scorer()
    totals = dict.fromkeys(ROUGES, 0.0)
    for text, text_references in zip(texts, references, strict=True):
        by_reference = [scorer.score(reference, text) for reference in text_references]
        for name in ROUGES:
            totals[name] += max(scores[name].fmeasure for scores in by_reference)
    return {name: 100 * total / len(texts) for name, total in totals.items()}


@cache
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415
    from rouge_score.tokenizers import DefaultTokenizer  # noqa: PLC0415

    # without the argument `tokenizer`, RougeScorer adds a logging handler
    return RougeScorer(ROUGES, tokenizer=DefaultTokenizer(use_stemmer=True))


def nearest_edits(tokens: Sequence[str], references: Iterable[Sequence[str]]) -> tuple[int, int]:
    """Return the edit distance to the nearest reference, and the length of this reference."""
    pairs = [(edit_distance(tokens, reference), len(reference)) for reference in references]
    return min(pairs, key=lambda pair: (pair[0] / max(1, pair[1]), pair))


def edit_distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return the minimum number of insertions, deletions and substitutions from `a` to `b` (Levenshtein 1966).

    Two integers represent a column of the distance matrix: bit i of `rises` (`falls`) is whether the distance rises
    (falls) from row i to row i + 1 (Myers 1999; Hyyrö 2003).
    """
    masks: dict[Any, int] = {}  # bit i of a symbol's mask is whether the symbol is at position i of `a`
    for i, symbol in enumerate(a):
        masks[symbol] = masks.get(symbol, 0) | 1 << i
    full, last = (1 << len(a)) - 1, 1 << len(a) >> 1
    rises, falls, distance = full, 0, len(a)
    if not a:
        return len(b)
    for symbol in b:
        equal = masks.get(symbol, 0)
        zero = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | ~(zero | rises) & full, rises & zero
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, down << 1 & full
        rises, falls = down | ~(zero | up) & full, up & zero
    return distance


def scored_items(
    texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str,
    nats: Sequence[tuple[float, int]] | None = None,
) -> tuple[ScoredItems, str]:  # fmt: skip
    """Return the texts as items of a significance test, and sacrebleu's signatures, which describe its settings."""
    bleu, rows = bleu_metric(tokenize), ItemRows()
    from sacrebleu.metrics import CHRF  # noqa: PLC0415 (a slow import)

    chrf = CHRF(word_order=2)  # chrF++: n-grams of up to 6 characters and 2 words
    columns = [*map(list, zip_longest(*references))]  # sacrebleu needs a list of all n-th references (None: missing)
    counts = [metric._extract_corpus_statistics(texts, columns) for metric in (bleu, chrf)]
    surprisal = [(0.0, 0)] * len(texts) if nats is None else nats
    for text, correct, bleu_counts, chrf_counts, token_nats in zip(texts, references, *counts, surprisal, strict=True):
        rows.append([*bleu_counts, *chrf_counts, text in correct, 1, *token_nats])
    bleu_end, end = len(counts[0][0]), len(counts[0][0]) + len(counts[1][0])  # columns of the rows
    scores = {"bleu": _score_of_counts(bleu, 0, bleu_end), "chrf": _score_of_counts(chrf, bleu_end, end)}
    scores["exact_match"] = of_sums(lambda sums: 100 * sums[:, end] / sums[:, end + 1])
    if nats is not None:
        scores["nats_per_token"] = quotient(end + 2, end + 3)
    return rows.build_items("texts", scores), f"BLEU {bleu.get_signature()}; chrF {chrf.get_signature()}"


def _score_of_counts(metric: Any, start: int, stop: int) -> Any:
    def score(sums: Any) -> Any:
        counts = sums[:, start:stop].astype(np.int64).tolist()
        return np.array([metric._compute_score_from_stats(row).score for row in counts])

    return of_sums(score)


def compare_texts(
    ours: Sequence[str], theirs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str
) -> SystemComparison:
    """Return the scores of two systems on the same texts, with p-values of their differences."""
    systems = [scored_items(texts, references, tokenize=tokenize)[0] for texts in (ours, theirs)]
    first, second = (items.compute() for items in systems)
    bleu, chrf = ((first[name], second[name]) for name in ("bleu", "chrf"))
    tested = differences(*systems)
    return SystemComparison(bleu, chrf, *(tested[name].p if tested else 1.0 for name in ("bleu", "chrf")))
