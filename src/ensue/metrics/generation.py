"""Scores of generated texts against references: BLEU and chrF++, ROUGE, exact match, edit rate.

BLEU (Papineni et al. 2002) and chrF++ (Popović 2017) are those of sacrebleu, ROUGE (Lin 2004) those of rouge-score with
stemming. Both libraries are imported at first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ensue.errors import EnsueError
from ensue.metrics.scores import (
    RESAMPLES,
    Difference,
    ItemRows,
    Numbers,
    Score,
    ScoredItems,
    Scores,
    card_columns,
    differences,
    of_sums,
    ratio,
)

ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class Comparison(Scores):
    """The scores of two systems on the same texts, ours first, and the probability that chance makes such a difference.

    By paired bootstrap with `RESAMPLES` samples, in either direction (`metrics/scores.py`).
    """

    bleu: tuple[float, float]
    chrf: tuple[float, float]
    p_bleu: float
    p_chrf: float

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --compare --json`; the other system's scores come second."""
        return {**super().as_json(), "bleu": list(self.bleu), "chrf": list(self.chrf), "resamples": RESAMPLES}

    def summary(self) -> str:
        ours, theirs = self.bleu
        return (
            f"BLEU {ours:.2f} against {theirs:.2f} (p = {self.p_bleu:.3f}), chrF++ {self.chrf[0]:.2f} against "
            f"{self.chrf[1]:.2f} (p = {self.p_chrf:.3f}); paired bootstrap, {RESAMPLES:,} samples"
        )


@dataclass(frozen=True)
class GenerationScores(Scores):
    """Scores of texts against their references, all in percent but for the nats.

    An edit rate is the number of insertions, deletions and substitutions for each word of the reference, or for each
    character where no reference has a blank. Of several references the nearest counts. `nats_per_token` is the mean
    surprisal of the tokens of the first reference, ends included.
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
    comparison: Comparison | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "bleu": self.bleu,
            "chrf": self.chrf,
            **(self.rouge or {}),
            "exact_match": self.exact_match,
            "edit_rate": self.edit_rate,
            "nats_per_token": self.nats_per_token,
            "examples": self.examples,
            "signature": self.signature,
            **({} if self.comparison is None else {"comparison": self.comparison.as_json()}),
        }

    def summary(self) -> str:
        rouge = "".join(
            f", {name.replace('rouge', 'ROUGE-')} {value:.1f}" for name, value in (self.rouge or {}).items()
        )
        return f"BLEU {self.bleu:.2f}, chrF++ {self.chrf:.2f}{rouge}, exact match {self.exact_match:.2f} %"


def score_texts(
    texts: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str,
    nats: Sequence[tuple[float, int]] | None = None,
) -> GenerationScores:
    """The scores of `texts`; `references` has one or several for each. `tokenize` is a name of sacrebleu's. `nats` has
    the surprisal of each first reference, with the number of its tokens.

    Raises EnsueError for no text.
    """
    if not texts:
        raise EnsueError("there is nothing to score: no text with a reference")
    items, signature = scored_items(texts, references, tokenize=tokenize, nats=nats)
    scores = items.whole()
    has_words = tokenize != "char" and any(" " in reference for given in references for reference in given)
    pairs = list(zip(texts, references, strict=True))
    edits = [nearest_edits(_units(text, has_words), [_units(r, has_words) for r in given]) for text, given in pairs]
    return GenerationScores(
        bleu=scores["bleu"],
        chrf=scores["chrf"],
        exact_match=scores["exact_match"],
        edit_rate=100 * sum(count for count, _ in edits) / max(1, sum(length for _, length in edits)),
        examples=len(texts),
        signature=signature,
        nats_per_token=scores.get("nats_per_token"),
        rouge=rouge_scores(texts, references) if has_words else None,
    )


def check_scorable() -> None:
    """Raises EnsueError if a package of these scores is not installed."""
    if missing := [name for name in ("sacrebleu", "rouge_score") if find_spec(name) is None]:
        raise EnsueError(f"scores of written texts need the package {missing[0]}: pip install 'ensue[scores]'")


def bleu_metric(tokenize: str) -> Any:
    """Sacrebleu's BLEU with a tokenizer of sacrebleu's ("13a", "none", "char", ...)."""
    check_scorable()
    from sacrebleu.metrics import BLEU  # noqa: PLC0415 (it takes a while)

    return BLEU(tokenize=tokenize, force=True)


def chrf_metric() -> Any:
    """Sacrebleu's chrF++: n-grams of up to 6 characters and 2 words."""
    from sacrebleu.metrics import CHRF  # noqa: PLC0415

    return CHRF(word_order=2)


