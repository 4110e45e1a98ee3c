"""Scores of the analysis of raw text, as in the CoNLL 2018 shared task (Zeman et al. 2018).

The gold and the predicted analysis must have the same text, except for whitespace. A predicted token or sentence is
correct if the gold analysis has a token or sentence at the same characters. Words are aligned by their characters, and
inside multiword tokens of either analysis by the longest common subsequence of lowercased forms. A tag is correct if
the word is aligned and both tags are equal.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from ensue.errors import EnsueError
from ensue.metrics.confusion import LabelScore
from ensue.metrics.scores import Scores

UNIVERSAL = frozenset(
    """
    PronType NumType Poss Reflex Foreign Abbr Gender Animacy Number Case Definite Degree VerbForm Mood Tense Aspect
    Voice Evident Polarity Person Polite
    """.split()  # noqa: SIM905
)
"""The names of the morphological features (FEATS) that are compared."""


class AnalyzedWord(NamedTuple):
    """A word with its annotations."""

    form: str
    upos: str = "_"
    xpos: str = "_"
    feats: str = "_"
    lemma: str = "_"


class AnalyzedToken(NamedTuple):
    """A token and its words. A multiword token has several words."""

    form: str
    words: Sequence[AnalyzedWord]


class _LocatedWord(NamedTuple):
    """A word, the offsets of its token, and whether the token has several words."""

    word: AnalyzedWord
    start: int
    end: int
    is_multiword: bool


Sentences = Sequence[Sequence[AnalyzedToken]]


@dataclass(frozen=True)
class RawTextScores(Scores):
    """Precision, recall and F1 of tokens, sentences, words and annotations."""

    scores: dict[str, LabelScore]

    def as_json(self) -> dict[str, Any]:
        """Return the F1 of all annotations, and all scores at the key `per_label`, as JSON values."""
        per_label = {name: asdict(score) for name, score in self.scores.items()}
        return {**{name: score.f1 for name, score in self.scores.items()}, "per_label": per_label}

    def summary(self) -> str:
        return ", ".join(f"{name} {100 * score.f1:.2f}" for name, score in self.scores.items())


def raw_text_scores(gold: Sentences, predicted: Sentences, *, with_tags: bool = True) -> RawTextScores:
    """Return the scores of a predicted analysis. Raises EnsueError if the texts differ."""
    gold_offsets, predicted_offsets = _Offsets(gold), _Offsets(predicted)
    if gold_offsets.characters != predicted_offsets.characters:
        pairs = zip_longest(gold_offsets.characters, predicted_offsets.characters)
        offset = next(offset for offset, (a, b) in enumerate(pairs) if a != b)
        near = gold_offsets.characters[max(0, offset - 10) : offset + 10]
        raise EnsueError(f"the two analyses are not of the same text: they differ near {near!r}")
    scores = {
        "tokens": _compare_offsets(gold_offsets.tokens, predicted_offsets.tokens),
        "sentences": _compare_offsets(gold_offsets.sentences, predicted_offsets.sentences),
    }
    aligned = align(gold_offsets.words, predicted_offsets.words)
    support, count = len(gold_offsets.words), len(predicted_offsets.words)
    scores["words"] = LabelScore.of(len(aligned), support, count)
    for name, is_same in TAGS.items() if with_tags else ():
        scores[name] = LabelScore.of(sum(is_same(a, b) for a, b in aligned), support, count)
    return RawTextScores(scores)


def _universal_features(feats: str) -> list[str]:
    return sorted(entry for entry in feats.split("|") if entry.partition("=")[0] in UNIVERSAL)


TAGS: dict[str, Callable[[AnalyzedWord, AnalyzedWord], bool]] = {
    "upos": lambda a, b: a.upos == b.upos,
    "xpos": lambda a, b: a.xpos == b.xpos,
    "feats": lambda a, b: _universal_features(a.feats) == _universal_features(b.feats),
    "lemmas": lambda a, b: a.lemma in ("_", b.lemma),  # without a gold lemma, any lemma is correct
}
"""Functions that return whether an annotation of a gold word and a predicted word is the same."""


class _Offsets:
    """The offsets of tokens, sentences and words in the text without whitespace."""

    def __init__(self, sentences: Sentences) -> None:
        self.tokens: list[tuple[int, int]] = []
        self.sentences: list[tuple[int, int]] = []
        self.words: list[_LocatedWord] = []
        forms: list[str] = []
        end = 0
        for sentence in sentences:
            begin = end
            for token in sentence:
                forms.append("".join(token.form.split()))
                start, end = end, end + len(forms[-1])
                self.tokens.append((start, end))
                self.words += [_LocatedWord(word, start, end, len(token.words) > 1) for word in token.words]
            self.sentences.append((begin, end))
        self.characters = "".join(forms)


def _compare_offsets(gold: list[tuple[int, int]], predicted: list[tuple[int, int]]) -> LabelScore:
    return LabelScore.of(len(set(gold) & set(predicted)), len(gold), len(predicted))


def align(gold: Sequence[_LocatedWord], predicted: Sequence[_LocatedWord]) -> list[tuple[AnalyzedWord, AnalyzedWord]]:
    """Return pairs of aligned words, which have equal offsets or are in a common subsequence of multiword tokens."""
    regions: list[tuple[int, int]] = []
    for start, end in sorted({(word.start, word.end) for word in chain(gold, predicted) if word.is_multiword}):
        if regions and start < regions[-1][1]:
            regions[-1] = regions[-1][0], max(end, regions[-1][1])
        else:
            regions.append((start, end))
    (alone, inside), (others_alone, others_inside) = (_split_by_region(words, regions) for words in (gold, predicted))
    pairs = [(word, others_alone[place]) for place, word in alone.items() if place in others_alone]
    for region, words in inside.items():
        pairs += _common_subsequence(words, others_inside.get(region, []))
    return pairs


def _split_by_region(
    words: Sequence[_LocatedWord], regions: list[tuple[int, int]]
) -> tuple[dict[tuple[int, int], AnalyzedWord], dict[int, list[AnalyzedWord]]]:
    alone: dict[tuple[int, int], AnalyzedWord] = {}
    inside: dict[int, list[AnalyzedWord]] = {}
    begins = [start for start, _ in regions]
    for word, start, end, _ in words:
        region = bisect_right(begins, start) - 1
        if region >= 0 and end <= regions[region][1]:
            inside.setdefault(region, []).append(word)
        else:
            alone[start, end] = word
    return alone, inside


def _common_subsequence(
    gold: Sequence[AnalyzedWord], predicted: Sequence[AnalyzedWord]
) -> Iterator[tuple[AnalyzedWord, AnalyzedWord]]:
    """Yield pairs of words in a longest common subsequence of lowercased forms."""
    forms, others = ([word.form.lower() for word in words] for words in (gold, predicted))
    rows = [[0] * (len(others) + 1)]  # after the reversal, rows[a][b] is the length for gold[a:] and predicted[b:]
    for form in reversed(forms):
        row = [0]
        for place, other in zip(reversed(range(len(others))), reversed(others), strict=True):
            row.append(rows[-1][place + 1] + 1 if form == other else max(rows[-1][place], row[-1]))
        rows.append(row[::-1])
    rows.reverse()
    a = b = 0
    while a < len(forms) and b < len(others):
        if forms[a] == others[b]:
            yield gold[a], predicted[b]
            a, b = a + 1, b + 1
        elif rows[a + 1][b] >= rows[a][b + 1]:
            a += 1
        else:
            b += 1
