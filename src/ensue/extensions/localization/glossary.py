"""Glossaries: texts that an output must have, or must not have, where its source has some text.

A demand is met in the text, not only in the tokens: a required word is in the output as a whole word, and a forbidden
word is not in it in other tokens. The search constrains tokens alone. So the text of each hypothesis is checked. If it
does not meet the demands, the search is repeated with required phrases of tokens, and without the phrases at fault. An
output that meets the demands without constraints is not changed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.arguments import check_type
from ensue.data.decoding import whole_text
from ensue.decode.hypotheses import Hypothesis, Phrase
from ensue.decode.search import BeamSearch, least_tokens, occurrences
from ensue.errors import DataError, EnsueError
from ensue.interruption import check_interrupted
from ensue.tasks.sequence_to_sequence.decoding import outputs
from ensue.tasks.sequence_to_sequence.outputs import Output
from ensue.tasks.sequence_to_sequence.writer import Writer, WriterAdapter
from ensue.text.scripts import count_without_blanks
from ensue.text.special_tokens import TokenizerWithSpecials

_WORD = re.compile(r"\w+")
NOT = "!"
"""The sign before a target that must not be written."""
GlossaryLike = str | Path | Sequence[tuple[str, str]]
"""A glossary as a user gives it: a path, or pairs of source and target."""


@dataclass(frozen=True)
class Term:
    """A line of a glossary. Without a `source` it is for every source."""

    source: str
    target: str
    is_forbidden: bool
    where: str
    """The file and line, for messages."""
    ids: Phrase = ()
    """The target in the tokens of a model; none if it is forbidden and has no such tokens."""

    def is_for(self, texts: Sequence[str]) -> bool:
        """Whether a source, the `texts` of its columns, has the text of this term."""
        return not self.source or any(map(self._in_source.search, texts))

    @property
    def first_word(self) -> str:
        """The word of a source, folded, without which it does not have this term; "" if no word has to be there."""
        word = _WORD.match(fold(self.source))
        is_bounded = word and not count_without_blanks(self.source[0])
        if word and word.end() == len(fold(self.source)):
            is_bounded = is_bounded and not count_without_blanks(self.source[-1])
        return word[0] if word and is_bounded else ""

    def is_met(self, text: str) -> bool:
        """Whether an output is as this term demands."""
        return (self.in_target.search(text) is None) is self.is_forbidden

    @cached_property
    def in_target(self) -> re.Pattern[str]:
        """The pattern of the target as whole words."""
        return whole_word_pattern(self.target)

    @cached_property
    def _in_source(self) -> re.Pattern[str]:
        return whole_word_pattern(self.source, any_case=True)


def fold(text: str) -> str:
    """Return the text in a form that is equal for all characters that `re.IGNORECASE` takes for equal."""
    return text.replace("İ", "i").upper().casefold()


def whole_word_pattern(words: str, *, any_case: bool = False) -> re.Pattern[str]:
    """The pattern of `words` as whole words, with any blanks between them.

    With `any_case` words that have no capital are found in any case. Where a script has no blanks, words are found
    anywhere.
    """
    before, after = (
        r"\w" if re.match(r"\w", end) and not count_without_blanks(end) else "" for end in (words[0], words[-1])
    )
    inside = r"\s+".join(map(re.escape, words.split()))
    flags = re.IGNORECASE if any_case and words == words.lower() else 0
    return re.compile((f"(?<!{before})" if before else "") + inside + (f"(?!{after})" if after else ""), flags)


class Glossary:
    """Terms in a model's tokens. Raises DataError for a line that is no term, and for text without tokens."""

    def __init__(self, terms: Iterable[Term], target: TokenizerWithSpecials) -> None:
        self.index([_encoded(term, target) for term in terms])
        self.parts_words = target.tokenizer.kind in ("characters", "bytes")

    @classmethod
    def of(cls, source: Any, target: TokenizerWithSpecials) -> Glossary:
        """The glossary in a file, a line for each term, or of pairs of source and target."""
        if isinstance(source, (str, PathLike)):
            lines = whole_text(Path(source), "utf-8").split("\n")
            rows = [(f"{source}:{number}", line.split("\t")) for number, line in enumerate(lines, 1) if line.strip()]
        else:
            check_type("glossary", source, (list, tuple), "a path, or a list of pairs of source and target")
            rows = [(f"pair {number} of the glossary", row) for number, row in enumerate(source, 1)]
        return cls((_term(*row) for row in rows), target)

    def index(self, terms: list[Term]) -> None:
        """Set the terms, and their numbers by the first words of their sources."""
        self.terms, self._by_first_word = terms, defaultdict[str, list[int]](list)
        for number, term in enumerate(terms):
            self._by_first_word[term.first_word].append(number)

    def terms_for(self, texts: Sequence[str]) -> list[Term]:
        """Return the terms for a source, the `texts` of its columns, in the order of the glossary."""
        words = {"", *(word for text in texts for word in _WORD.findall(fold(text)))}
        numbers = sorted(number for word in words for number in self._by_first_word.get(word, ()))
        return [self.terms[number] for number in numbers if self.terms[number].is_for(texts)]

    def demands(self, texts: Sequence[str], search: BeamSearch, *, limit: int, max_tokens: int) -> Demands:
        """Return the demands on an output of up to `limit` tokens, or `max_tokens` with required ones.

        Raises EnsueError for demands that no output meets.
        """
        check_interrupted()
        terms = self.terms_for(texts)
        required = [term for term in terms if not term.is_forbidden]
        forbidden = [term for term in terms if term.is_forbidden]
        for term in required:
            if against := next((each for each in forbidden if not each.is_met(term.target)), None):
                raise EnsueError(f'{term.where}: "{term.target}" is demanded, and {against.where} forbids it')
        needed = least_tokens([term.ids for term in required])
        if needed > max_tokens:
            longest = max(required, key=lambda term: len(term.ids))
            raise EnsueError(
                f'{longest.where}: with "{longest.target}" an output has {needed} tokens at least, '
                f"and may have {max_tokens}"
            )
        demands = Demands(terms, limit, max_tokens, parts_words=self.parts_words)
        for term in required:
            try:
                search.for_input(max_tokens=min(max_tokens, limit + needed), required=(term.ids,))
            except EnsueError as error:
                raise EnsueError(f'{term.where}: "{term.target}" cannot be demanded: {error}') from None
        return demands


