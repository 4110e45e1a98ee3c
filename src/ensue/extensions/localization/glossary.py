"""Glossaries: words that an output must or must not contain if its source contains certain words.

Beam search constrains phrases of tokens, but a term constrains whole words, whose tokens depend on the text. So the
search begins without constraints, and the text of each hypothesis is checked. If a text violates terms, the search is
repeated with required and forbidden phrases of tokens, which are derived from the violations.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.data.decoding import load_text
from ensue.data.detection.pair_tables import is_header
from ensue.data.records.quoting import detect_delimiter
from ensue.data.records.tables import DIALECTS
from ensue.decode.search import BeamSearch, Hypothesis, Phrase, min_length, occurrences
from ensue.errors import DataError, EnsueError, check_type
from ensue.interruption import check_interrupted
from ensue.parsing import quote
from ensue.tasks.sequence_to_sequence.task import find_outputs
from ensue.tasks.sequence_to_sequence.writer import Output, Writer, WriterAdapter
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokens import count_without_blanks

_WORD = re.compile(r"\w+")
NOT = "!"
"""The prefix of a forbidden target."""
GlossaryLike = str | Path | Sequence[tuple[str, str]]
"""A path, or pairs of source and target."""


@dataclass(frozen=True)
class Term:
    """A line of a glossary. A term without a `source` applies to every source."""

    source: str
    target: str
    is_forbidden: bool
    where: str
    """The file and line, for messages."""
    ids: Phrase = ()
    """The token ids of the target; empty for a forbidden target with unknown tokens."""

    def applies_to(self, texts: Sequence[str]) -> bool:
        """Return whether the term applies to a source with these `texts` in its columns."""
        return not self.source or any(map(self._source_pattern.search, texts))

    @property
    def first_word(self) -> str:
        """The key of the index: the folded first word of the source; "" if it may be a part of a longer word."""
        word = _WORD.match(fold(self.source))
        if word is None or count_without_blanks(self.source[0]):
            return ""
        return "" if word.end() == len(fold(self.source)) and count_without_blanks(self.source[-1]) else word[0]

    def is_satisfied_by(self, text: str) -> bool:
        """Return whether an output satisfies the term."""
        return (self.target_pattern.search(text) is None) is self.is_forbidden

    @cached_property
    def target_pattern(self) -> re.Pattern[str]:
        """The pattern of the target as whole words."""
        return whole_word_pattern(self.target)

    @cached_property
    def _source_pattern(self) -> re.Pattern[str]:
        return whole_word_pattern(self.source, any_case=True)


def fold(text: str) -> str:
    """Return a normal form for comparison. Texts that are equal under `re.IGNORECASE` have the same form."""
    return text.replace("İ", "i").upper().casefold()


def whole_word_pattern(words: str, *, any_case: bool = False) -> re.Pattern[str]:
    """Return a pattern that matches `words` with any white space between them, but not inside longer words.

    In scripts without spaces between words, such as Chinese, the pattern matches inside longer words, too. With
    `any_case`, lowercase `words` match in any case.
    """
    before, after = (
        r"\w" if re.match(r"\w", end) and not count_without_blanks(end) else "" for end in (words[0], words[-1])
    )
    inside = r"\s+".join(map(re.escape, words.split()))
    flags = re.IGNORECASE if any_case and words == words.lower() else 0
    return re.compile((f"(?<!{before})" if before else "") + inside + (f"(?!{after})" if after else ""), flags)


class Glossary:
    """A list of terms, with an index that finds the terms for a source.

    Raises DataError for an invalid line, and for a required target with unknown tokens.
    """

    def __init__(self, terms: Iterable[Term], target: TokenizerWithSpecials) -> None:
        self.index([_encode_term(term, target) for term in terms])
        self.has_character_tokens = target.tokenizer.kind in ("characters", "bytes")

    @classmethod
    def of(cls, source: Any, target: TokenizerWithSpecials) -> "Glossary":
        """Read a glossary from a file with a line for each term, or from pairs of source and target."""
        if isinstance(source, (str, PathLike)):
            rows = _read_rows(Path(source))
        else:
            check_type("glossary", source, (list, tuple), "a path, or a list of pairs of source and target")
            rows = [(f"pair {number} of the glossary", row) for number, row in enumerate(source, 1)]
        return cls((_parse_term(*row) for row in rows), target)

    def index(self, terms: list[Term]) -> None:
        """Set the terms, and index them by their first words."""
        self.terms, self._by_first_word = terms, defaultdict[str, list[int]](list)
        for number, term in enumerate(terms):
            self._by_first_word[term.first_word].append(number)

    def terms_for(self, texts: Sequence[str]) -> list[Term]:
        """Return the terms that apply to a source with these `texts` in its columns, in the order of the glossary."""
        words = {"", *(word for text in texts for word in _WORD.findall(fold(text)))}
        numbers = sorted(number for word in words for number in self._by_first_word.get(word, ()))
        return [self.terms[number] for number in numbers if self.terms[number].applies_to(texts)]

    def constraints(self, texts: Sequence[str], search: BeamSearch, *, limit: int, max_tokens: int) -> "Constraints":
        """Return the constraints on the output of a source with these columns (`texts`).

        An output has at most `limit` tokens without required terms, and at most `max_tokens` with them. Raises
        EnsueError if no output can satisfy all terms.
        """
        check_interrupted()
        terms = self.terms_for(texts)
        required = [term for term in terms if not term.is_forbidden]
        forbidden = [term for term in terms if term.is_forbidden]
        for term in required:
            if conflict := next((other for other in forbidden if not other.is_satisfied_by(term.target)), None):
                raise EnsueError(f'{term.where}: "{term.target}" is required, and {conflict.where} forbids it')
        min_tokens = min_length([term.ids for term in required])
        if min_tokens > max_tokens:
            longest = max(required, key=lambda term: len(term.ids))
            raise EnsueError(
                f'{longest.where}: with "{longest.target}" an output has {min_tokens} tokens or more; '
                f"the maximum is {max_tokens}"
            )
        constraints = Constraints(terms, limit, max_tokens, has_character_tokens=self.has_character_tokens)
        for term in required:
            try:
                search.for_input(max_tokens=min(max_tokens, limit + min_tokens), required=(term.ids,))
            except EnsueError as error:
                raise EnsueError(f'{term.where}: "{term.target}" cannot be required: {error}') from None
        return constraints


class Constraints:
    """The constraints on the output of a source: its terms, and the required and forbidden phrases of the search."""

    def __init__(self, terms: Sequence[Term], limit: int, max_tokens: int, *, has_character_tokens: bool) -> None:
        self.terms, self.default_limit, self.max_tokens = terms, limit, max_tokens
        self.has_character_tokens = has_character_tokens
        """Whether tokens are characters or bytes, so that the tokens of a word may be inside another word."""
        self.required: tuple[Phrase, ...] = ()
        self.forbidden = set[Phrase]()
        self.width_factor, self.mean_log_probability = 1, 0.0

    @property
    def limit(self) -> int:
        """The maximum length of the output, in tokens."""
        return min(self.max_tokens, self.default_limit + min_length(self.required))

    def width(self, default: int, max_width: int) -> int:
        """Return the beam width: `default` · (n + 1) · `width_factor` for n required tokens, at most `max_width`."""
        return max(default, min(max_width, default * (1 + sum(map(len, self.required))) * self.width_factor))

    def find_violations(self, text: str) -> tuple[str, ...]:
        """Return the targets of the terms that an output violates, with `!` before forbidden targets."""
        return tuple(NOT * term.is_forbidden + term.target for term in self.terms if not term.is_satisfied_by(text))

    def rank(self, hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str]) -> list[Hypothesis]:
        """Return the hypotheses sorted by the number of violated terms, completeness, and cost.

        The cost is Σ_t (m - log p_t), where m is the mean log-probability of a token before phrases are required. A
        mean over tokens would favor long outputs, since it reduces the cost of an improbable required word.
        """

        def sort_key(hypothesis: Hypothesis) -> tuple[int, bool, float]:
            cost = self.mean_log_probability * (len(hypothesis.ids) + 1) - hypothesis.log_probability
            return len(self.find_violations(decode(hypothesis.ids))), not hypothesis.is_complete, cost

        return sorted(hypotheses, key=sort_key)

    def update(self, best: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str], *, n_best: int = 1) -> bool:
        """If one of the first `n_best` hypotheses violates a term, add phrases for all violated terms.

        The beam width is doubled if the best hypothesis lacks phrases that are already required. Returns whether a
        phrase or the width has changed, so that the search must be repeated.
        """
        before = self.required, len(self.forbidden), self.width_factor
        if not self.required:
            self.mean_log_probability = best[0].log_probability / (len(best[0].ids) + 1)
        texts = [decode(hypothesis.ids) for hypothesis in best]
        for hypothesis, text in zip(best, texts, strict=True) if any(map(self.find_violations, texts[:n_best])) else ():
            violated = [term for term in self.terms if not term.is_satisfied_by(text)]
            ends = text_ends(hypothesis.ids, decode) if violated else []
            for term in violated:
                check_interrupted()
                (self._forbid if term.is_forbidden else self._require)(term, hypothesis.ids, text, ends)
        self.width_factor *= 1 + (bool(best[0].lacks) and self.required == before[0])
        return (self.required, len(self.forbidden), self.width_factor) != before

    def _require(self, term: Term, ids: Sequence[int], text: str, ends: Sequence[int]) -> None:
        """Require the phrase of a term, and forbid longer words that contain it. `ends` are the `text_ends`."""
        if term.ids not in self.required:
            self.required += (term.ids,)
            self.forbidden = {phrase for phrase in self.forbidden if not self._is_in_required(phrase)}
        for start in occurrences(term.ids, ids):
            end = start + len(term.ids)
            offset = ends[start - 1] if start else 0
            phrase = ids[start - _is_inside_word(text, offset) : end + _is_inside_word(text, ends[end - 1])]
            self._forbid_phrase(tuple(phrase))

    def _forbid(self, term: Term, ids: Sequence[int], text: str, ends: Sequence[int]) -> None:
        """Forbid the phrase of a term, and the tokens of each match; `ends` are the `text_ends`."""
        if term.ids and not self.has_character_tokens:
            self._forbid_phrase(term.ids)
        for match in term.target_pattern.finditer(text):
            start = next(index for index, offset in enumerate(ends) if offset > match.start())
            end = next(index for index, offset in enumerate(ends, 1) if offset >= match.end())
            if self.has_character_tokens or self._is_in_required(tuple(ids[start:end])):
                start, end = max(0, start - 1), end + 1  # with neighbors, since longer words may contain the phrase
            self._forbid_phrase(tuple(ids[start:end]))

    def _is_in_required(self, phrase: Phrase) -> bool:
        return any(occurrences(phrase, required) for required in self.required)

    def _forbid_phrase(self, phrase: Phrase) -> None:
        if not self._is_in_required(phrase):
            self.forbidden.add(phrase)


def text_ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Return the offset in the decoded text at which the text of each token ends."""
    ends = [len(decode(ids[: count + 1])) for count in range(len(ids))]
    return [*accumulate(reversed(ends), min)][::-1]


