"""The report of `ensue data` on pairs: both sides, odd pairs, and the recipe to try."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.table import Table

from ensue.console.data_tables import counted, length_table
from ensue.data.survey.counts import MOST_REMEMBERED
from ensue.data.survey.pair_survey import PairSummary

_WORDS = ("cmudict", "sigmorphon")
_SHORT, _LONG = 2, 50
_SHORTER = 50


def pair_facts(summary: PairSummary) -> Iterator[tuple[str, str]]:
    header = " with a header" if summary.layout.header else ""
    yield "taken for", f"{summary.taken.format}{header}: pairs of source and target ({summary.taken.sign})"
    if not summary.size:
        return
    yield "read as", str(summary.layout).partition(", ")[2] or summary.layout.format
    yield "pairs", f"{summary.size:,}"
    several = summary.references
    if set(several.counts) != {1}:
        least, most = several.quantile(0), several.quantile(1)
        number = f"{least}" if least == most else f"{least} to {most}, {several.mean:.2f} on average"
        yield "references", f"{number} for each source"
    for name, side in (("source", summary.source), ("target", summary.target)):
        yield name, f"{side.words.total():,} words, {len(side.words):,} distinct; {side.num_characters:,} characters"
    low, usual, high = (summary.balance.ratios.quantile(share) / 100 for share in (0.05, 0.5, 0.95))
    yield (
        "ratio",
        f"{usual:.2f} characters of the target to one of the source, {low:.2f} to {high:.2f} in 90 % of pairs",
    )
    if summary.num_copies:
        yield "copies", f"{summary.num_copies:,}, the first at {summary.first_copy}"
    yield from _repeated(summary)
    yield from _overlap(summary)


def pair_lengths(summary: PairSummary) -> Table:
    sides = {"source": summary.source, "target": summary.target}
    words = {f"words in a {name}": side.lengths for name, side in sides.items()}
    return length_table(words | {f"characters in a {name}": side.characters for name, side in sides.items()})


def pair_notes(summary: PairSummary) -> Iterator[str]:
    if summary.num_odd:
        odd = ", ".join(map(str, summary.odd)) + (", ..." if summary.num_odd > len(summary.odd) else "")
        look = counted(summary.num_odd, "pair looks", "pairs look")
        yield f"note: {look} misaligned by the characters of source and target: {odd}"
    sides = {"source": summary.source, "target": summary.target}
    if names := " and ".join(name for name, side in sides.items() if side.has_no_blanks):
        yield f"note: the {names} has no blanks between words: words mean nothing there, and scores are by characters"


def pair_recipe(summary: PairSummary) -> tuple[str, str]:
    """The recipe to try, and a name for the run."""
    source, target = summary.source, summary.target
    if summary.layout.format in _WORDS or max(source.lengths.mean, target.lengths.mean) <= _SHORT:
        return "transduce-lstm", "transducer"
    if source.lengths.mean > _LONG and summary.balance.ratios.quantile(0.5) < _SHORTER:
        return "summarize-pointer", "summarizer"
    return "translate-transformer", "translator"


def pair_settings(sources: str, targets: str) -> Iterator[str]:
    for name, columns in (("sources", sources), ("targets", targets)):
        if columns:
            yield f"data.{name}={json.dumps(columns.split(','), ensure_ascii=False)}"


def _repeated(summary: PairSummary) -> Iterator[tuple[str, str]]:
    if sources := summary.repeats.texts:
        other = summary.repeats.with_other_labels
        targets = f"{other:,} of them with other targets" if other else "with the same targets"
        part = f" (of the first {MOST_REMEMBERED:,} distinct ones)" if summary.repeats.is_partial else ""
        yield "repeated", f"{counted(sources, 'source')}, {targets}{part}"


def _overlap(summary: PairSummary) -> Iterator[tuple[str, str]]:
    if (overlap := summary.overlap) is None:
        return
    sources = overlap.sources
    first = f" (the first at {sources[0]})" if sources else ""
    found = f"sources {len(sources):,}{first}, targets {overlap.num_targets:,}, whole pairs {overlap.num_pairs:,}"
    yield "overlap", f"of the {counted(len(overlap), 'pair')} in {overlap.location} are also here: {found}"
