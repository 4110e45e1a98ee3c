"""The examples of a job: read, checked, divided into training and validation, and described."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.compact_texts import Columns
from ensue.data.detection.locations import aligned_paths
from ensue.data.division import Division, divided
from ensue.data.files import all_files
from ensue.data.kept_columns import Kept, kept
from ensue.data.parallel import working
from ensue.data.sources import digest_of
from ensue.recipe import Recipe
from ensue.recipe.tables import DataRecipe, DividedData
from ensue.runs.origin import Origin
from ensue.tasks import task_entry
from ensue.tasks.contract.job import Job


class Examples(Sized, Protocol):
    """Examples in memory."""

    @property
    def sources(self) -> Sequence[Hashable] | NDArray[np.int64]:
        """For each example what it is of, and what may not be in both parts: its group, or what is read; or the number
        of that, in the order in which they come first.
        """

    def num_shared(self, other: Self) -> int:
        """How many examples of others are here, by what a model reads of them."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The examples in these rows."""


ModelT = TypeVar("ModelT", bound=nn.Module)
DataT = TypeVar("DataT", bound=Examples)
ColumnsT = TypeVar("ColumnsT", bound=Columns)


@dataclass
class Split(Generic[DataT]):
    """Training, validation and test examples. `valid_from` says where those of validation come from, for people."""

    train: DataT
    valid: DataT | None
    valid_from: str
    test: DataT | None
    notes: list[str] = field(default_factory=list)
    """Remarks on a validation that is missing, and on sources with several examples."""
    facts: dict[str, Any] = field(default_factory=dict)
    """More that was found while they were read, as JSON values."""
    key: str = ""
    """The digest of all that they depend on; "" if they are not in the cache."""

    @classmethod
    def kept(
        cls, kind: Callable[..., ColumnsT], table: DividedData, key: Any, read: Callable[[], Split[ColumnsT]]
    ) -> Split[ColumnsT]:
        """The examples of a table `[data]`, which `read` reads, unless the cache has them. `key` is JSON that tells on
        what they depend, beside the table and the validation and test data.
        """

        def made() -> Kept:
            split = read()
            parts = {"train": split.train, "valid": split.valid, "test": split.test}
            return Kept(parts, {"valid_from": split.valid_from, "notes": split.notes, "facts": split.facts})

        found = kept([kind.__name__, *key_of(table), key], files_named(table), made)
        train, valid, test = (
            None if part is None else kind(part.columns)
            for part in (found.parts["train"], found.parts["valid"], found.parts["test"])
        )
        assert train is not None
        facts = found.facts
        return Split(train, valid, facts["valid_from"], test, facts["notes"], facts["facts"], found.key)

    @classmethod
    def of(
        cls,
        whole: DataT,
        table: DividedData,
        read: Callable[[str], DataT],
        *,
        examples: str,
        drawn: bool = True,
        classes: NDArray[np.int64] | None = None,
    ) -> Split[DataT]:
        """The training data and what the recipe's table `[data]` says of the others, which `read` reads; `examples` is
        what they are called.

        A part that is kept for validation is drawn at random, since data are often sorted by label; else it is the end.
        `classes` are the numbers of the classes of the training data, rarer ones later, which both parts have.
        """
        train, valid, chosen, division = whole, None, "none", None
        if table.valid:
            valid, chosen = read(table.valid), table.valid
        elif (kept := max(1, round(len(whole) * (1 - table.valid_fraction)))) < len(whole):
            sources = np.arange(len(whole)) if table.division == "rows" else whole.sources
            classes = classes if table.division == "classes" else None
            division = divided(sources, kept, drawn=drawn, classes=classes)
            if len(division.valid):
                train, valid = whole.select(division.train), whole.select(division.valid)
                chosen = f"{table.valid_fraction:.0%} of {table.train}"
                chosen = f"{chosen}, drawn at random" if drawn else f"the last {chosen}"
                by = ["class"] if classes is not None else []
                by += [f'"{table.group}"' if table.group else "source"] if division.has_repeats else []
                chosen += f" by {' and '.join(by)}" if by else ""
        notes = _repeats(division, table.group, examples) if division is not None and division.has_repeats else []
        if valid is None:
            notes.append("no validation data: the last weights are kept, and no score is measured")
        test = read(table.test) if table.test else None
        is_apart = drawn and division is not None and table.division != "rows" and not table.group
        for what, part in (("validation", None if is_apart else valid), ("test", test)):
            if part is not None and (count := train.num_shared(part)):
                notes.append(f"{count:,} of {len(part):,} {examples} of the {what} data are in the training data, too")
        return Split(train, valid, chosen, test, notes)


def named(location: str) -> list[Path]:
    """The files that a location names, which may be two with a comma between them."""
    aligned = [name for names in aligned_paths(location) for name in names]
    return [path for name in aligned or [location] for path in all_files(name)]


def shared_files(table: DataRecipe) -> list[str]:
    """Remarks on files that are training data, and validation or test data, too."""
    train = {os.path.realpath(path) for path in named(table.train)} if table.train else set()
    notes = []
    for what, location in (("validation", table.valid), ("test", table.test)):
        if shared := [path for path in named(location) if os.path.realpath(path) in train] if location else []:
            more = f" and {len(shared) - 1:,} more are" if len(shared) > 1 else " is"
            notes.append(f"{shared[0]}{more} in the training data, and in the {what} data: its scores are too good")
    return notes