def _is_inside_word(text: str, offset: int) -> bool:
    return 0 < offset < len(text) and re.match(r"\w\w", text[offset - 1 : offset + 1]) is not None


def _read_rows(path: Path) -> list[tuple[str, list[str]]]:
    """Return the place and the cells of each row, without a CSV header. Files without tabs, and .csv files, are CSV."""
    lines, name = [*enumerate(re.findall("[^\\n]*\\n|[^\\n]+", load_text(path, "")), 1)], str(path)
    has_tabs = path.suffix.lower() != ".csv" and any("\t" in line for _, line in lines)
    delimiter = "\t" if has_tabs else detect_delimiter(lines, name)
    dialect = next(dialect for dialect in DIALECTS if dialect.delimiter == delimiter)
    rows = [
        (f"{path}:{row.record.line}", [*map(dialect.value, row.values)]) for row in dialect.rows_of_file(lines, name)
    ]
    rows = [row for row in rows if any(map(str.strip, row[1]))]
    return rows[0 if has_tabs else is_header([cells for _, cells in rows]) :]


def _parse_term(where: str, row: Sequence[str]) -> Term:
    if not isinstance(row, (list, tuple)) or len(row) != 2 or not all(isinstance(text, str) for text in row):
        problem = f"expected source and target, with a tab between them in a file, or CSV; found {quote(row)}"
        raise DataError(f"{where}: {problem}")
    source, target = (" ".join(text.split()) for text in row)
    is_forbidden = target.startswith(NOT)
    target = target.removeprefix(NOT).lstrip()
    if not target:
        raise DataError(f"{where}: no target")
    return Term(source, target, is_forbidden, where)


