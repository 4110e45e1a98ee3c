"""The settings of a beam search: width, penalties, lengths, phrases; and what each input adds to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

from ensue.arguments import Option, check_settings, check_whole
from ensue.decode.hypotheses import Phrase
from ensue.errors import EnsueError

MOST_WIDTH, MOST_TOKENS, MOST_PENALTY = 10_000, 1_000_000, 10


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
    """How to search. Raises EnsueError for values out of range, or that contradict each other.

    - `width` is the number of hypotheses that go on after each token; 1 is greedy.
    - `n_best` is the number of hypotheses that are returned, at most `width`.
    - `length_penalty` α divides: score = Σ ln P / length^α, where the end symbol counts; 0 changes nothing.
    - `min_tokens` and `max_tokens` bound the length without the end symbol.
    - `coverage_penalty` β adds β Σ_i ln min(Σ_t a_ti, 1), with the attention a_ti of step t to position i of the source
      (Wu et al. 2016). The model needs attention to a source (`beam.py`).
    - `no_repeat_ngram` n lets no n-gram occur twice (Paulus et al. 2018); 0 lets them.
    - `forbidden` phrases do not occur, `required` ones do; a phrase is a tuple of ids.
    """

    width: Annotated[int, Option(1, MOST_WIDTH, "Width of the beam search; 1: greedy.", name="beams")] = 5
    n_best: Annotated[
        int, Option(1, MOST_WIDTH, "Outputs for each source, words for each mask, or paths of a sentence.")
    ] = 1
    length_penalty: Annotated[float, Option(0, MOST_PENALTY, "Outputs are ranked by ln P / length^this.")] = 1.0
    min_tokens: Annotated[int, Option(0, MOST_TOKENS, "The least tokens of an output.")] = 0
    max_tokens: Annotated[int, Option(1, MOST_TOKENS, "The most tokens of an output.")] = 200
    coverage_penalty: Annotated[float, Option(0, MOST_PENALTY)] = 0.0
    no_repeat_ngram: Annotated[int, Option(0, MOST_TOKENS, "Write no N tokens in a row twice; 0: they may.")] = 0
    forbidden: tuple[Phrase, ...] = ()
    required: tuple[Phrase, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.n_best > self.width:
            raise EnsueError(f"n_best is {self.n_best}; a beam of width {self.width} finds at most {self.width}")
        self.for_input()

    def for_input(
        self,
        prefix: Sequence[int] = (),
        max_tokens: int | None = None,
        required: Sequence[Phrase] = (),
        forbidden: Sequence[Phrase] = (),
    ) -> InputSearch:
        """The search of one input. Raises EnsueError if nothing can be found that meets all demands."""
        most = self.max_tokens if max_tokens is None else max_tokens
        check_whole("max_tokens", most, 1, MOST_TOKENS)
        sought = InputSearch(
            tuple(prefix), most, _distinct((*self.required, *required)), _distinct((*self.forbidden, *forbidden))
        )
        if self.min_tokens > most:
            raise EnsueError(f"min_tokens is {self.min_tokens}, and max_tokens is {most}")
        if len(sought.prefix) > most:
            raise EnsueError(f"the prefix has {len(sought.prefix)} tokens; max_tokens is {most}")
        self._check_phrases(sought)
        return sought

    def _check_phrases(self, sought: InputSearch) -> None:
        if () in (*sought.required, *sought.forbidden):
            raise EnsueError("a required or forbidden phrase is empty")
        if (least := least_tokens(sought.required)) > sought.max_tokens:
            raise EnsueError(f"the required phrases need {least} tokens; max_tokens is {sought.max_tokens}")
        for forbidden in sought.forbidden:
            if occurrences(forbidden, sought.prefix):
                raise EnsueError(f"the prefix has the forbidden phrase {forbidden}")
            for required in sought.required:
                if occurrences(forbidden, required):
                    raise EnsueError(f"the phrase {required} is required, and {forbidden} is forbidden")
        n = self.no_repeat_ngram
        for required in sought.required if n else ():
            if len({required[start : start + n] for start in range(len(required) - n + 1)}) < len(required) - n + 1:
                raise EnsueError(f"the required phrase {required} repeats tokens, against no_repeat_ngram = {n}")


class InputSearch(NamedTuple):
    """The search of one input: how its output begins, the most tokens of it, what it must have and must not have."""

    prefix: tuple[int, ...]
    max_tokens: int
    required: tuple[Phrase, ...]
    forbidden: tuple[Phrase, ...]


def check_ids(searches: Sequence[InputSearch], size: int, end_id: int | None) -> None:
    """Raises EnsueError for an id that a vocabulary of `size` does not have, and for the end symbol, in a phrase."""
    phrases = {phrase for sought in searches for phrase in (sought.prefix, *sought.required, *sought.forbidden)}
    for id in {id for phrase in phrases for id in phrase}:
        check_whole("an id of a prefix or phrase", id, 0, size - 1)
        if id == end_id:
            raise EnsueError("the end symbol is in a prefix or phrase; min_tokens and max_tokens say when it may come")


def least_tokens(phrases: Sequence[Phrase]) -> int:
    """A number of tokens below which the phrases cannot all occur, even where they overlap."""
    most: Counter[int] = Counter()
    for phrase in phrases:
        most |= Counter(phrase)
    return most.total()


def occurrences(phrase: Phrase, ids: Sequence[int]) -> list[int]:
    """The places where `phrase` begins in `ids`."""
    last = len(ids) - len(phrase)
    return [start for start in range(last + 1) if tuple(ids[start : start + len(phrase)]) == phrase]


def _distinct(phrases: Sequence[Phrase]) -> tuple[Phrase, ...]:
    return tuple(dict.fromkeys(map(tuple, phrases)))