class Demands:
    """The demands on one output: its terms, and the phrases by which the search keeps to them."""

    def __init__(self, terms: Sequence[Term], limit: int, max_tokens: int, *, parts_words: bool) -> None:
        """With `parts_words` tokens are characters, of which any word may be made."""
        self.terms, self.usual, self.max_tokens, self.parts_words = terms, limit, max_tokens, parts_words
        self.required: tuple[Phrase, ...] = ()
        self.forbidden = set[Phrase]()
        self.widening, self.rate = 1, 0.0

    @property
    def limit(self) -> int:
        """The most tokens of the output."""
        return min(self.max_tokens, self.usual + least_tokens(self.required))

    def width(self, usual: int, widest: int) -> int:
        """The width of the beam: the usual one for each number of required tokens that a hypothesis can have."""
        return max(usual, min(widest, usual * (1 + sum(map(len, self.required))) * self.widening))

    def unmet(self, text: str) -> tuple[str, ...]:
        """The targets of the terms that an output does not meet, as the glossary has them."""
        return tuple(NOT * term.is_forbidden + term.target for term in self.terms if not term.is_met(text))

    def ranked(self, hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str]) -> list[Hypothesis]:
        """The hypotheses, the best first: those whose demands cost least.

        A word that the model would not write costs much, once. By a mean over all tokens it would cost less in a longer
        output, and what the model does not want would be written behind all else. So the log-probability that a token
        has in the output without demands is taken from each token.
        """

        def order(one: Hypothesis) -> tuple[int, bool, float]:
            cost = self.rate * (len(one.ids) + 1) - one.log_probability
            return len(self.unmet(decode(one.ids))), not one.is_complete, cost

        return sorted(hypotheses, key=order)

    def learn(self, best: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str], *, n_best: int = 1) -> bool:
        """Learn from these hypotheses so that the next `n_best` meet the demands; return whether anything is new."""
        before = self.required, len(self.forbidden), self.widening
        if not self.required:  # as the model writes
            self.rate = best[0].log_probability / (len(best[0].ids) + 1)
        texts = [decode(each.ids) for each in best]
        for each, text in zip(best, texts, strict=True) if any(map(self.unmet, texts[:n_best])) else ():
            unmet = [term for term in self.terms if not term.is_met(text)]
            ends = text_ends(each.ids, decode) if unmet else []
            for term in unmet:
                check_interrupted()
                (self._forbid if term.is_forbidden else self._require)(term, each.ids, text, ends)
        self.widening *= 1 + (bool(best[0].lacks) and self.required == before[0])
        return (self.required, len(self.forbidden), self.widening) != before

    def _require(self, term: Term, ids: Sequence[int], text: str, ends: Sequence[int]) -> None:
        """Requires a term's tokens, and forbids longer words with them. `ends` are those of `text_ends`."""
        if term.ids not in self.required:
            self.required += (term.ids,)
            self.forbidden = {phrase for phrase in self.forbidden if not self._is_in_required(phrase)}
        for first in occurrences(term.ids, ids):
            last = first + len(term.ids)
            start = ends[first - 1] if first else 0
            self._add(tuple(ids[first - _joins(text, start) : last + _joins(text, ends[last - 1])]))

    def _forbid(self, term: Term, ids: Sequence[int], text: str, ends: Sequence[int]) -> None:
        """Forbids the tokens of a term, and those in which it stands in an output."""
        if term.ids and not self.parts_words:
            self._add(term.ids)
        for match in term.in_target.finditer(text):
            first = next(place for place, end in enumerate(ends) if end > match.start())
            last = next(place for place, end in enumerate(ends, 1) if end >= match.end())
            if self.parts_words or self._is_in_required(tuple(ids[first:last])):
                first, last = max(0, first - 1), last + 1
            self._add(tuple(ids[first:last]))

    def _is_in_required(self, phrase: Phrase) -> bool:
        """Whether a required phrase has this one in it, so that it cannot be forbidden."""
        return any(occurrences(phrase, each) for each in self.required)

    def _add(self, phrase: Phrase) -> None:
        if not self._is_in_required(phrase):
            self.forbidden.add(phrase)


