"""The report of `ensue data` on pairs: both sides, odd pairs, and the recipe to try."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.table import Table

from ensue.console.data_report import Report, counted, length_table, repeated
from ensue.data.survey.pair_survey import Overlap, PairSummary, Side

_WORDS = ("cmudict", "sigmorphon")
_SHORT, _LONG = 2, 50
_SHORTER = 50


class PairReport(Report[PairSummary]):
    """The report on pairs."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
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
        for name, side in self._sides.items():
            yield (
                name,
                f"{side.words.total():,} words, {len(side.words):,} distinct; {side.num_characters:,} characters",
            )
        low, usual, high = (summary.balance.ratios.quantile(share) / 100 for share in (0.05, 0.5, 0.95))
        yield (
            "ratio",
            f"{usual:.2f} characters of the target to one of the source, {low:.2f} to {high:.2f} in 90 % of pairs",
        )
        if summary.num_copies:
            yield "copies", f"{summary.num_copies:,}, the first at {summary.first_copy}"
        if sources := summary.repeats.texts:
            yield "repeated", repeated(summary.repeats, counted(sources, "source"), "targets")
        if summary.overlap is not None:
            yield "overlap", _overlap(summary.overlap)

    def tables(self) -> Iterator[Table]:
        if not self.summary.size:
            return
        words = {f"words in a {name}": side.lengths for name, side in self._sides.items()}
        characters = {f"characters in a {name}": side.characters for name, side in self._sides.items()}
        yield length_table(words | characters)

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if summary.num_odd:
            odd = ", ".join(map(str, summary.odd)) + (", ..." if summary.num_odd > len(summary.odd) else "")
            look = counted(summary.num_odd, "pair looks", "pairs look")
            yield f"{look} misaligned by the characters of source and target: {odd}"
        if names := " and ".join(name for name, side in self._sides.items() if side.has_no_blanks):
            yield f"the {names} has no blanks between words: words mean nothing there, and scores are by characters"

    def recipe(self) -> tuple[str, str]:
        source, target = self.summary.source, self.summary.target
        if self.summary.layout.format in _WORDS or max(source.lengths.mean, target.lengths.mean) <= _SHORT:
            return "transduce-lstm", "transducer"
        if source.lengths.mean > _LONG and self.summary.balance.ratios.quantile(0.5) < _SHORTER:
            return "summarize-pointer", "summarizer"
        return "translate-transformer", "translator"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        for key in ("sources", "targets"):
            if names := getattr(self.columns, key):
                yield f"data.{key}={json.dumps(names.split(','), ensure_ascii=False)}"

    @property
    def _sides(self) -> dict[str, Side]:
        return {"source": self.summary.source, "target": self.summary.target}


def _overlap(overlap: Overlap) -> str:
    sources = overlap.sources
    first = f" (the first at {sources[0]})" if sources else ""
    found = f"sources {len(sources):,}{first}, targets {overlap.num_targets:,}, whole pairs {overlap.num_pairs:,}"
    return f"of the {counted(len(overlap), 'pair')} in {overlap.location} are also here: {found}"
