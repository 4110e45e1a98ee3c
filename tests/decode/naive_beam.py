"""Beam search over lists, without batches and early stops, and enumeration of a tiny vocabulary."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from ensue.decode.search import BeamSearch, Hypothesis, InputConstraints

Ids = tuple[int, ...]
LogP = Callable[[Ids], Sequence[float]]
"""A function from tokens to log-probabilities of the next token."""


def occurs(phrase: Ids, ids: Ids) -> bool:
    return any(ids[start : start + len(phrase)] == phrase for start in range(len(ids) - len(phrase) + 1))


def repeats(ids: Ids, n: int) -> bool:
    """Return whether the last n-gram of `ids` has occurred before."""
    return n > 0 and len(ids) >= n and any(ids[start : start + n] == ids[-n:] for start in range(len(ids) - n))


def progress(phrase: Ids, ids: Ids) -> int:
    if occurs(phrase, ids):
        return len(phrase)
    return max(length for length in range(len(phrase)) if ids[len(ids) - length :] == phrase[:length])


def is_allowed(ids: Ids, token: int, constraints: InputConstraints, search: BeamSearch, end_id: int | None) -> bool:
    if len(ids) < len(constraints.prefix):
        return token == constraints.prefix[len(ids)]
    if token == end_id:
        return len(ids) >= search.min_tokens and all(occurs(phrase, ids) for phrase in constraints.required)
    longer = (*ids, token)
    ends_forbidden = any(longer[-len(phrase) :] == phrase for phrase in constraints.forbidden)
    return not ends_forbidden and not repeats(longer, search.no_repeat_ngram)


def hypothesis(
    ids: Ids, total: float, length: int, constraints: InputConstraints, search: BeamSearch, *, is_ended: bool
) -> Hypothesis:
    lacks = tuple(phrase for phrase in constraints.required if not occurs(phrase, ids))
    return Hypothesis(ids, total / max(length, 1) ** search.length_penalty, total, is_ended and not lacks, lacks)


def ranked(hypotheses: list[Hypothesis], n: int) -> list[Hypothesis]:
    """Return the best `n` hypotheses. Sorting is stable: the first of equal ones is the better one."""
    return sorted(hypotheses, key=lambda item: (not item.is_complete, len(item.lacks), -item.score))[:n]


def naive_beam_search(
    log_p: LogP, constraints: InputConstraints, search: BeamSearch, end_id: int | None
) -> list[Hypothesis]:
    live: list[tuple[float, Ids]] = [(0.0, ())]
    hypotheses: list[Hypothesis] = []
    length = 0
    while live:
        length += 1
        candidates, stuck = [], set()
        for parent, (total, ids) in enumerate(live):
            scores = log_p(ids)
            options = [
                (total + score, parent, token)
                for token, score in enumerate(scores)
                if score > -math.inf and is_allowed(ids, token, constraints, search, end_id)
            ]
            if not options:
                stuck.add(parent)
            candidates += options
        selected = select_by_bank(candidates, live, constraints, search, end_id)
        cut = set(range(len(live))) - {parent for _, parent, token in selected if token == end_id}
        hypotheses += [
            hypothesis(ids, total, len(ids), constraints, search, is_ended=False)
            for parent, (total, ids) in enumerate(live)
            if parent in (stuck | cut if length > constraints.max_tokens else stuck)
        ]
        next_live = []
        for total, parent, token in selected:
            ids = live[parent][1]
            if token == end_id:
                hypotheses.append(hypothesis(ids, total, length, constraints, search, is_ended=True))
            elif end_id is None and length == constraints.max_tokens:
                hypotheses.append(hypothesis((*ids, token), total, length, constraints, search, is_ended=True))
            elif length <= constraints.max_tokens:
                next_live.append((total, (*ids, token)))
        live = next_live
    return ranked(hypotheses, search.n_best)


def select_by_bank(
    candidates: list, live: list, constraints: InputConstraints, search: BeamSearch, end_id: int | None
) -> list:
    """Return the best `width` candidates. With required phrases, banks take turns, the highest first."""
    best = sorted(candidates, key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))
    banks: dict[int, list] = {}
    for total, parent, token in best:
        ids = live[parent][1] if token == end_id else (*live[parent][1], token)
        bank = sum(progress(phrase, ids) for phrase in constraints.required)
        banks.setdefault(bank, []).append((total, parent, token))
    selected = []
    while any(banks.values()):
        selected += [banks[bank].pop(0) for bank in sorted(banks, reverse=True) if banks[bank]]
    return selected[: search.width]


def every_sequence(size: int, end_id: int | None, constraints: InputConstraints) -> Iterator[Ids]:
    """Yield all sequences of an allowed length."""
    tokens = [token for token in range(size) if token != end_id]
    for length in range(constraints.max_tokens + 1) if end_id is not None else [constraints.max_tokens]:
        yield from product(tokens, repeat=length)


def exact_best(
    log_p: LogP, size: int, constraints: InputConstraints, search: BeamSearch, end_id: int | None
) -> list[Hypothesis]:
    """Return the best of all sequences."""
    hypotheses = []
    for ids in every_sequence(size, end_id, constraints):
        path = ids if end_id is None else (*ids, end_id)
        if all(is_allowed(path[:n], token, constraints, search, end_id) for n, token in enumerate(path)):
            total = sum(log_p(path[:n])[token] for n, token in enumerate(path))
            hypotheses.append(hypothesis(ids, total, len(path), constraints, search, is_ended=True))
    possible = [item for item in hypotheses if item.is_complete and item.log_probability > -math.inf]
    return ranked(possible, search.n_best)
