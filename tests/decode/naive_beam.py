"""Beam search as it is defined, over lists: no batch, no early end; and all sequences of a tiny vocabulary."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from ensue.decode.search import BeamSearch, Hypothesis, InputConstraints

Ids = tuple[int, ...]
LogP = Callable[[Ids], Sequence[float]]
"""The log-probabilities of the next token after some tokens."""


def occurs(phrase: Ids, ids: Ids) -> bool:
    return any(ids[start : start + len(phrase)] == phrase for start in range(len(ids) - len(phrase) + 1))


def repeats(ids: Ids, n: int) -> bool:
    """Whether the last n-gram of `ids` has occurred before."""
    return n > 0 and len(ids) >= n and any(ids[start : start + n] == ids[-n:] for start in range(len(ids) - n))


def progress(phrase: Ids, ids: Ids) -> int:
    if occurs(phrase, ids):
        return len(phrase)
    return max(length for length in range(len(phrase)) if ids[len(ids) - length :] == phrase[:length])


def is_allowed(ids: Ids, token: int, sought: InputConstraints, search: BeamSearch, end_id: int | None) -> bool:
    if len(ids) < len(sought.prefix):
        return token == sought.prefix[len(ids)]
    if token == end_id:
        return len(ids) >= search.min_tokens and all(occurs(phrase, ids) for phrase in sought.required)
    longer = (*ids, token)
    ends_forbidden = any(longer[-len(phrase) :] == phrase for phrase in sought.forbidden)
    return not ends_forbidden and not repeats(longer, search.no_repeat_ngram)


def hypothesis(
    ids: Ids, total: float, length: int, sought: InputConstraints, search: BeamSearch, *, ended: bool
) -> Hypothesis:
    lacks = tuple(phrase for phrase in sought.required if not occurs(phrase, ids))
    return Hypothesis(ids, total / max(length, 1) ** search.length_penalty, total, ended and not lacks, lacks)


def ranked(found: list[Hypothesis], n: int) -> list[Hypothesis]:
    """Sorting is stable: of equal ones the first found is the better one."""
    return sorted(found, key=lambda one: (not one.is_complete, len(one.lacks), -one.score))[:n]


def naive_beam_search(
    log_p: LogP, sought: InputConstraints, search: BeamSearch, end_id: int | None
) -> list[Hypothesis]:
    live: list[tuple[float, Ids]] = [(0.0, ())]
    found: list[Hypothesis] = []
    length = 0
    while live:
        length += 1
        candidates, stuck = [], set()
        for parent, (total, ids) in enumerate(live):
            scores = log_p(ids)
            options = [
                (total + score, parent, token)
                for token, score in enumerate(scores)
                if score > -math.inf and is_allowed(ids, token, sought, search, end_id)
            ]
            if not options:
                stuck.add(parent)
            candidates += options
        kept = shared_out(candidates, live, sought, search, end_id)
        cut = set(range(len(live))) - {parent for _, parent, token in kept if token == end_id}
        found += [
            hypothesis(ids, total, len(ids), sought, search, ended=False)
            for parent, (total, ids) in enumerate(live)
            if parent in (stuck | cut if length > sought.max_tokens else stuck)
        ]
        next_live = []
        for total, parent, token in kept:
            ids = live[parent][1]
            if token == end_id:
                found.append(hypothesis(ids, total, length, sought, search, ended=True))
            elif end_id is None and length == sought.max_tokens:
                found.append(hypothesis((*ids, token), total, length, sought, search, ended=True))
            elif length <= sought.max_tokens:
                next_live.append((total, (*ids, token)))
        live = next_live
    return ranked(found, search.n_best)


def shared_out(candidates: list, live: list, sought: InputConstraints, search: BeamSearch, end_id: int | None) -> list:
    """The `width` best candidates; with required phrases by turns from each bank, the highest bank first."""
    best = sorted(candidates, key=lambda one: (-one[0], one[1], one[2]))
    banks: dict[int, list] = {}
    for total, parent, token in best:
        ids = live[parent][1] if token == end_id else (*live[parent][1], token)
        banks.setdefault(sum(progress(phrase, ids) for phrase in sought.required), []).append((total, parent, token))
    kept = []
    while any(banks.values()):
        kept += [banks[bank].pop(0) for bank in sorted(banks, reverse=True) if banks[bank]]
    return kept[: search.width]


def every_sequence(size: int, end_id: int | None, sought: InputConstraints) -> Iterator[Ids]:
    """All sequences that may be an answer, as far as their lengths say."""
    tokens = [token for token in range(size) if token != end_id]
    for length in range(sought.max_tokens + 1) if end_id is not None else [sought.max_tokens]:
        yield from product(tokens, repeat=length)


def exact_best(
    log_p: LogP, size: int, sought: InputConstraints, search: BeamSearch, end_id: int | None
) -> list[Hypothesis]:
    """The best of all sequences."""
    found = []
    for ids in every_sequence(size, end_id, sought):
        whole = ids if end_id is None else (*ids, end_id)
        if all(is_allowed(whole[:place], token, sought, search, end_id) for place, token in enumerate(whole)):
            total = sum(log_p(whole[:place])[token] for place, token in enumerate(whole))
            found.append(hypothesis(ids, total, len(whole), sought, search, ended=True))
    return ranked([one for one in found if one.is_complete and one.log_probability > -math.inf], search.n_best)
