"""The scores of an analysis that begins with raw text, as the CoNLL 2018 shared task counts them (Zeman et al. 2018).

The characters of the right and of the said analysis are the same but for blanks. So a token is right if it begins and
ends at the same characters as a right one, and so is a sentence. Words are aligned by their characters as well. Where a
multiword token of either side stands, the words in its place are aligned by the longest common subsequence of their
forms in lowercase. A part of speech counts as right if the word is aligned and both have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
    """The scores of the sentences that are said; without tags those of tokens, sentences and words alone.

    Raises EnsueError if the two are not of the same text.
    """
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
    aligned = list(align(right.words, other.words))
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


def align(right: Sequence[_Placed], said: Sequence[_Placed]) -> Iterator[tuple[AnalyzedWord, AnalyzedWord]]:
    """The pairs of words that stand for each other, in order."""
    a = b = 0
    while a < len(right) and b < len(said):
        if right[a].is_multiword or said[b].is_multiword:
            ends = _region(right, said, a, b)
            yield from _common(right[ends[0] : ends[2]], said[ends[1] : ends[3]])
            a, b = ends[2:]
        elif (right[a].start, right[a].end) == (said[b].start, said[b].end):
            yield right[a].word, said[b].word
            a, b = a + 1, b + 1
        elif right[a].start <= said[b].start:
            a += 1
        else:
            b += 1


def _region(right: Sequence[_Placed], said: Sequence[_Placed], a: int, b: int) -> tuple[int, int, int, int]:
    """The words in the place of multiword tokens that overlap, of which one is next: where they begin and end on both
    sides.
    """
    if right[a].is_multiword:
        end = right[a].end
        b += not said[b].is_multiword and said[b].start < right[a].start
    else:
        end = said[b].end
        a += right[a].start < said[b].start
    first, other = a, b
    while not (_is_behind(right, a, end) and _is_behind(said, b, end)):
        if a < len(right) and (b >= len(said) or right[a].start <= said[b].start):
            end = max(end, right[a].end) if right[a].is_multiword else end
            a += 1
        else:
            end = max(end, said[b].end) if said[b].is_multiword else end
            b += 1
    return first, other, a, b


def _is_behind(words: Sequence[_Placed], place: int, end: int) -> bool:
    """Whether the word at a place is not in a region that ends at `end`."""
    if place >= len(words):
        return True
    return words[place].start >= end if words[place].is_multiword else words[place].end > end


def _common(right: Sequence[_Placed], said: Sequence[_Placed]) -> Iterator[tuple[AnalyzedWord, AnalyzedWord]]:
    """The words of a longest common subsequence of forms in lowercase."""
    lengths = [[0] * (len(said) + 1) for _ in range(len(right) + 1)]
    forms, others = ([one.word.form.lower() for one in side] for side in (right, said))
    for a in reversed(range(len(right))):
        for b in reversed(range(len(said))):
            longer = max(lengths[a + 1][b], lengths[a][b + 1])
            lengths[a][b] = 1 + lengths[a + 1][b + 1] if forms[a] == others[b] else longer
    a = b = 0
    while a < len(right) and b < len(said):
        if forms[a] == others[b]:
            yield right[a].word, said[b].word
            a, b = a + 1, b + 1
        elif lengths[a][b] == lengths[a + 1][b]:
            a += 1
        else:
            b += 1
