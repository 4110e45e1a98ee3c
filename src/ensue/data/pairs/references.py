"""Several targets of one source as its references."""

from __future__ import annotations

from collections.abc import Iterable

from ensue.data.pairs.pair import Pair


def with_references(pairs: Iterable[Pair]) -> list[Pair]:
    """A pair for each distinct source, in the order of occurrence, with its distinct targets. It holds all of them."""
    first: dict[tuple[str, ...], Pair] = {}
    targets: dict[tuple[str, ...], dict[str, None]] = {}
    for pair in pairs:
        first.setdefault(pair.sources, pair)
        targets.setdefault(pair.sources, {}).update(dict.fromkeys(pair.targets))
    return [pair._replace(targets=tuple(targets[sources])) for sources, pair in first.items()]
