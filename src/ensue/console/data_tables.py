"""The pieces of reports of `ensue data`: tables of lengths and of counts, numbers and names as people read them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from ensue.data.survey.counts import MOST_REMEMBERED, Lengths, Repeats
from ensue.errors import distinct_names

MOST_ROWS = 25
_WIDE = 10_000


def length_table(rows: Mapping[str, Lengths]) -> Table:
    table = table_of("", "shortest", "median", "mean", "95 %", "longest")
    for name, lengths in rows.items():
        least, median, most, longest = (f"{lengths.quantile(share):,}" for share in (0, 0.5, 0.95, 1))
        table.add_row(name, least, median, f"{lengths.mean:,.1f}", most, longest)
    return table


def label_table(unit: str, counts: Counter[str], total: int) -> Table:
    table = table_of("label", unit, "share")
    add_counts(table, counts, total)
    return table


def add_counts(
    table: Table, counts: Counter[str], total: int, more: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Adds a row for each of the most frequent names, and one for all others. `more` are further cells by name."""
    order = ranked(counts)
    names = distinct_names([name for name, _ in order[:MOST_ROWS]])
    for (name, count), text in zip(order, names, strict=False):
        table.add_row(text, f"{count:,}", _share(count, total), *(more or {}).get(name, ()))
    if rest := order[MOST_ROWS:]:
        count = sum(count for _, count in rest)
        table.add_row(f"and {len(rest):,} more", f"{count:,}", _share(count, total))


def table_of(*names: str, left: int = 0) -> Table:
    """A table with numbers in all columns but the first and the one at `left`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place in (0, left) else "right", overflow="fold")
    return table


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def repeated(repeats: Repeats, count: str, what: str) -> str:
    """The `count` of repeated texts, and how many have other labels or targets (`what`)."""
    other = repeats.with_other_labels
    part = f" (of the first {MOST_REMEMBERED:,} distinct ones)" if repeats.is_partial else ""
    return f"{count}, {f'{other:,} of them with other' if other else 'with the same'} {what}{part}"


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _share(count: int, total: int) -> str:
    share = 100 * count / max(1, total)
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def shown(text: str) -> str:
    """A word or label on one line: shortened if it is long, with escapes for characters that cannot be printed."""
    return distinct_names([text])[0]


def rendered(table: Table) -> str:
    """The table as lines without blanks at their ends. If stdout is no terminal, nothing is cut or folded."""
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