def text_ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """The place in the text of `ids` where the text of each of them ends."""
    ends = [len(decode(ids[: count + 1])) for count in range(len(ids))]
    return [*accumulate(reversed(ends), min)][::-1]


def _joins(text: str, place: int) -> bool:
    """Whether a word goes on at this place."""
    return 0 < place < len(text) and re.match(r"\w\w", text[place - 1 : place + 1]) is not None


def _term(where: str, row: Sequence[str]) -> Term:
    """The term in a row."""
    if not isinstance(row, (list, tuple)) or len(row) != 2 or not all(isinstance(part, str) for part in row):
        raise DataError(f"{where}: expected source and target, with a tab between them in a file")
    source, target = (" ".join(part.split()) for part in row)
    is_forbidden = target.startswith(NOT)
    target = target.removeprefix(NOT).lstrip()
    if not target:
        raise DataError(f"{where}: no target")
    return Term(source, target, is_forbidden, where)


def _encoded(term: Term, target: TokenizerWithSpecials) -> Term:
    """The term in tokens that stand in a text, as the model writes it."""
    tokenizer = target.tokenizer
    ids = tuple(tokenizer.encode((" " if tokenizer.joins_blanks else "") + term.target).tolist())
    if not ids or tokenizer.unknown_id in ids:
        if term.is_forbidden:
            return replace(term, target=term.target.lower()) if tokenizer.lowercase else term
        raise DataError(f'{term.where}: the model has no tokens for "{term.target}", so that it cannot write it')
    return replace(term, ids=ids, target=target.decode(ids).strip() or term.target)