def _encode_term(term: Term, target: TokenizerWithSpecials) -> Term:
    tokenizer = target.tokenizer
    ids = tuple(tokenizer.encode((" " if tokenizer.joins_blanks else "") + term.target).tolist())
    if not ids or tokenizer.unknown_id in ids:
        if term.is_forbidden:
            return replace(term, target=term.target.lower()) if tokenizer.lowercase else term
        raise DataError(f'{term.where}: the model has no tokens for "{term.target}"')
    return replace(term, ids=ids, target=target.decode(ids).strip() or term.target)


MAX_SEARCHES, MAX_BEAM_WIDTH = 8, 80
"""The maximum number of searches for a source, and the maximum beam width of searches with required terms."""


def with_glossary(writer: Writer[Any], glossary: GlossaryLike) -> Writer[Any]:
    """Return the model with a glossary: if a source contains a text, its output must or must not contain another text.

    A glossary is a list of pairs of source and target, or the path of a file with a pair on each line, separated by a
    tab, or of a CSV file of two columns. A target after `!` is forbidden. A pair with an empty source applies to every
    source. Raises DataError for a line that is not a pair, and for a target that the model cannot write.
    """
    return writer.with_adapter(GlossaryAdapter(Glossary.of(glossary, writer.target)), is_innermost=True)


