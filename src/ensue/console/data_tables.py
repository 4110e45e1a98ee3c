"""The tables of `ensue data`: lengths, labels, spans, columns. `data_summary` decides which are shown."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.json_sentences import JsonSentences
from ensue.data.survey.counts import MOST_VALUES, LabeledSummary, Lengths
from ensue.data.survey.document_survey import DocumentSummary
from ensue.data.survey.sentence_survey import SentenceSummary
from ensue.errors import distinct_names, listed

MOST_ROWS = 25
_WIDE = 10_000
_KEYS = ("feats.", "misc.")


def labeled_tables(summary: LabeledSummary) -> Iterator[Table]:
    unit = "sentence" if isinstance(summary, SentenceSummary) else "text"
    parts = [""] if len(summary.lengths) == 1 else ["first ", "second "]
    yield length_table({f"words in a {part}{unit}": of for part, of in zip(parts, summary.lengths, strict=True)})
    is_sentences = isinstance(summary, SentenceSummary)
    if summary.labels:
        total = summary.labels.total() if is_sentences else summary.size
        yield label_table("words" if is_sentences else "texts", summary.labels, total)
    if isinstance(summary, SentenceSummary):
        if summary.span_lengths:
            yield _span_table(summary.span_lengths)
        if summary.columns.counts:
            yield _column_table(summary)


def length_table(rows: Mapping[str, Lengths]) -> Table:
    table = table_of("", "shortest", "median", "mean", "95 %", "longest")
    for name, lengths in rows.items():
        least, median, most, longest = (f"{lengths.quantile(share):,}" for share in (0, 0.5, 0.95, 1))
        table.add_row(name, least, median, f"{lengths.mean:,.1f}", most, longest)
    return table


def label_table(unit: str, counts: Counter[str], total: int) -> Table:
    table = table_of("label", unit, "share")
    _add_counts(table, counts, total)
    return table


def _span_table(spans: Mapping[str, Lengths]) -> Table:
    table = table_of("spans of", "spans", "share", "words on average", "longest")
    counts = Counter({name: len(lengths) for name, lengths in spans.items()})
    words = {name: (f"{lengths.mean:.2f}", f"{lengths.quantile(1):,}") for name, lengths in spans.items()}
    _add_counts(table, counts, counts.total(), words)
    return table


def _add_counts(
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


def _column_table(summary: SentenceSummary) -> Table:
    table = table_of("other columns", "distinct values", "most frequent", left=2)
    columns = summary.columns.counts
    plain = [name for name in columns if not (name.startswith(_KEYS) and summary.taken.format == Conllu.name)]
    for name in plain[:MOST_ROWS]:
        number = f"over {MOST_VALUES:,}" if len(columns[name]) > MOST_VALUES else f"{len(columns[name]):,}"
        table.add_row(column_name(summary, name), number, listed([value for value, _ in ranked(columns[name])]))
    if len(plain) > MOST_ROWS:
        table.add_row(f"and {len(plain) - MOST_ROWS:,} more")
    for prefix in _KEYS:
        keys = Counter(
            {name: columns[name].total() for name in columns if name not in plain and name.startswith(prefix)}
        )
        if keys:
            entries = [f"{name.removeprefix(prefix)} ({len(columns[name]):,})" for name, _ in ranked(keys)]
            table.add_row(f"{prefix}KEY", f"{len(keys):,} keys", listed(entries))
    return table


def columns_of_table(summary: DocumentSummary) -> Iterator[Table]:
    """The columns that are neither label nor text; all columns if label and text could not be found."""
    columns, layout = summary.columns.counts, summary.layout
    is_unclear = summary.error is not None and not summary.is_labeled
    used = [column for column in (layout.labels, *layout.texts) if column is not None and not is_unclear]
    known = {str(column.number) if column.number else column.name for column in used}
    names = [name for name in columns if name not in known]
    if not names:
        return
    rows = max(counts.total() for counts in columns.values()) - layout.header
    kind = "columns" if is_unclear else "other columns"
    table = table_of(kind, f"distinct in {counted(rows, 'row')}", "first row", left=2)
    for name in names[:MOST_ROWS]:
        values = list(columns[name])
        title = f'"{shown(name)}"' if summary.taken.format == JsonSentences.name else f"column {name}"
        title += f' "{shown(values[0])}"' if layout.header else ""
        below = values[layout.header :]
        table.add_row(title, f"{len(below):,}", shown(below[0]) if below else "")
    if len(names) > MOST_ROWS:
        table.add_row(f"and {len(names) - MOST_ROWS:,} more")
    yield table


def table_of(*names: str, left: int = 0) -> Table:
    """A table with numbers in all columns but the first and the one at `left`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place in (0, left) else "right", overflow="fold")
    return table


def column_name(summary: SentenceSummary, name: str) -> str:
    if summary.taken.format == JsonSentences.name:
        return f'"{name}"'
    return f"column {name}" if summary.width else name


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


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
