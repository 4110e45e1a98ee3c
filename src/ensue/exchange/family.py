"""A family of published models: its configuration, its tensors, its task."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from ensue.exchange.configuration import Configuration
from ensue.exchange.layouts import Part


@dataclass(frozen=True)
class Family:
    """The recipe tables of a configuration, and the parameters of the recipe. Both know which tensors there are."""

    prefix: str
    """The beginning that names of tensors have in some files, and not in others."""
    is_masked: bool
    """Whether its models fill in masks; else they predict what comes next."""
    tables: Callable[[Configuration, Set[str]], dict[str, Any]]
    layout: Callable[[Any], list[Part]]
    unused: tuple[str, ...] = ()
    """The ends of the names of tensors that say nothing: buffers, and copies of what is tied."""
    tied: str = ""
    """The name of a copy of the tokens' vectors that some files have."""
