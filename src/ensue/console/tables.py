"""Scores, recipes and other tables on stdout."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ensue.errors import EnsueError, distinct_names, listed
from ensue.recipe import Recipe, TrainRecipe
from ensue.tasks import TASKS, task_entry

if TYPE_CHECKING:  # they need torch, which takes seconds to import, and a list of recipes does not
    from ensue.tasks.contract.task import Scores
    from ensue.training.device import Way
    from ensue.training.machine import Profile

_UNITS = (("h", 3600), ("min", 60), ("s", 1))


def table_of(*left: str, right: Iterable[str] = (), **options: Any) -> Table:
    """An empty table without lines; `options` are those of the columns on the left, and numbers stand on the right."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in left:
        table.add_column(name, **options)
    for name in right:
        table.add_column(name, justify="right")
    return table


def show_scores(scores: Scores) -> None:
    """Prints scores as a table of two columns, then those of each label."""
    table = table_of("", right=[""])
    table.show_header = False
    content = scores.as_json()
    for name, value in content.items():
        if name not in ("confusion", "misaligned") and (value is None or isinstance(value, int | float)):
            table.add_row(Text(name.replace("_", " ")), _number(value))
    Console(highlight=False).print(table)
    if unknown := content.get("unknown_labels"):
        what = "label" if len(unknown) == 1 else f"{len(unknown):,} labels"
        print(f"the model does not know the {what} {listed(list(unknown))}: wrong {sum(unknown.values()):,} times")
    if misaligned := content.get("misaligned"):
        from ensue.data.sentences.span_borders import CHARACTERS, misaligned_spans  # noqa: PLC0415 (it imports numpy)

        total = sum(label["support"] for label in content["per_label"].values())
        first = getattr(scores, "first_misaligned", "")
        print(f"{misaligned_spans(misaligned, total, first)}: they count as misses; {CHARACTERS} in training")
    if content.get("per_label"):
        Console(highlight=False).print(label_rows(content["per_label"]))


def label_rows(per_label: dict[str, dict[str, Any]], most: int | None = None) -> Table:
    """A row for each label, the lowest F1 first."""
    table = table_of("label", right=("precision", "recall", "F1", "in the data"), overflow="fold")
    ranked = sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0]))
    for (_, score), label in zip(ranked, distinct_names([label for label, _ in ranked[:most]]), strict=False):
        shares = (f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        table.add_row(Text(label), *shares, f"{score['support']:,}")
    return table


def show_confusions(confusions: Sequence[tuple[str, str, int]]) -> None:
    """Prints a row for each pair of labels that are confused: the right one, the predicted one, how often."""
    table = table_of("right", "predicted", right=["words"], overflow="fold")
    for right, predicted, count in confusions:
        table.add_row(Text(right), Text(predicted), f"{count:,}")
    Console(highlight=False).print(table)


def show_pairs(result: Any) -> None:
    """Prints a row for each file of a `MinimalPairScores`, and one for all files. Ties are shown if there are any."""
    ties = result.total.ties > 0
    columns = ["pairs", "better one more probable", *(["ties, a half each"] if ties else [])]
    table = table_of("pairs of", right=columns)
    for row in (*result.rows, *([result.total] if len(result.rows) > 1 else [])):
        table.add_row(Text(row.name), f"{row.pairs:,}", f"{row.accuracy:.1%}", *([f"{row.ties:,}"] if ties else []))
    Console(highlight=False).print(table)


def show_recipes(recipes: Mapping[str, Recipe]) -> None:
    """Prints a line for each recipe, by task: name, budget and the beginning of its description."""
    groups: dict[tuple[str, str], dict[str, Recipe]] = {_group(task_entry(task).recipe): {} for task in TASKS}
    for name, recipe in recipes.items():
        groups.setdefault(_group(type(recipe)), {})[name] = recipe
    width = max(map(len, recipes), default=0)
    console = Console(highlight=False, markup=False)
    for heading, group in groups.items():
        if not group:
            continue
        console.print(": ".join(filter(None, heading)), style="bold")
        for name, recipe in group.items():
            line = f"  {name:{width}}  {_budget(recipe.train):>10}  {recipe.about}"
            console.print(line, overflow="ellipsis", no_wrap=True)
        console.print()
    console.print("s, min, h: how long training takes; epochs: how often it reads the data.")
    console.print("`ensue recipes NAME` shows a recipe: source, measured scores, all keys.")


def _group(recipe: type[Recipe]) -> tuple[str, str]:
    return recipe.what, recipe.reads


def _budget(train: TrainRecipe) -> str:
    """The budget in ten characters."""
    amount = getattr(train, train.budget)
    if train.budget != "seconds":
        return f"{amount:g} {train.budget}" if amount < 100_000 else f"{amount / 1000:g}k {train.budget}"
    unit, seconds = next((unit, size) for unit, size in _UNITS if amount >= size)
    return f"{amount / seconds:g} {unit}"


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}" if value < 1000 else f"{value:,.1f}"


