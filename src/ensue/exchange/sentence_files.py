"""How sentence-transformers makes one vector of a text: the files beside a model that say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.errors import DataError
from ensue.exchange.weight_files import read_json_file, read_json_object
from ensue.parsing import shown

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
}
"""Our pooling for each key that is true."""
NAMES = {"mean": "mean", "cls": "first", "max": "max"}
"""Our pooling for each value of the newer key."""


def read_sentences(directory: Path) -> dict[str, Any]:
    """The table `[sentences]`; the mean of tokens for a directory that says nothing.

    Raises DataError for a module that ensue has not, and for another pooling.
    """
    path = directory / "modules.json"
    if not path.exists():
        return {}
    modules = read_json_file(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DataError("expected a list of modules", path)
    found: dict[str, Any] = {}
    for module in modules:
        kind, name = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        if kind == "Normalize":
            found["unit_length"] = True
        elif kind == "Pooling":
            found["pooling"] = _pooling(directory / _folder(name, path) / "config.json")
        elif kind != "Transformer":
            raise DataError(
                f"the module {shown(kind)} is not supported; expected Transformer, Pooling, Normalize", path
            )
    return found


def _folder(name: object, path: Path) -> str:
    if not isinstance(name, str) or Path(name).name != name:
        raise DataError(f"expected a folder beside it, found {shown(name)}", path)
    return name


def _pooling(path: Path) -> str:
    config = read_json_object(path)
    chosen = config.get("pooling_mode")
    modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
    found = NAMES.get(chosen) if isinstance(chosen, str) else POOLINGS.get(modes[0]) if len(modes) == 1 else None
    if found is None:
        said = shown(chosen) if chosen is not None else ", ".join(modes) or "none"
        raise DataError(f"a pooling by {said} is not supported; expected mean, cls or max of tokens", path)
    return found