def reference_columns(references: Sequence[Sequence[str]]) -> Any:
    """References as sacrebleu has them: a list for each number of a reference, with None where a text has fewer."""
    most = max(len(given) for given in references)
    return [[given[place] if place < len(given) else None for given in references] for place in range(most)]


def rouge_scores(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means of ROUGE-1, ROUGE-2 and ROUGE-L (F), with Porter's stemmer; of several references the best counts."""
    scorer = _rouge_scorer()
    totals = dict.fromkeys(ROUGES, 0.0)
    for text, given in zip(texts, references, strict=True):
        found = [scorer.score(reference, text) for reference in given]
        for name in ROUGES:
            totals[name] += max(scores[name].fmeasure for scores in found)
    return {name: 100 * total / len(texts) for name, total in totals.items()}


@cache
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415
    from rouge_score.tokenizers import DefaultTokenizer  # noqa: PLC0415

    return RougeScorer(ROUGES, tokenizer=DefaultTokenizer(use_stemmer=True))  # by default it logs, with a new handler


def nearest_edits(tokens: Sequence[str], references: Iterable[Sequence[str]]) -> tuple[int, int]:
    """The edits to the nearest reference, and the length of that reference."""
    found = [(edit_distance(tokens, reference), len(reference)) for reference in references]
    return min(found, key=lambda pair: (pair[0] / max(1, pair[1]), pair))


def edit_distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The least number of insertions, deletions and substitutions that make `b` of `a` (Levenshtein 1966).

    A column of the table of distances is two integers whose bit i says whether it rises or falls behind `a[i]` (Myers
    1999; Hyyrö 2003).
    """
    places: dict[Any, int] = {}
    for i, symbol in enumerate(a):
        places[symbol] = places.get(symbol, 0) | 1 << i
    full, last = (1 << len(a)) - 1, 1 << len(a) >> 1
    rises, falls, distance = full, 0, len(a)
    if not a:
        return len(b)
    for symbol in b:
        equal = places.get(symbol, 0)
        zero = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | ~(zero | rises) & full, rises & zero
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, down << 1 & full
        rises, falls = down | ~(zero | up) & full, up & zero
    return distance


def _units(text: str, has_words: bool) -> list[str]:
    return text.split() if has_words else list(text)


def scored_items(
    texts: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str,
    nats: Sequence[tuple[float, int]] | None = None,
) -> tuple[ScoredItems, str]:
    """The scores of `texts`, which are the items; with `nats` also those of each first reference and its tokens. Beside
    them the signatures of sacrebleu.
    """
    columns, rows = reference_columns(references), ItemRows()
    bleu, chrf = bleu_metric(tokenize), chrf_metric()
    counts = [metric._extract_corpus_statistics(texts, columns) for metric in (bleu, chrf)]
    surprisal = [(0.0, 0)] * len(texts) if nats is None else nats
    for text, given, of_bleu, of_chrf, of_tokens in zip(texts, references, *counts, surprisal, strict=True):
        rows.append([*of_bleu, *of_chrf, text in given, 1, *of_tokens])
    first, second = len(counts[0][0]), len(counts[0][0]) + len(counts[1][0])
    scores = {"bleu": _of_counts(bleu, 0, first), "chrf": _of_counts(chrf, first, second)}
    scores["exact_match"] = of_sums(lambda sums: 100 * sums[:, second] / sums[:, second + 1])
    if nats is not None:
        scores["nats_per_token"] = ratio(second + 2, second + 3)
    return rows.scored("texts", scores), f"BLEU {bleu.get_signature()}; chrF {chrf.get_signature()}"


def _of_counts(metric: Any, start: int, stop: int) -> Score:
    """A score of sacrebleu's from the columns of its counts."""

    def score(sums: Numbers) -> Numbers:
        counts = sums[:, start:stop].astype(np.int64).tolist()
        return np.array([metric._compute_score_from_stats(row).score for row in counts])

    return of_sums(score)


def compare_texts(
    ours: Sequence[str], theirs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str
) -> Comparison:
    """Whether `ours` score better than `theirs`."""
    both = [scored_items(texts, references, tokenize=tokenize)[0] for texts in (ours, theirs)]
    (bleu, chrf), (bleu_theirs, chrf_theirs) = ((s["bleu"], s["chrf"]) for s in (items.whole() for items in both))
    found: dict[str, Difference] = differences(*both)
    p_bleu, p_chrf = (found[name].p if found else 1.0 for name in ("bleu", "chrf"))
    return Comparison((bleu, bleu_theirs), (chrf, chrf_theirs), p_bleu, p_chrf)
