"""The search space: a range or a choice for each of several keys of a recipe, read from TOML and checked."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.errors import DataError, EnsueError, RecipeError, nearest
from ensue.parsing import MAX_TOML_CHARACTERS, ParseError, parse_toml, read_bounded
from ensue.recipe import BUDGETS, Recipe, read_recipe

RANGE_KEYS = ("low", "high", "log", "step")


def check_optuna() -> None:
    """Raise EnsueError if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise EnsueError("search needs the package optuna: pip install 'ensue[search]'")


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included; integers if the bounds and the step, if any, are integers.

    With `log`, the logarithm of the number is uniform. With `step`, the numbers are low + n · step.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def samples(self) -> tuple[Any, ...]:
        """The bounds, which are checked as values of the recipe."""
        return self.low, self.high

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value that Optuna suggests for a trial."""
        if isinstance(self.low, int) and isinstance(self.high, int) and not isinstance(self.step, float):
            return trial.suggest_int(key, self.low, self.high, log=self.log, step=self.step or 1)
        return trial.suggest_float(key, self.low, self.high, log=self.log, step=self.step)

    def as_json(self) -> Any:
        """Return the range as a JSON object."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


@dataclass(frozen=True)
class Choice:
    """A choice among values of any type."""

    samples: tuple[Any, ...]

    def suggest(self, trial: Any, key: str) -> Any:
        """Return the value that Optuna suggests for a trial."""
        return json.loads(trial.suggest_categorical(key, [json.dumps(value) for value in self.samples]))

    def as_json(self) -> Any:
        """Return the values as a JSON array."""
        return list(self.samples)


Space = Mapping[str, Range | Choice]


def read_space(path: Path, recipe: Recipe) -> Space:
    """Return the space in a file. Raise RecipeError for unknown keys, invalid values, and several budgets."""
    try:
        document = parse_toml(read_bounded(path, MAX_TOML_CHARACTERS * 4).decode())
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None
    except (ParseError, ValueError) as error:
        raise RecipeError(f"{path}: {error}") from None
    space = dict(_read(document, path, ""))
    if not space:
        raise RecipeError(f"{path}: no keys; expected keys like train.learning_rate = {{ low = 1e-4, high = 1e-2 }}")
    budgets = [key for key in space if key in {f"train.{name}" for name in BUDGETS}]
    if len(budgets) > 1:
        raise RecipeError(f"{path}: {' and '.join(budgets)}: expected at most one budget; remove the others")
    for key, values in space.items():
        for value in values.samples:
            try:
                read_recipe(recipe, {key: value})
            except RecipeError as error:
                raise RecipeError(f"{path}: {key} = {json.dumps(value, default=str)}: {error}") from None
    return space


def _read(document: Mapping[str, Any], path: Path, prefix: str) -> Iterator[tuple[str, Range | Choice]]:
    for name, value in document.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and ("low" in value or "high" in value):
            yield key, _read_range(value, f"{path}: {key}")
        elif isinstance(value, dict):
            yield from _read(value, path, f"{key}.")
        elif isinstance(value, list) and value:
            yield key, Choice(tuple(value))
        else:
            raise RecipeError(f"{path}: {key}: expected a list of choices, or {{ low, high }}; found {value!r:.60}")


def _read_range(table: Mapping[str, Any], where: str) -> Range:
    for key in table:
        if key not in RANGE_KEYS:
            raise RecipeError(f'{where}: unknown key "{key}"{nearest(key, RANGE_KEYS)}; expected low, high, log, step')
    numbers = {name: table[name] for name in ("low", "high", "step") if name in table}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RecipeError(f"{where}.{name}: expected a number, found {value!r:.60}")
    if "low" not in table or "high" not in table:
        raise RecipeError(f"{where}: expected low and high, found {', '.join(table)} alone")
    low, high, log, step = table["low"], table["high"], table.get("log", False), table.get("step")
    if not low < high:
        raise RecipeError(f"{where}: expected low below high, found {low} and {high}")
    if not isinstance(log, bool):
        raise RecipeError(f"{where}.log: expected true or false, found {log!r:.60}")
    if log and (low <= 0 or step is not None):
        raise RecipeError(f"{where}: log = true requires low above 0 and excludes step")
    if step is not None and not 0 < step <= high - low:
        raise RecipeError(f"{where}.step: expected a number above 0, up to {high - low}, found {step}")
    return Range(low, high, log, step)
