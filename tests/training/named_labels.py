"""Data whose labels are file names, and a check that a run notices changed labels."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ensue.data.files import as_location
from ensue.recipe.tables import Recipe
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.training.run import begin_job


class Named(NamedTuple):
    """Functions that write data, change only their labels, and make a recipe that reads them."""

    write: Callable[[Path], Path]
    relabel: Callable[[Path], object]
    recipe: Callable[..., Recipe]


def check_notices_labels(named: Named, key: str, tmp_path: Path) -> None:
    """Assert that fingerprints change with the labels of a single location, and of the first of two."""
    paths = {other: named.write(tmp_path / other) for other in ("train", "valid", "test")}
    second = named.write(tmp_path / "second")

    def digest(*locations: Path) -> str:
        places = {other: as_location(locations if other == key else path) for other, path in paths.items()}
        train = places.pop("train")
        return fingerprints_of(begin_job(named.recipe(train, data=places), None))[key]

    places = [[paths[key]], [paths[key], second]]
    before = [digest(*locations) for locations in places]
    assert [digest(*locations) for locations in places] == before
    named.relabel(paths[key])
    assert not {*before} & {digest(*locations) for locations in places}