class GlossaryAdapter(WriterAdapter):
    """An adapter that searches for outputs that satisfy a glossary."""

    name = "glossary"

    def __init__(self, glossary: Glossary) -> None:
        self.glossary = glossary
        self.counts = Counter[str]()
        """The number of all outputs ("all"), and of outputs that violate a term ("lacking")."""

    def warning(self) -> str:
        if not (lacking := self.counts["lacking"]):
            return ""
        outputs_are = f"{lacking:,} of {self.counts['all']:,} outputs {'is' if lacking == 1 else 'are'}"
        return f"{outputs_are} not consistent with the glossary (`lacks` of --json); a wider beam may help (--beams)"

    def generate_outputs(self, writer: Writer[Any], items: Sequence[Any]) -> list[Output]:
        limits = writer.limits(writer.sources(items))
        max_tokens = min(writer.search.max_tokens, writer.max_output_tokens or writer.search.max_tokens)
        constraints = [
            self.glossary.constraints(writer.texts_of(item), writer.search, limit=limit, max_tokens=max_tokens)
            for item, limit in zip(items, limits, strict=True)
        ]
        hypotheses = _search(writer, items, constraints)
        return [self._write(writer, *row) for row in zip(items, constraints, hypotheses, strict=True)]

    def _write(self, writer: Writer[Any], item: Any, constraints: Constraints, hypotheses: list[Hypothesis]) -> Output:
        best = writer.output(item, hypotheses)
        outputs = [replace(output, lacks=constraints.find_violations(output.text)) for output in (best, *best.others)]
        best, *others = sorted(outputs, key=lambda output: bool(output.lacks))
        self.counts.update(all=1, lacking=int(bool(best.lacks)))
        return replace(best, others=tuple(others))


def _search(writer: Writer[Any], items: Sequence[Any], constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each source. The search is repeated for sources whose constraints have changed."""
    best: list[list[Hypothesis]] = [[] for _ in items]
    decodes = [partial(writer.decode, item=item) for item in items]
    rows, search = list(range(len(items))), writer.search
    for _ in range(MAX_SEARCHES):
        widths = {row: constraints[row].width(search.width, MAX_BEAM_WIDTH) for row in rows}
        settings = {row: (width, bool(constraints[row].required)) for row, width in widths.items()}
        for width, is_constrained in sorted(set(settings.values())):
            batch = [row for row in rows if settings[row] == (width, is_constrained)]
            searched = find_outputs(
                writer.models, writer.sources([items[row] for row in batch]),
                replace(search, width=width, n_best=width if is_constrained else search.n_best), target=writer.target,
                limits=[constraints[row].limit for row in batch],
                constraints=[(constraints[row].required, constraints[row].forbidden) for row in batch],
            )  # fmt: skip
            for row, hypotheses in zip(batch, searched, strict=True):
                best[row] = constraints[row].rank(hypotheses, decodes[row]) if is_constrained else hypotheses
        rows = [row for row in rows if constraints[row].update(best[row], decodes[row], n_best=search.n_best)]
    return [hypotheses[: search.n_best] for hypotheses in best]
