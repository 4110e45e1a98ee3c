"""Tables on stdout: scores, recipes, surprisals of several runs, and the machine's profile."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ensue.errors import EnsueError, distinct_names, list_names, pluralize
from ensue.outputs import delimited_line
from ensue.recipe import Recipe, TrainRecipe
from ensue.tasks import TASKS, task_entry

if TYPE_CHECKING:  # listing recipes must not import torch, which takes seconds
    from ensue.tasks.contract.task import TaskScores
    from ensue.training.device import ComputeMode
    from ensue.training.machine import Profile

_UNITS = (("h", 3600), ("min", 60), ("s", 1))
MIN_TEXT_WIDTH = 20
"""The minimum width of a column of texts, in cells of the terminal."""


def table_of(*left: str, right: Iterable[str] = (), **options: Any) -> Table:
    """Return an empty table with left-aligned columns, to which `options` apply, and right-aligned columns."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in left:
        table.add_column(name, **options)
    for name in right:
        table.add_column(name, justify="right")
    return table


def show_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of a table; the first row is the header. Texts in the last column are shortened between two words.

    A text is on a separate line if the other columns leave less than `MIN_TEXT_WIDTH`.
    """
    console = Console(highlight=False, markup=False)
    widths = [max(map(cell_len, column)) + 2 for column in list(zip(*rows, strict=True))[:-1]]
    available = console.width - sum(widths)
    for *cells, text in rows:
        start = "".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
        if available >= MIN_TEXT_WIDTH:
            console.print(start + shorten_text(text, available), soft_wrap=True)
        else:
            console.print(Text("  ".join(cells)))
            console.print("  " + shorten_text(text, console.width - 2), soft_wrap=True)


def shorten_text(text: str, width: int) -> str:
    """Return the first words of a text in `width` cells. A text without a blank is cut within the word."""
    if cell_len(text) <= width:
        return text
    start = set_cell_size(text, width - 2).rstrip()
    return (start if text[len(start) : len(start) + 1].isspace() else start.rpartition(" ")[0] or start) + " …"


def show_scores(scores: "TaskScores", tables: Iterable[Table | str] = ()) -> None:
    """Print scores as a table of two columns, then a table with the scores of each label, then other tables."""
    table = table_of("", right=[""])
    table.show_header = False
    content = scores.as_json()
    for name, value in content.items():
        if name not in ("confusion", "misaligned") and (value is None or isinstance(value, int | float)):
            table.add_row(Text(name.replace("_", " ")), _format_number(value))
    Console(highlight=False).print(table)
    if unknown := content.get("unknown_labels"):
        errors = pluralize(sum(unknown.values()), "error")
        print(f"{errors} from labels that the model lacks: {list_names(list(unknown))}")
    if misaligned := content.get("misaligned"):
        from ensue.data.sentences.span_borders import MIN_FRACTION, misaligned_spans  # noqa: PLC0415 (it imports numpy)

        total = sum(label["support"] for label in content["per_label"].values())
        first = getattr(scores, "first_misaligned", "")
        remedy = f"; ensue data {first.rpartition(':')[0]} shows the likely reason" if first else ""
        remedy = remedy if misaligned > MIN_FRACTION * total else ""
        print(f"{misaligned_spans(misaligned, total, first)}: they count as misses{remedy}")
    for shown in (*([label_rows(content["per_label"])] if content.get("per_label") else []), *tables):
        Console(highlight=False).print(shown)


def label_rows(per_label: dict[str, dict[str, Any]], max_rows: int | None = None) -> Table:
    """Return a table with a row for each label, ordered by F1 from the lowest."""
    table = table_of("label", right=("precision", "recall", "F1", "in the data"), overflow="fold")
    ranked = sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0]))
    for (_, score), label in zip(ranked, distinct_names([label for label, _ in ranked[:max_rows]]), strict=False):
        shares = (f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        table.add_row(Text(label), *shares, f"{score['support']:,}")
    return table


def show_pairs(result: Any) -> None:
    """Print a row for each file of a `MinimalPairScores`, and a row for all files. Ties have a column if they occur."""
    ties = result.total.ties > 0
    table = table_of("file", right=["pairs", "accuracy", *(["ties (half correct)"] if ties else [])])
    for row in (*result.rows, *([result.total] if len(result.rows) > 1 else [])):
        table.add_row(Text(row.name), f"{row.pairs:,}", f"{row.accuracy:.1%}", *([f"{row.ties:,}"] if ties else []))
    Console(highlight=False).print(table)


def show_recipes(recipes: Mapping[str, Recipe]) -> None:
    """Print the name, the budget and the description of each recipe, by task."""
    classes = [task_entry(task).recipe for task in TASKS]
    groups: dict[tuple[str, str], dict[str, Recipe]] = {(recipe.what, recipe.reads): {} for recipe in classes}
    for name, recipe in recipes.items():
        groups.setdefault((recipe.what, recipe.reads), {})[name] = recipe
    width = max(map(len, recipes), default=0)
    console = Console(highlight=False, markup=False)
    for heading, group in groups.items():
        if not group:
            continue
        console.print(": ".join(filter(None, heading)), style="bold")
        for name, recipe in group.items():
            start = f"  {name:{width}}  {_format_budget(recipe.train):>10}  "
            available = max(console.width - len(start), MIN_TEXT_WIDTH)
            lines = textwrap.wrap(recipe.about, available, break_long_words=False, break_on_hyphens=False) or [""]
            console.print(start + f"\n{' ' * len(start)}".join(lines), soft_wrap=True)
        console.print()
    console.print("s, min, h: the time of training; epochs: the number of passes over the training data.")
    console.print("`ensue recipes NAME` shows a recipe: source, measured scores, all keys.")


def _format_budget(train: TrainRecipe) -> str:
    """Return the budget, such as `60 s` or `100k steps`."""
    amount = getattr(train, train.budget)
    if train.budget != "seconds":
        return f"{amount:g} {train.budget}" if amount < 100_000 else f"{amount / 1000:g}k {train.budget}"
    unit, seconds = next((unit, size) for unit, size in _UNITS if amount >= size)
    return f"{amount / seconds:g} {unit}"


def _format_number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}" if value < 1000 else f"{value:,.1f}"


NATS = "nats"


def csv_lines(scored: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield a header, and a row for each token with its nats in each run. `scored` has the JSON lines of each run.

    Raises EnsueError if the runs do not read the same tokens.
    """
    first, *_ = scored
    for position, lines in enumerate(zip_longest(*scored.values()), 1):
        records: list[dict[str, Any]] = [{} if line is None else json.loads(line) for line in lines]
        for other, record in zip(scored, records, strict=True):
            if _select_comparable(record) != _select_comparable(records[0]):
                tokens = f"{_describe(records[0])} and {_describe(record)}"
                raise EnsueError(f"{first} and {other} read different tokens at position {position:,}: {tokens}")
        if position == 1:
            columns = [f"{NATS} {name}" for name in scored] if len(scored) > 1 else [NATS]
            yield delimited_line("csv", ["position", *_select_comparable(records[0]), *columns])[:-1]
        cells = [position, *_select_comparable(records[0]).values(), *(record[NATS] for record in records)]
        yield delimited_line("csv", cells)[:-1]