def files_named(table: DataRecipe) -> list[Path]:
    """The files of a table `[data]`."""
    return [path for location in (table.train, table.valid, table.test) if location for path in named(location)]


def key_of(table: DataRecipe) -> list[Any]:
    """The key of what a table `[data]` tells of examples: all but the content of the training data."""
    own = table.model_dump(exclude={"train", "valid", "test", "teacher"})
    return [own, [str(path.absolute()) for path in files_named(table)], fingerprints(table)]


def fingerprints(table: DataRecipe) -> dict[str, str]:
    """The digests of the files of validation data, test data and a teacher, by their keys in `[data]`."""
    paths = {"valid": table.valid, "test": table.test, "teacher": getattr(table, "teacher", "")}
    return {key: digest_of(named(path)) for key, path in paths.items() if path}


def fingerprints_of(job: Job[Any]) -> dict[str, str]:
    """The digests of a job's data, by their keys in `[data]`: of bytes, and behind "+" of labels in file names."""
    data = job.recipe.data
    digests = {"train": job.fingerprint, **fingerprints(data)}
    names = {key: json.dumps(job.labels_in_names(getattr(data, key))) for key in digests}
    return {key: f"{digest}+{hashlib.sha256(names[key].encode()).hexdigest()}" for key, digest in digests.items()}


def _repeats(division: Division, group: str, examples: str) -> list[str]:
    """A remark on sources with several examples."""
    rows = f"{len(division.train) + len(division.valid):,} {examples}"
    of = f'groups ("{group}")' if group else "sources"
    held = f"{division.num_held_out:,} with {len(division.valid):,} {examples} are for validation"
    held = f"{held}, none is in both parts" if len(division.valid) else "nothing can be kept for validation"
    return [f"{rows} are of {division.num_sources:,} {of}: {held}"]


class DataSet(ABC, Generic[DataT]):
    """The examples of a recipe. Making one reads and checks all files; raises DataError for unusable data."""

    unit: ClassVar[str]
    """The unit of a prediction."""
    split: Split[DataT]
    fingerprint: str
    """The fingerprint of the training data."""
    origins: Sequence[Origin] = ()
    """The runs whose layers it needs."""

    @abstractmethod
    def amount(self, parts: Any) -> str:
        """Their amount, in one line, with that of what the model's parts have of them."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The training, validation and test data, as a list in Markdown."""

    @property
    def notes(self) -> list[str]:
        """Remarks on what was read."""
        return []

    def protocol(self) -> str:
        """How they are read, in one line; "" if there is nothing to say."""
        return ""

    def config(self, parts: Any) -> dict[str, Any]:
        """The keys of `config.json` that say how files are read, and of which sizes the parts are."""
        return {}

    @property
    def example(self) -> str:
        """A text that the model reads from stdin; "" if a plain text is not enough for it."""
        return ""

    def python(self) -> list[str]:
        """Lines of Python that use `model`; empty for those of its parts."""
        return []

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        """Works out what other models say of them (`Job.work_out`)."""

    def labels_in_names(self, location: str) -> list[str]:
        """The labels that files of a location have from their names (`Job.labels_in_names`)."""
        return []

    def inherit(self, model: nn.Module, parts: Any) -> Mapping[str, Tensor | None]:
        """Sets the weights that come from another run; the result is for `Job.inherited`."""
        return {}


class DataSetJob(Job[ModelT], Generic[ModelT, DataT]):
    """The job of a model that learns from a data set."""

    recipe: Any

    def __init__(self, recipe: Any, data_set: DataSet[DataT]) -> None:
        self.recipe, self.data_set, self.split = recipe, data_set, data_set.split
        self.fingerprint, self.origins = data_set.fingerprint, data_set.origins

    @property
    def data(self) -> str:
        return self.data_set.amount(self.parts)

    @property
    def notes(self) -> list[str]:
        return [*self.data_set.notes, *self.split.notes]

    def labels_in_names(self, location: str) -> list[str]:
        return self.data_set.labels_in_names(location)

    def protocol(self, model: ModelT) -> str:
        return self.data_set.protocol()

    def config(self) -> dict[str, Any]:
        return self.data_set.config(self.parts)

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        self.data_set.work_out(device, told)

    def build_model(self) -> ModelT:
        model = super().build_model()
        self.inherited = self.data_set.inherit(model, self.parts)
        return model

    def data_lines(self) -> list[str]:
        return self.data_set.lines()

    def python(self) -> list[str]:
        return self.data_set.python() or super().python()


def prepare_examples(recipe: Recipe, *, processes: int = 1) -> str:
    """Reads the labeled data of a recipe by several processes into the cache, and counts what a model needs of them.
    The result tells what was found. Raises DataError for data that cannot be used.
    """
    with working(processes):
        job: Any = task_entry(recipe.task).job_class(recipe)
        job.build_model()
    return f"{job.data}; {'in the cache' if job.split.key else 'so small that each training reads them'}"
