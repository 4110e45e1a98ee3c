"""Scores, recipes and other tables on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ensue.errors import distinct_names, listed
from ensue.recipe import Recipe, TrainRecipe
from ensue.tasks import TASKS, task_entry

if TYPE_CHECKING:  # they need torch, which takes seconds to import, and a list of recipes does not
    from ensue.tasks.contract.task import Scores

_UNITS = (("h", 3600), ("min", 60), ("s", 1))


def show_scores(scores: Scores) -> None:
    """Prints scores as a table of two columns, then those of each label."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="left")
    table.add_column(justify="right")
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
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("label", overflow="fold")
    for column in ("precision", "recall", "F1", "in the data"):
        table.add_column(column, justify="right")
    ranked = sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0]))
    for (_, score), label in zip(ranked, distinct_names([label for label, _ in ranked[:most]]), strict=False):
        shares = (f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        table.add_row(Text(label), *shares, f"{score['support']:,}")
    return table


def show_confusions(confusions: Sequence[tuple[str, str, int]]) -> None:
    """Prints a row for each pair of labels that are confused: the right one, the predicted one, how often."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("right", "predicted"):
        table.add_column(column, overflow="fold")
    table.add_column("words", justify="right")
    for right, predicted, count in confusions:
        table.add_row(Text(right), Text(predicted), f"{count:,}")
    Console(highlight=False).print(table)


def show_pairs(result: Any) -> None:
    """Prints a row for each file of a `MinimalPairScores`, and one for all files. Ties are shown if there are any."""
    ties = result.total.ties > 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("pairs of")
    table.add_column("pairs", justify="right")
    table.add_column("better one more probable", justify="right")
    if ties:
        table.add_column("ties, a half each", justify="right")
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


def show_doubts(rows: Sequence[Sequence[str]]) -> None:
    """Prints the first doubts of labels; the first row has the names of the columns."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