def _select_comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without nats and the keys that may differ between runs on the same text."""
    return {key: value for key, value in record.items() if key not in (NATS, "tokens", "text")}


def _describe(record: Mapping[str, Any]) -> str:
    return json.dumps(_select_comparable(record), ensure_ascii=False)[:60] if record else "nothing"


MAX_LOAD = 0.75
"""The load per core above which a measurement is unreliable."""


def show_machine(profile: "Profile") -> None:
    """Print the machine, and the milliseconds of a step in each compute mode and workload; * marks the chosen mode."""
    machine = profile.machine
    print(f"{machine.processor}, {machine.cores} cores, torch {machine.torch}; measured {profile.date}")
    if profile.load > MAX_LOAD:
        print(f"the machine was busy (load {profile.load:.1f} per core): --renew repeats the measurement")
    best = {workload: profile.best(workload) for workload in profile.steps}
    times = {w: {timing.mode: timing.milliseconds for timing in timings} for w, timings in profile.steps.items()}
    table = table_of("milliseconds a step", right=times, no_wrap=True)
    for mode in dict.fromkeys(mode for modes in times.values() for mode in modes):
        cells = (f"{times[w][mode]:.1f}{'*' if mode == best[w] else ' '}" if mode in times[w] else "-" for w in times)
        table.add_row(_format_mode(mode), *cells)
    Console(highlight=False, soft_wrap=True).print(table)
    print("* used by runs of this workload, unless train.precision or --threads is set")
    print(f"stored in {machine.path}")


def machine_json(profile: "Profile") -> str:
    """Return the profile as a JSON object, with its id, its file, and the chosen compute mode of each workload."""
    best_modes = {workload: profile.best(workload).model_dump() for workload in profile.steps}
    details = {"id": profile.id, "path": str(profile.machine.path), "chosen": best_modes}
    return json.dumps(profile.model_dump() | details, ensure_ascii=False)


def _format_mode(mode: "ComputeMode") -> str:
    library = "BLAS" if mode.products == "highest" else "oneDNN"
    kernel = f", {library}" if mode.precision == "float32" else f", {mode.kernel}" if mode.kernel else ""
    return f"{mode.precision}{kernel}, {pluralize(mode.threads, 'thread')}"
