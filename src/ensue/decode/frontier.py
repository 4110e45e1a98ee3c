"""The hypotheses of a beam search, those that go on and those that ended: what is known of them without the model.

It is all numpy, for all inputs at once: B inputs that are not done, S slots of each, t tokens, C required phrases. The
rows of the model's state are the slots, (B, S) flattened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ensue.decode.candidates import Candidate, Chosen, Ids, Live, best_places, candidates_of
from ensue.decode.hypotheses import Hypothesis, NBest, Phrase
from ensue.decode.search import BeamSearch, InputSearch


class Requirements:
    """The required phrases of each of B inputs, as tables: C phrases of up to L tokens, A different tokens."""

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        tokens = [sorted({token for phrase in of_input for token in phrase}) for of_input in phrases]
        self.phrases = phrases
        self.count = max(map(len, phrases))
        longest = max((len(phrase) for of_input in phrases for phrase in of_input), default=0)
        self.alphabet = np.full((len(phrases), max(map(len, tokens))), -1)
        self.lengths = np.zeros((len(phrases), self.count), np.int64)
        self.next = np.zeros((len(phrases), self.count, longest + 1, self.alphabet.shape[1] + 1), np.int64)
        for number, (of_input, alphabet) in enumerate(zip(phrases, tokens, strict=True)):
            self.alphabet[number, : len(alphabet)] = alphabet
            for place, phrase in enumerate(of_input):
                self.lengths[number, place] = len(phrase)
                self._fill(self.next[number, place], phrase, alphabet)

    @staticmethod
    def _fill(table: NDArray[np.int64], phrase: Phrase, alphabet: list[int]) -> None:
        before = 0  # the state after all tokens but the first
        for state, symbol in enumerate(map(alphabet.index, phrase)):
            table[state] = table[before]
            table[state, symbol] = state + 1
            before = table[before, symbol] if state else 0
        table[len(phrase)] = len(phrase)

    def after(
        self, inputs: NDArray[np.int64], states: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The states (B, S, M, C) of hypotheses of `inputs` (B,) in `states` (B, S, C) after each of `tokens`."""
        same = tokens[..., None] == self.alphabet[inputs, None, None]
        symbols = np.where(same.any(-1), same.argmax(-1), self.alphabet.shape[1])
        phrases = np.arange(self.count)
        return self.next[inputs[:, None, None, None], phrases, states[:, :, None], symbols[..., None]]

    def lacked(self, number: int, states: NDArray[np.int64]) -> tuple[Phrase, ...]:
        """The phrases of an input that a hypothesis with these states (C,) lacks."""
        pairs = zip(self.phrases[number], states.tolist(), strict=False)
        return tuple(phrase for phrase, state in pairs if state < len(phrase))


