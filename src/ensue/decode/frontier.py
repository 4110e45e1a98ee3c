"""The frontier of beam search: live and complete hypotheses, and their constraints, without the model.

Dimensions: B inputs that are not done, S slots of each input, t tokens, C required phrases, R = B·S rows of the state.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ensue.decode.candidates import Candidate, Continuations, Ids, Live, candidates_of, select_best
from ensue.decode.search import BeamSearch, Hypothesis, InputConstraints, NBest, Phrase


class RequiredPhrases:
    """The required phrases of B inputs as automata: C phrases of up to L tokens, with A distinct tokens.

    The state of a phrase is the length of its longest prefix with which the hypothesis ends (Knuth, Morris & Pratt
    1977), or the length of the phrase, once the hypothesis contains the phrase.
    """

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        tokens = [sorted({token for phrase in group for token in phrase}) for group in phrases]
        self.phrases = phrases
        self.count = max(map(len, phrases))
        longest = max((len(phrase) for group in phrases for phrase in group), default=0)
        self.alphabet = np.full((len(phrases), max(map(len, tokens))), -1)
        self.lengths = np.zeros((len(phrases), self.count), np.int64)
        self.next = np.zeros((len(phrases), self.count, longest + 1, self.alphabet.shape[1] + 1), np.int64)
        for number, (group, alphabet) in enumerate(zip(phrases, tokens, strict=True)):
            self.alphabet[number, : len(alphabet)] = alphabet
            for index, phrase in enumerate(group):
                self.lengths[number, index] = len(phrase)
                self._fill_transitions(self.next[number, index], phrase, alphabet)

    @staticmethod
    def _fill_transitions(table: NDArray[np.int64], phrase: Phrase, alphabet: list[int]) -> None:
        before = 0  # the state after the longest proper suffix of the tokens read so far
        for state, symbol in enumerate(map(alphabet.index, phrase)):
            table[state] = table[before]
            table[state, symbol] = state + 1
            before = table[before, symbol] if state else 0
        table[len(phrase)] = len(phrase)

    def next_states(
        self, inputs: NDArray[np.int64], states: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the states (B, S, M, C) after each of `tokens` (B, S, M), from `states` (B, S, C) of `inputs` (B,)."""
        matches = tokens[..., None] == self.alphabet[inputs, None, None]
        symbols = np.where(matches.any(-1), matches.argmax(-1), self.alphabet.shape[1])
        phrases = np.arange(self.count)
        return self.next[inputs[:, None, None, None], phrases, states[:, :, None], symbols[..., None]]

    def missing_phrases(self, number: int, states: NDArray[np.int64]) -> tuple[Phrase, ...]:
        """Return the phrases of input `number` that are missing in a hypothesis with these states (C,)."""
        pairs = zip(self.phrases[number], states.tolist(), strict=False)
        return tuple(phrase for phrase, state in pairs if state < len(phrase))


