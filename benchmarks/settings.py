"""Settings of recipes, such as `train.seed=1`, from several sources."""

from __future__ import annotations

from collections.abc import Iterable


def merge_settings(*groups: Iterable[str]) -> list[str]:
    """Return the settings of all groups; a later setting replaces an earlier one with the same key."""
    return list({setting.partition("=")[0].strip(): setting for group in groups for setting in group}.values())
