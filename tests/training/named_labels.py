"""Data whose labels stand in names, and a check that a run notices their change."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ensue.recipe.tables import Recipe
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.training.run import begin_job


class Named(NamedTuple):
    """Data, a change of their labels alone, and the recipe that reads them."""

    write: Callable[[Path], Path]
    relabel: Callable[[Path], object]
    recipe: Callable[..., Recipe]


def check_notices_labels(named: Named, key: str, tmp_path: Path) -> None:
    paths = {other: named.write(tmp_path / other) for other in ("train", "valid", "test")}

    def digest() -> str:
        data = {other: str(path) for other, path in paths.items() if other != "train"}
        return fingerprints_of(begin_job(named.recipe(paths["train"], data=data), None))[key]

    before = digest()
    assert digest() == before
    named.relabel(paths[key])
    assert digest() != before