RowIds = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows, and the blocked or forced id in each row; a row may occur several times."""


class ForbiddenPhrases:
    """The forbidden phrases of B inputs, stacked by length. `always` are tokens that are forbidden in every input."""

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        sets = [set(input_phrases) for input_phrases in phrases]
        always = {phrase for phrase in set.intersection(*sets) if len(phrase) == 1}
        self.always = np.array(sorted(always), np.int64).reshape(-1)
        by_length: dict[int, dict[Phrase, None]] = {}
        for phrase in (phrase for input_phrases in phrases for phrase in input_phrases if phrase not in always):
            by_length.setdefault(len(phrase), {})[phrase] = None
        self.groups = [
            (np.array([*group]), np.array([[phrase in input_phrases for phrase in group] for input_phrases in sets]))
            for group in by_length.values()
        ]
        """For each length L: the phrases (P, L), and a mask (B, P) of the inputs that forbid them."""

    def blocked_tokens(self, inputs: NDArray[np.int64], history: NDArray[np.int64]) -> list[RowIds]:
        """Return the tokens that would complete a forbidden phrase after `history` (R, t) of `inputs` (R,)."""
        completions = []
        for group, are_forbidden in self.groups:
            before = group.shape[1] - 1
            if before <= history.shape[1]:
                ends = history[:, None, history.shape[1] - before :]
                rows, phrases = np.nonzero((ends == group[:, :-1]).all(2) & are_forbidden[inputs])
                completions.append((rows, group[phrases, -1]))
        return completions


def find_repeats(history: NDArray[np.int64], n: int) -> RowIds:
    """Return the tokens that would repeat an n-gram of `history` (R, t) (Paulus et al. 2018)."""
    if history.shape[1] < n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    windows = sliding_window_view(history, n, axis=1)
    ends = history[:, None, history.shape[1] - n + 1 :]
    rows, starts = np.nonzero((windows[:, :, :-1] == ends).all(2))
    return rows, windows[rows, starts, -1]


class Frontier:
    """The hypotheses of all inputs, with the `constraints` of each input. Candidates are appended to `record`."""

    def __init__(
        self, search: BeamSearch, constraints: Sequence[InputConstraints], end_id: int | None,
        record: list[Candidate] | None = None,
    ) -> None:  # fmt: skip
        self.search, self.constraints, self.end_id, self.record = search, constraints, end_id, record
        self.complete, self.incomplete = ([NBest(search.n_best) for _ in constraints] for _ in range(2))
        self.limits = np.array([each.max_tokens for each in constraints])
        self.penalties = np.array([self.length_penalty(limit + (end_id is not None)) for limit in self.limits])
        self.prefixes = np.full((len(constraints), max(len(each.prefix) for each in constraints)), -1)
        for row, each in zip(self.prefixes, constraints, strict=True):
            row[: len(each.prefix)] = each.prefix
        self.forbidden = ForbiddenPhrases([each.forbidden for each in constraints])
        self.required = RequiredPhrases([each.required for each in constraints])
        self.length = 1
        """The length of hypotheses including the next token."""
        shape = (len(constraints), 1)
        progress = np.zeros((*shape, self.required.count), np.int64)
        self.live = Live(np.arange(len(constraints)), np.zeros(shape), np.empty((*shape, 0), np.int64), progress)

    def length_penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of `length` tokens."""
        return float(max(length, 1)) ** self.search.length_penalty

    def results(self) -> list[list[Hypothesis]]:
        """Return the `n_best` hypotheses of each input, complete hypotheses first."""
        pairs = zip(self.complete, self.incomplete, strict=True)
        return [(best.hypotheses + incomplete.hypotheses)[: self.search.n_best] for best, incomplete in pairs]

    def forced_tokens(self) -> RowIds | None:
        """Return the rows whose next token belongs to the prefix, and these tokens; None without such rows."""
        if self.length > self.prefixes.shape[1]:
            return None
        ids = self._repeat_for_slots(self.prefixes[self.live.inputs, self.length - 1])
        rows = np.flatnonzero(ids >= 0)
        return (rows, ids[rows]) if len(rows) else None

    def blocked_tokens(self) -> list[RowIds]:
        """Return the tokens that may not follow, with their rows."""
        history = self.live.history.reshape(self.live.totals.size, -1)
        blocked = self.forbidden.blocked_tokens(self._repeat_for_slots(self.live.inputs), history)
        if self.search.no_repeat_ngram:
            blocked.append(find_repeats(history, self.search.no_repeat_ngram))
        if self.end_id is not None and (self.required.count or self.length <= self.search.min_tokens):
            lengths = self.required.lengths[self.live.inputs, None]
            must_continue = (self.live.progress < lengths).any(2) | (self.length <= self.search.min_tokens)
            rows = np.flatnonzero(must_continue)
            blocked.append((rows, np.full(len(rows), self.end_id)))
        return blocked

    def required_ids(self) -> Ids:
        """Return the tokens (R, A) of required phrases, padded with -1. These tokens are always candidates."""
        return self._repeat_for_slots(self.required.alphabet[self.live.inputs])

    def _repeat_for_slots(self, input_values: Ids) -> Ids:
        return np.repeat(input_values, self.live.totals.shape[1], 0)

    def advance(self, ids: Ids, values: NDArray[np.float64], coverage: NDArray[np.float64] | None) -> tuple[Ids, Ids]:
        """Choose the best of the candidates `ids` (R, M) with log-probabilities `values` (R, M).

        Complete hypotheses are added to the n-best lists; `coverage` (R,) are the coverage penalties of their parents.
        Returns the parent rows and the last ids of the live hypotheses.
        """
        shape = self.live.totals.shape
        coverage = np.zeros(shape) if coverage is None else coverage.reshape(shape)
        ids, values = ids.reshape(*shape, -1), values.reshape(*shape, -1)
        is_blocked = (values.max(2) == -math.inf) & (self.live.totals > -math.inf)
        live, totals = self.live, self.live.totals[:, :, None] + values
        best = self._choose(ids, totals)
        exists, limits = best.totals > -math.inf, self.limits[self.live.inputs, None]
        ended = exists & (self.length == limits if self.end_id is None else best.ids == self.end_id)
        self._add_complete(best, ended, coverage)
        too_long = (self.length > limits) & (self.live.totals > -math.inf)
        rows, slots = np.nonzero(ended)
        too_long[rows, best.parents[rows, slots]] = False
        self._add_incomplete(is_blocked | too_long, coverage)
        is_live = exists & ~ended & (self.length <= limits)
        parents_and_ids = self._continue(best, is_live)
        if self.record is not None:
            self.record += candidates_of(live, ids, totals, best, ended, is_live, self.live.inputs)
        return parents_and_ids

    def _choose(self, ids: Ids, totals: NDArray[np.float64]) -> Continuations:
        count, _, options = ids.shape
        progress = banks = None
        if self.required.count:
            progress = self.required.next_states(self.live.inputs, self.live.progress, ids)
            banks = progress.sum(3).reshape(count, -1)
        best = select_best(totals.reshape(count, -1), self.search.width, banks)
        parents, columns = best // options, best % options
        index = np.arange(count)[:, None], parents, columns
        progress = self.live.progress[index[:2]] if progress is None else progress[index]
        return Continuations(parents, ids[index], totals[index], progress)

    def _add_complete(self, best: Continuations, ended: NDArray[np.bool_], coverage: NDArray[np.float64]) -> None:
        for row, slot in zip(*np.nonzero(ended), strict=True):
            number, parent = self.live.inputs[row], best.parents[row, slot]
            ids = (*self.live.history[row, parent].tolist(), int(best.ids[row, slot]))
            missing = self.required.missing_phrases(number, best.progress[row, slot])
            total = float(best.totals[row, slot])
            score = total / self.length_penalty(self.length) + float(coverage[row, parent])
            hypothesis = Hypothesis(ids if self.end_id is None else ids[:-1], score, total, not missing, missing)
            (self.incomplete if missing else self.complete)[number].add(hypothesis)

    def _add_incomplete(self, mask: NDArray[np.bool_], coverage: NDArray[np.float64]) -> None:
        for row, slot in zip(*np.nonzero(mask), strict=True):
            number, total = self.live.inputs[row], float(self.live.totals[row, slot])
            score = total / self.length_penalty(self.length - 1) + float(coverage[row, slot])
            ids = tuple(self.live.history[row, slot].tolist())
            missing = self.required.missing_phrases(number, self.live.progress[row, slot])
            self.incomplete[number].add(Hypothesis(ids, score, total, False, missing))

    def _continue(self, best: Continuations, is_live: NDArray[np.bool_]) -> tuple[Ids, Ids]:
        """Make the hypotheses `is_live` of `best` live, without inputs that are done and without empty slots."""
        totals = np.where(is_live, best.totals, -math.inf)
        last_scores = np.array([self.complete[number].last_score for number in self.live.inputs])
        unfinished = np.flatnonzero(totals.max(1) / self.penalties[self.live.inputs] > last_scores)
        order = (~is_live[unfinished]).argsort(1, kind="stable")[:, : is_live[unfinished].sum(1).max(initial=0)]
        index = unfinished[:, None], order
        parents, ids = best.parents[index], best.ids[index]
        rows = (unfinished[:, None] * self.live.totals.shape[1] + parents).ravel()
        history = np.concatenate((self.live.history[unfinished[:, None], parents], ids[:, :, None]), 2)
        self.live = Live(self.live.inputs[unfinished], totals[index], history, best.progress[index])
        self.length += 1
        return rows, ids.ravel()