NATS = "nats"


def csv_lines(scored: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """A header, then a row for each token (or pair, or frame): its number from 1, what it is, and its nats by each run,
    whose JSON lines are given by its name. Of one run the column is `nats`, of several `nats NAME`.

    Raises EnsueError where runs do not read the same tokens.
    """
    one, *_ = scored
    for position, lines in enumerate(zip_longest(*scored.values()), 1):
        records: list[dict[str, Any]] = [{} if line is None else json.loads(line) for line in lines]
        for other, record in zip(scored, records, strict=True):
            if _what(record) != _what(records[0]):
                found = f"{_shown(records[0])} and {_shown(record)}"
                raise EnsueError(f"{one} and {other} do not read the same at position {position:,}: {found}")
        if position == 1:
            columns = [f"{NATS} {name}" for name in scored] if len(scored) > 1 else [NATS]
            yield _row(["position", *_what(records[0]), *columns])
        yield _row([position, *_what(records[0]).values(), *(record[NATS] for record in records)])


def _what(record: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but its nats, the number of its tokens, which is the run's own, and the text of an unknown token."""
    return {key: value for key, value in record.items() if key not in (NATS, "tokens", "text")}


def _shown(record: Mapping[str, Any]) -> str:
    return json.dumps(_what(record), ensure_ascii=False)[:60] if record else "nothing"


def _row(cells: Iterable[Any]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)  # which quotes what has line ends
    return row.getvalue()[:-1]


BUSY = 0.75
"""The load for each core above which a measurement is unreliable."""


def show_machine(profile: Profile) -> None:
    """Prints the machine, and for each compute mode the milliseconds of a step of each workload; * marks the chosen."""
    machine = profile.machine
    print(f"{machine.processor}, {machine.cores} cores, torch {machine.torch}; measured {profile.date}")
    if profile.load > BUSY:
        print(f"the machine was busy then (load {profile.load:.1f} a core): --renew measures again when it is quiet")
    best = {workload: profile.best(workload) for workload in profile.steps}
    found = {w: {timing.way: timing.milliseconds for timing in timings} for w, timings in profile.steps.items()}
    table = table_of("milliseconds a step", right=found, no_wrap=True)
    for way in dict.fromkeys(way for timings in found.values() for way in timings):
        table.add_row(_mode_name(way), *(_cell(found[w].get(way), way == best[w]) for w in found))
    Console(highlight=False, soft_wrap=True).print(table)
    print("* what a run of that kind takes, unless train.precision or --threads say otherwise")
    print(f"kept in {machine.path}")


def machine_json(profile: Profile) -> str:
    """The profile as a JSON object, with its id, its file, and the way that is chosen for each workload."""
    chosen = {workload: profile.best(workload).model_dump() for workload in profile.steps}
    more = {"id": profile.id, "path": str(profile.machine.path), "chosen": chosen}
    return json.dumps(profile.model_dump() | more, ensure_ascii=False)


def _mode_name(way: Way) -> str:
    library = "BLAS" if way.products == "highest" else "oneDNN"
    by = f", {library}" if way.precision == "float32" else f", {way.kernel}" if way.kernel else ""
    return f"{way.precision}{by}, {way.threads} thread{'s' * (way.threads > 1)}"


def _cell(milliseconds: float | None, is_best: bool) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f}{'*' if is_best else ' '}"
