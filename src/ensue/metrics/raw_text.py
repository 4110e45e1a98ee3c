"""The scores of an analysis that begins with raw text, as the CoNLL 2018 shared task counts them (Zeman et al. 2018).

The characters of the right and of the said analysis are the same but for blanks. So a token is right if it begins and
ends at the same characters as a right one, and so is a sentence. Words are aligned by their characters as well. Where a
multiword token of either side stands, the words in its place are aligned by the longest common subsequence of their
forms in lowercase. A part of speech counts as right if the word is aligned and both have the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
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
"""The attributes of FEATS that count."""


class AnalyzedWord(NamedTuple):
    """A word with what is said of it."""

    form: str
    upos: str = "_"
    xpos: str = "_"
    feats: str = "_"
    lemma: str = "_"


class AnalyzedToken(NamedTuple):
    """A token and its words, several of a multiword token."""

    form: str
    words: Sequence[AnalyzedWord]


class _Placed(NamedTuple):
    """A word and the place of its token among the characters."""

    word: AnalyzedWord
    start: int
    end: int
    is_multiword: bool


Sentences = Sequence[Sequence[AnalyzedToken]]


@dataclass(frozen=True)
class RawTextScores(Scores):
    """Precision, recall and F1 of tokens, sentences, words, and of what is said of words."""

    scores: dict[str, LabelScore]

    def as_json(self) -> dict[str, Any]:
        """The F1 of each, and all of each in `per_label`."""
        of_each = {name: asdict(score) for name, score in self.scores.items()}
        return {**{name: score.f1 for name, score in self.scores.items()}, "per_label": of_each}

    def summary(self) -> str:
        return ", ".join(f"{name} {100 * score.f1:.2f}" for name, score in self.scores.items())


def raw_text_scores(gold: Sentences, said: Sentences, *, with_tags: bool = True) -> RawTextScores:
    """The scores of an analysis, without tags of tokens, sentences, words alone. Raises EnsueError for another text."""
    right, other = _Places(gold), _Places(said)
    if right.characters != other.characters:
        pairs = zip(right.characters, other.characters, strict=False)
        place = next((place for place, (a, b) in enumerate(pairs) if a != b), min(right.size, other.size))
        near = right.characters[max(0, place - 10) : place + 10]
        raise EnsueError(f"the two analyses are not of the same text: they differ near {near!r}")
    found = {
        "tokens": _of_places(right.tokens, other.tokens),
        "sentences": _of_places(right.sentences, other.sentences),
    }
    aligned = align(right.words, other.words)
    support, predicted = len(right.words), len(other.words)
    found["words"] = LabelScore.of(len(aligned), support, predicted)
    for name, same in TAGS.items() if with_tags else ():
        correct = sum(same(a, b) for a, b in aligned)
        found[name] = LabelScore.of(correct, support, predicted)
    return RawTextScores(found)


def _universal(feats: str) -> list[str]:
    return sorted(entry for entry in feats.split("|") if entry.partition("=")[0] in UNIVERSAL)


TAGS: dict[str, Callable[[AnalyzedWord, AnalyzedWord], bool]] = {
    "upos": lambda a, b: a.upos == b.upos,
    "xpos": lambda a, b: a.xpos == b.xpos,
    "feats": lambda a, b: _universal(a.feats) == _universal(b.feats),
    "lemmas": lambda a, b: a.lemma in ("_", b.lemma),  # a lemma that the gold data lack is right
}
"""Whether two words, the right one and the said one, have the same."""


class _Places:
    """The places of tokens, sentences and words among all characters but blanks."""

    def __init__(self, sentences: Sentences) -> None:
        self.tokens: list[tuple[int, int]] = []
        self.sentences: list[tuple[int, int]] = []
        self.words: list[_Placed] = []
        parts: list[str] = []
        place = 0
        for sentence in sentences:
            begin = place
            for token in sentence:
                form = "".join(token.form.split())
                parts.append(form)
                start, place = place, place + len(form)
                self.tokens.append((start, place))
                self._add(token, start, place)
            self.sentences.append((begin, place))
        self.characters, self.size = "".join(parts), place

    def _add(self, token: AnalyzedToken, start: int, end: int) -> None:
        is_multiword = len(token.words) > 1
        self.words += [_Placed(word, start, end, is_multiword) for word in token.words]


def _of_places(right: list[tuple[int, int]], said: list[tuple[int, int]]) -> LabelScore:
    return LabelScore.of(len(set(right) & set(said)), len(right), len(said))


def align(right: Sequence[_Placed], said: Sequence[_Placed]) -> list[tuple[AnalyzedWord, AnalyzedWord]]:
    """The aligned words: of equal characters, or in a longest common subsequence where multiword tokens are."""
    regions = _regions({(word.start, word.end) for word in chain(right, said) if word.is_multiword})
    (alone, inside), (others_alone, others_inside) = (_parted(words, regions) for words in (right, said))
    pairs = [(word, others_alone[place]) for place, word in alone.items() if place in others_alone]
    for region, words in inside.items():
        pairs += _common(words, others_inside.get(region, []))
    return pairs


def _regions(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The unions of places that overlap, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _parted(
    words: Sequence[_Placed], regions: list[tuple[int, int]]
) -> tuple[dict[tuple[int, int], AnalyzedWord], dict[int, list[AnalyzedWord]]]:
    """The words by their place, and those in a region by its number."""
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


def _common(right: Sequence[AnalyzedWord], said: Sequence[AnalyzedWord]) -> Iterator[tuple[AnalyzedWord, AnalyzedWord]]:
    """The words of a longest common subsequence of forms in lowercase."""
    forms, others = ([word.form.lower() for word in words] for words in (right, said))
    rows = [[0] * (len(others) + 1)]  # from the last word on: the longest of what follows
    for form in reversed(forms):
        row = [0]
        for place, other in zip(reversed(range(len(others))), reversed(others), strict=True):
            row.append(rows[-1][place + 1] + 1 if form == other else max(rows[-1][place], row[-1]))
        rows.append(row[::-1])
    rows.reverse()
    a = b = 0
    while a < len(forms) and b < len(others):
        if forms[a] == others[b]:
            yield right[a], said[b]
            a, b = a + 1, b + 1
        elif rows[a + 1][b] >= rows[a][b + 1]:
            a += 1
        else:
            b += 1
