"""Settings of beam search, the constraints of each input, and hypotheses."""

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

from ensue.errors import EnsueError, Option, check_integer, check_settings

NOT_FINITE = "the model's scores of the next token are not finite: its training has diverged"
MAX_WIDTH, MAX_TOKENS, MAX_PENALTY = 10_000, 1_000_000, 10
Phrase = tuple[int, ...]
"""The ids of adjacent tokens."""


class SearchOptions(TypedDict, total=False):
    """The arguments of `BeamSearch`, for signatures."""

    width: int
    n_best: int
    length_penalty: float
    min_tokens: int
    max_tokens: int
    coverage_penalty: float
    no_repeat_ngram: int
    forbidden: tuple[Phrase, ...]
    required: tuple[Phrase, ...]


@dataclass(frozen=True)
class BeamSearch:
    """Settings of beam search.

    Attributes:
        width: The number of live hypotheses; 1: greedy.
        n_best: The number of results, at most `width`.
        length_penalty: The α in score = Σ ln P / length^α, where the length includes the end symbol; 0: no penalty.
        min_tokens: The minimum number of tokens without the end symbol.
        max_tokens: The maximum number of tokens without the end symbol.
        coverage_penalty: The factor β of Σ_i ln min(Σ_t a_ti, 1), with the attention a_ti of step t to position i of
            the source (Wu et al. 2016). Needs a model with attention to a source.
        no_repeat_ngram: The n for which an n-gram must not occur twice (Paulus et al. 2018); 0: no constraint.
        forbidden: Phrases that must not occur.
        required: Phrases that must occur.

    Raises:
        EnsueError: Values are out of range, or contradict each other.
    """

    width: Annotated[int, Option(1, MAX_WIDTH, "Width of the beam search; 1: greedy.", name="beams")] = 5
    n_best: Annotated[
        int, Option(1, MAX_WIDTH, "Outputs per source, tokens per mask, or tag sequences per sentence.")
    ] = 1
    length_penalty: Annotated[float, Option(0, MAX_PENALTY, "The exponent A of the score ln P / length^A.")] = 1.0
    min_tokens: Annotated[int, Option(0, MAX_TOKENS, "The minimum number of tokens of an output.")] = 0
    max_tokens: Annotated[int, Option(1, MAX_TOKENS, "The maximum number of tokens of an output.")] = 200
    coverage_penalty: Annotated[float, Option(0, MAX_PENALTY)] = 0.0
    no_repeat_ngram: Annotated[int, Option(0, MAX_TOKENS, "Write no n-gram of N tokens twice; 0: no limit.")] = 0
    forbidden: tuple[Phrase, ...] = ()
    required: tuple[Phrase, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.n_best > self.width:
            raise EnsueError(f"n_best is {self.n_best}; a beam of width {self.width} finds at most {self.width}")
        self.for_input()

    def for_input(
        self, prefix: Sequence[int] = (), max_tokens: int | None = None, required: Sequence[Phrase] = (),
        forbidden: Sequence[Phrase] = (),
    ) -> "InputConstraints":  # fmt: skip
        """Return the constraints of an input. Raise EnsueError if they contradict each other."""
        limit = self.max_tokens if max_tokens is None else max_tokens
        check_integer("max_tokens", limit, 1, MAX_TOKENS)
        constraints = InputConstraints(
            tuple(prefix), limit, _unique((*self.required, *required)), _unique((*self.forbidden, *forbidden))
        )
        if self.min_tokens > limit:
            raise EnsueError(f"min_tokens is {self.min_tokens}; expected at most max_tokens = {limit}")
        if len(constraints.prefix) > limit:
            raise EnsueError(f"the prefix has {len(constraints.prefix)} tokens; expected at most max_tokens = {limit}")
        self._check_phrases(constraints)
        return constraints

    def _check_phrases(self, constraints: "InputConstraints") -> None:
        if () in (*constraints.required, *constraints.forbidden):
            raise EnsueError("a required or forbidden phrase is empty")
        if (needed := min_length(constraints.required)) > constraints.max_tokens:
            raise EnsueError(f"the required phrases need {needed} tokens; max_tokens is {constraints.max_tokens}")
        for forbidden in constraints.forbidden:
            if occurrences(forbidden, constraints.prefix):
                raise EnsueError(f"the prefix contains the forbidden phrase {forbidden}")
            for required in constraints.required:
                if occurrences(forbidden, required):
                    raise EnsueError(f"the required phrase {required} contains the forbidden phrase {forbidden}")
        n = self.no_repeat_ngram
        for required in constraints.required if n else ():
            if len({required[start : start + n] for start in range(len(required) - n + 1)}) < len(required) - n + 1:
                raise EnsueError(f"no_repeat_ngram = {n} forbids the required phrase {required}, which repeats tokens")


class InputConstraints(NamedTuple):
    """The constraints of an input."""

    prefix: tuple[int, ...]
    max_tokens: int
    required: tuple[Phrase, ...]
    forbidden: tuple[Phrase, ...]


def check_ids(constraints: Sequence[InputConstraints], size: int, end_id: int | None) -> None:
    """Raise EnsueError for an id outside of the vocabulary, or the end symbol, in a prefix or phrase."""
    phrases = [phrase for c in constraints for phrase in (c.prefix, *c.required, *c.forbidden)]
    for id in {id for phrase in phrases for id in phrase}:
        check_integer("an id of a prefix or phrase", id, 0, size - 1)
        if id == end_id:
            raise EnsueError("the end symbol is in a prefix or phrase; min_tokens and max_tokens bound its position")


def min_length(phrases: Sequence[Phrase]) -> int:
    """Return a lower bound of the number of tokens that contain all phrases, which may overlap."""
    counts: Counter[int] = Counter()
    for phrase in phrases:
        counts |= Counter(phrase)
    return counts.total()


def occurrences(phrase: Phrase, ids: Sequence[int]) -> list[int]:
    """Return the positions at which `phrase` begins in `ids`."""
    last = len(ids) - len(phrase)
    return [start for start in range(last + 1) if tuple(ids[start : start + len(phrase)]) == phrase]


def _unique(phrases: Sequence[Phrase]) -> tuple[Phrase, ...]:
    return tuple(dict.fromkeys(map(tuple, phrases)))


class Hypothesis(NamedTuple):
    """A result of beam search.

    Attributes:
        ids: The tokens, including the prefix, without begin and end symbols.
        score: The log-probability with length and coverage penalties. Hypotheses are ranked by their score.
        log_probability: The sum of ln P over `ids`, and over the end symbol of a complete hypothesis.
        is_complete: Whether the end symbol (without one, `max_tokens`) was reached, and no required phrase is missing.
        lacks: The required phrases that are missing; empty for a complete hypothesis.
    """

    ids: tuple[int, ...]
    score: float
    log_probability: float
    is_complete: bool = True
    lacks: tuple[Phrase, ...] = ()


class NBest:
    """The `size` best hypotheses, ordered by the number of missing phrases, then by score, then by insertion."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hypotheses: list[Hypothesis] = []

    @property
    def last_score(self) -> float:
        """The score of the last hypothesis of a full list, which a new complete hypothesis must exceed; else -∞."""
        return self.hypotheses[-1].score if len(self.hypotheses) == self.size else float("-inf")

    def add(self, hypothesis: Hypothesis) -> None:
        """Insert a hypothesis if it is one of the best."""
        insort(self.hypotheses, hypothesis, key=lambda other: (len(other.lacks), -other.score))
        del self.hypotheses[self.size :]
