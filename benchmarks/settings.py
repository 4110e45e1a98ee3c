"""Settings of recipes, such as `train.seed=1`, from several sources."""

from __future__ import annotations

from collections.abc import Iterable

BUDGETS = {"train.steps", "train.epochs", "train.tokens", "train.seconds"}


def merge_settings(*groups: Iterable[str]) -> list[str]:
    """Return the settings of all groups.

    A later setting replaces an earlier one with the same key, and a later budget replaces an earlier budget.
    """
    merged: dict[str, str] = {}
    for group in groups:
        for setting in group:
            key = setting.partition("=")[0].strip()
            replaced = BUDGETS if key in BUDGETS else {key}
            merged = {name: value for name, value in merged.items() if name not in replaced} | {key: setting}
    return list(merged.values())