Blocked = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows, and the id that is blocked in each; a row may be there several times."""


class Forbidden:
    """The phrases that must not occur in each of B inputs. Those of one length are compared together.

    `always` has the tokens that are forbidden in every input by themselves.
    """

    def __init__(self, phrases: Sequence[tuple[Phrase, ...]]) -> None:
        sets = [set(of_input) for of_input in phrases]
        always = {phrase for phrase in set.intersection(*sets) if len(phrase) == 1}
        self.always = np.array(sorted(always), np.int64).reshape(-1)
        of_length: dict[int, dict[Phrase, None]] = {}
        for phrase in (phrase for of_input in phrases for phrase in of_input if phrase not in always):
            of_length.setdefault(len(phrase), {})[phrase] = None
        self.groups = [
            (np.array([*group]), np.array([[phrase in of_input for phrase in group] for of_input in sets]))
            for group in of_length.values()
        ]
        """Phrases (P, L) of a length, and whether each is forbidden in each input (B, P)."""

    def blocked(self, inputs: NDArray[np.int64], history: NDArray[np.int64]) -> list[Blocked]:
        """The tokens that would complete a phrase after `history` (R, t) of rows of `inputs` (R,)."""
        found = []
        for group, are_forbidden in self.groups:
            before = group.shape[1] - 1
            if before <= history.shape[1]:
                ends = history[:, None, history.shape[1] - before :]
                rows, phrases = np.nonzero((ends == group[:, :-1]).all(2) & are_forbidden[inputs])
                found.append((rows, group[phrases, -1]))
        return found


def repeated(history: NDArray[np.int64], n: int) -> Blocked:
    """The tokens that would complete an n-gram that `history` (R, t) has already (Paulus et al. 2018)."""
    if history.shape[1] < n:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    windows = sliding_window_view(history, n, axis=1)
    ends = history[:, None, history.shape[1] - n + 1 :]
    rows, places = np.nonzero((windows[:, :, :-1] == ends).all(2))
    return rows, windows[rows, places, -1]


class Frontier:
    """The hypotheses of all `searches`. Candidates and what becomes of them are added to `record`, if it is given."""

    def __init__(
        self,
        search: BeamSearch,
        searches: Sequence[InputSearch],
        end_id: int | None,
        record: list[Candidate] | None = None,
    ) -> None:
        self.search, self.searches, self.end_id, self.record = search, searches, end_id, record
        self.complete, self.incomplete = ([NBest(search.n_best) for _ in searches] for _ in range(2))
        self.limits = np.array([sought.max_tokens for sought in searches])
        self.penalties = np.array([self._penalty(sought.max_tokens + (end_id is not None)) for sought in searches])
        self.prefixes = np.full((len(searches), max(len(sought.prefix) for sought in searches)), -1)
        for row, sought in zip(self.prefixes, searches, strict=True):
            row[: len(sought.prefix)] = sought.prefix
        self.forbidden = Forbidden([sought.forbidden for sought in searches])
        self.required = Requirements([sought.required for sought in searches])
        self.length = 1
        """The length of the hypotheses that the next token makes."""
        shape = (len(searches), 1)
        progress = np.zeros((*shape, self.required.count), np.int64)
        self.live = Live(np.arange(len(searches)), np.zeros(shape), np.empty((*shape, 0), np.int64), progress)

    def _penalty(self, length: int) -> float:
        penalty: float = float(max(length, 1)) ** self.search.length_penalty
        return penalty

    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of each input: those that are complete, then others, as many as there are to be."""
        pairs = zip(self.complete, self.incomplete, strict=True)
        return [(best.hypotheses + rest.hypotheses)[: self.search.n_best] for best, rest in pairs]

    def forced(self) -> Blocked | None:
        """The rows whose next token the prefix says, and that token."""
        if self.length > self.prefixes.shape[1]:
            return None
        ids = self._by_row(self.prefixes[self.live.inputs, self.length - 1])
        rows = np.flatnonzero(ids >= 0)
        return (rows, ids[rows]) if len(rows) else None

    def blocked(self) -> list[Blocked]:
        """The tokens that may not come next."""
        history = self.live.history.reshape(self.live.totals.size, -1)
        found = self.forbidden.blocked(self._by_row(self.live.inputs), history)
        if self.search.no_repeat_ngram:
            found.append(repeated(history, self.search.no_repeat_ngram))
        if self.end_id is not None and (self.required.count or self.length <= self.search.min_tokens):
            lengths = self.required.lengths[self.live.inputs, None]
            lacks = (self.live.progress < lengths).any(2) | (self.length <= self.search.min_tokens)
            rows = np.flatnonzero(lacks)
            found.append((rows, np.full(len(rows), self.end_id)))
        return found

    def wanted(self) -> Ids:
        """For each row the tokens (R, A) of required phrases, which are always considered; padded with -1."""
        return self._by_row(self.required.alphabet[self.live.inputs])

    def _by_row(self, of_inputs: Ids) -> Ids:
        return np.repeat(of_inputs, self.live.totals.shape[1], 0)

    def advance(self, ids: Ids, values: NDArray[np.float64], bonuses: NDArray[np.float64] | None) -> tuple[Ids, Ids]:
        """Chooses among the continuations `ids` (R, M) with the log-probabilities `values`, -∞ where there is none.

        Those that end are set aside. Returns the rows that the others come from, and the ids that these read next; none
        if all is done. `bonuses` (R,), if there are any, are added to the scores of hypotheses that end.
        """
        shape = self.live.totals.shape
        bonuses = np.zeros(shape) if bonuses is None else bonuses.reshape(shape)
        ids, values = ids.reshape(*shape, -1), values.reshape(*shape, -1)
        stuck = (values.max(2) == -math.inf) & (self.live.totals > -math.inf)
        live, totals = self.live, self.live.totals[:, :, None] + values
        chosen = self._chosen(ids, totals)
        alive, limits = chosen.totals > -math.inf, self.limits[self.live.inputs, None]
        ended = alive & (self.length == limits if self.end_id is None else chosen.ids == self.end_id)
        self._set_aside(chosen, ended, bonuses)
        cut = (self.length > limits) & (self.live.totals > -math.inf)
        places, slots = np.nonzero(ended)
        cut[places, chosen.parents[places, slots]] = False
        self._set_aside_incomplete(stuck | cut, bonuses)
        goes_on = alive & ~ended & (self.length <= limits)
        rows = self._go_on(chosen, goes_on)
        if self.record is not None:
            self.record += candidates_of(live, ids, totals, chosen, ended, goes_on, self.live.inputs)
        return rows

    def _chosen(self, ids: Ids, totals: NDArray[np.float64]) -> Chosen:
        count, _, options = ids.shape
        progress = banks = None
        if self.required.count:
            progress = self.required.after(self.live.inputs, self.live.progress, ids)
            banks = progress.sum(3).reshape(count, -1)
        places = best_places(totals.reshape(count, -1), self.search.width, banks)
        parents, columns = places // options, places % options
        at = np.arange(count)[:, None], parents, columns
        progress = self.live.progress[at[:2]] if progress is None else progress[at]
        return Chosen(parents, ids[at], totals[at], progress)

    def _set_aside(self, chosen: Chosen, ended: NDArray[np.bool_], bonuses: NDArray[np.float64]) -> None:
        """Keeps hypotheses that have ended."""
        for place, slot in zip(*np.nonzero(ended), strict=True):
            number, parent = self.live.inputs[place], chosen.parents[place, slot]
            ids = (*self.live.history[place, parent].tolist(), int(chosen.ids[place, slot]))
            lacks = self.required.lacked(number, chosen.progress[place, slot])
            total = float(chosen.totals[place, slot])
            score = total / self._penalty(self.length) + float(bonuses[place, parent])
            found = Hypothesis(ids if self.end_id is None else ids[:-1], score, total, not lacks, lacks)
            (self.incomplete if lacks else self.complete)[number].add(found)

    def _set_aside_incomplete(self, which: NDArray[np.bool_], bonuses: NDArray[np.float64]) -> None:
        """Keeps live hypotheses (B, S) that were cut, or that nothing can follow."""
        for place, slot in zip(*np.nonzero(which), strict=True):
            number, total = self.live.inputs[place], float(self.live.totals[place, slot])
            score = total / self._penalty(self.length - 1) + float(bonuses[place, slot])
            ids = tuple(self.live.history[place, slot].tolist())
            lacks = self.required.lacked(number, self.live.progress[place, slot])
            self.incomplete[number].add(Hypothesis(ids, score, total, False, lacks))

    def _go_on(self, chosen: Chosen, goes_on: NDArray[np.bool_]) -> tuple[Ids, Ids]:
        """Leaves out inputs that are done and slots that are free."""
        totals = np.where(goes_on, chosen.totals, -math.inf)
        known = np.array([self.complete[number].last_score for number in self.live.inputs])
        kept = np.flatnonzero(totals.max(1) / self.penalties[self.live.inputs] > known)
        slots = goes_on[kept].sum(1).max(initial=0)
        order = (~goes_on[kept]).argsort(1, kind="stable")[:, :slots]
        at = kept[:, None], order
        parents, ids = chosen.parents[at], chosen.ids[at]
        rows = (kept[:, None] * self.live.totals.shape[1] + parents).ravel()
        history = np.concatenate((self.live.history[kept[:, None], parents], ids[:, :, None]), 2)
        self.live = Live(self.live.inputs[kept], totals[at], history, chosen.progress[at])
        self.length += 1
        return rows, ids.ravel()