MAX_SEARCHES, MAX_BEAM_WIDTH = 8, 80
"""The most further searches for a source, and the widest beam of them, where an output lacks a term."""


def with_glossary(writer: Writer[Any], glossary: GlossaryLike) -> Writer[Any]:
    """Return the model with a glossary: texts that an output has, or has not, where its source has some text.

    A glossary is pairs of source and target, or a file with a line for each, with a tab between them. An output does
    not have a target with `!` before it. A pair without a source is for every source. Raises DataError for a line that
    is no pair, and for a target that the model cannot write.
    """
    return writer.with_adapter(GlossaryAdapter(Glossary.of(glossary, writer.target)), is_innermost=True)


class GlossaryAdapter(WriterAdapter):
    """The search for outputs that are as a glossary demands."""

    name = "glossary"

    def __init__(self, glossary: Glossary) -> None:
        self.glossary = glossary
        self.counts = Counter[str]()
        """The number of outputs, and of those that lack a term."""

    def warning(self) -> str:
        lacking = self.counts["lacking"]
        if not lacking:
            return ""
        outputs_are = f"{lacking:,} of {self.counts['all']:,} outputs {'is' if lacking == 1 else 'are'}"
        return f"{outputs_are} not as the glossary demands (`lacks` of --json); a wider beam may help (--beams)"

    def written(self, writer: Writer[Any], items: Sequence[Any]) -> list[Output]:
        limits = writer.limits(writer.sources(items))
        max_tokens = min(writer.search.max_tokens, writer.most_written or writer.search.max_tokens)
        demands = [
            self.glossary.demands(writer.texts_of(item), writer.search, limit=limit, max_tokens=max_tokens)
            for item, limit in zip(items, limits, strict=True)
        ]
        hypotheses = _search(writer, items, demands)
        return [self._output(writer, *row) for row in zip(items, demands, hypotheses, strict=True)]

    def _output(self, writer: Writer[Any], item: Any, demands: Demands, hypotheses: list[Hypothesis]) -> Output:
        best = writer.output(item, hypotheses)
        every = [replace(each, lacks=demands.unmet(each.text)) for each in (best, *best.others)]
        first, *others = sorted(every, key=lambda output: bool(output.lacks))
        self.counts.update(all=1, lacking=int(bool(first.lacks)))
        return replace(first, others=tuple(others))


def _search(writer: Writer[Any], items: Sequence[Any], demands: Sequence[Demands]) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, searched again while that helps to meet the demands."""
    best: list[list[Hypothesis]] = [[] for _ in items]
    decodes = [partial(writer.decoded, item=item) for item in items]
    rows, search = list(range(len(items))), writer.search
    for _ in range(MAX_SEARCHES):
        settings = {
            row: (demands[row].width(search.width, MAX_BEAM_WIDTH), bool(demands[row].required)) for row in rows
        }
        for width, is_demanding in sorted(set(settings.values())):
            alike = [row for row in rows if settings[row] == (width, is_demanding)]
            searched = outputs(
                writer.models, writer.sources([items[row] for row in alike]),
                replace(search, width=width, n_best=width if is_demanding else search.n_best), target=writer.target,
                limits=[demands[row].limit for row in alike],
                constraints=[(demands[row].required, demands[row].forbidden) for row in alike],
            )  # fmt: skip
            for row, hypotheses in zip(alike, searched, strict=True):
                best[row] = demands[row].ranked(hypotheses, decodes[row]) if is_demanding else hypotheses
        rows = [row for row in rows if demands[row].learn(best[row], decodes[row], n_best=search.n_best)]
    return [each[: search.n_best] for each in best]
