"""The examples of a job: reading, checks, division into training and validation data, and description."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.cached_columns import CachedColumns, cache_large_columns
from ensue.data.compact_texts import Columns
from ensue.data.detection.locations import aligned_paths
from ensue.data.division import Division, assign_folds, split_rows
from ensue.data.files import all_files
from ensue.data.parallel import use_processes
from ensue.data.sources import digest_of
from ensue.errors import DataError, distinct_names, list_names, pluralize
from ensue.recipe import Recipe
from ensue.recipe.tables import DataRecipe, DividedData
from ensue.runs.directory import Origin
from ensue.runs.pictures import picture
from ensue.runs.reporter import score_table
from ensue.tasks import task_entry
from ensue.tasks.contract.job import Job

NO_VALIDATION = "no validation data: the last weights are kept, and no score is measured"


class Examples(Sized, Protocol):
    """Examples in memory."""

    @property
    def group_keys(self) -> Sequence[Hashable] | NDArray[np.int64]:
        """The key of each example's group, or of its input if it has no group. Groups are not divided, except with
        `data.division = "rows"`.
        """

    def num_shared(self, other: Self) -> int:
        """Return the number of examples of `other` whose input is also in these examples."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the examples at the indices `rows` (N,)."""


ModelT = TypeVar("ModelT", bound=nn.Module)
DataT = TypeVar("DataT", bound=Examples)
ColumnsT = TypeVar("ColumnsT", bound=Columns)


@dataclass
class Split(Generic[DataT]):
    """Training, validation and test examples."""

    train: DataT
    valid: DataT | None
    valid_from: str
    """The description of the source of the validation data, for users."""
    test: DataT | None
    notes: list[str] = field(default_factory=list)
    """Remarks on missing validation data, on sources with several examples, and on examples that data share."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further results of reading, as JSON values."""
    key: str = ""
    """The cache key of the examples; "" if they are not in the cache."""

    @classmethod
    def cached(
        cls, build: Callable[..., ColumnsT], table: DividedData, key: Any, read: "Callable[[], Split[ColumnsT]]"
    ) -> "Split[ColumnsT]":
        """Return the examples of a table `[data]` from the cache, as `build(columns)`; on a cache miss, call `read`."""

        def read_columns() -> CachedColumns:
            split = read()
            parts = {"train": split.train, "valid": split.valid, "test": split.test}
            return CachedColumns(parts, {"valid_from": split.valid_from, "notes": split.notes, "facts": split.facts})

        cached = cache_large_columns([build.__name__, *data_cache_key(table), key], data_files(table), read_columns)
        stored = (cached.splits[name] for name in ("train", "valid", "test"))
        train, valid, test = (None if part is None else build(part.columns) for part in stored)
        assert train is not None
        facts = cached.metadata
        return Split(train, valid, facts["valid_from"], test, facts["notes"], facts["facts"], cached.key)

    @classmethod
    def of(
        cls, all_examples: DataT, table: DividedData, read: Callable[[str], DataT], *, examples: str,
        is_random: bool = True, classes: NDArray[np.int64] | None = None, labels: NDArray[np.int64] | None = None,
        parts: tuple[DataT, DataT] | None = None,
    ) -> "Split[DataT]":  # fmt: skip
        """Divide examples into training and validation data, unless the table `[data]` has files of validation data.

        `examples` is the plural noun for examples in notes, such as "texts". Validation data are drawn at random if
        `is_random`, and else are the last examples. `classes` are the classes of examples for a stratified division
        (`data.division = "classes"`), and `labels` the distinct pairs of an example and one of its labels for a
        division by labels. `parts` are training and validation data that are already divided.
        """
        count = len(all_examples)
        train, valid, valid_from, division = all_examples, None, "none", None
        if table.valid:
            valid, valid_from = read(table.valid), table.valid
        elif parts is not None:
            (train, valid), prefix = parts, "" if count == 1 else f"each of the {count:,} {examples} of "
            valid_from = f"the last {table.valid_fraction:.0%} of {prefix}{table.train}"
        elif (num_train := max(1, round(count * (1 - table.valid_fraction)))) < count:
            sources = np.arange(count) if table.division == "rows" else all_examples.group_keys
            classes = classes if table.division == "classes" else None
            division = split_rows(sources, num_train, is_random=is_random, classes=classes, labels=labels)
            if len(division.valid):
                train, valid = all_examples.select(division.train), all_examples.select(division.valid)
                valid_from = f"{table.valid_fraction:.0%} of {table.train}"
                valid_from = f"{valid_from}, drawn at random" if is_random else f"the last {valid_from}"
                by = ["class"] * (classes is not None) + ["label"] * division.is_exchanged
                by += [f'"{table.group}"' if table.group else "source"] if division.has_repeats else []
                valid_from += f" by {' and '.join(by)}" if by else ""
        notes = _note_repeats(division, table.group, examples) if division is not None and division.has_repeats else []
        if valid is None:
            notes.append(NO_VALIDATION)
        test = read(table.test) if table.test else None
        is_disjoint = is_random and division is not None and table.division != "rows" and not table.group
        for name, data in (("validation", None if is_disjoint else valid), ("test", test)):
            if data is not None and (num_shared := train.num_shared(data)):
                notes.append(
                    f"{num_shared:,} of {len(data):,} {examples} of the {name} data are in the training data, too"
                )
        return Split(train, valid, valid_from, test, notes)


def files_at(location: str) -> list[Path]:
    """Return the files of a location, or of two locations with a comma between them."""
    aligned = [path for paths in aligned_paths(location) for path in paths]
    return [path for name in aligned or [location] for path in all_files(name)]


def notes_on_shared_files(table: DataRecipe) -> list[str]:
    """Return remarks on training files that are also validation or test files."""
    train = {os.path.realpath(path) for path in files_at(table.train)} if table.train else set()
    notes = []
    for name, location in (("validation", table.valid), ("test", table.test)):
        if shared := [path for path in files_at(location) if os.path.realpath(path) in train] if location else []:
            more = f" and {len(shared) - 1:,} more are" if len(shared) > 1 else " is"
            notes.append(f"{shared[0]}{more} in the training data, and in the {name} data: the scores are too good")
    return notes


def data_files(table: DataRecipe) -> list[Path]:
    """Return the files of a table `[data]`."""
    return [path for location in (table.train, table.valid, table.test) if location for path in files_at(location)]


def data_cache_key(table: DataRecipe) -> list[Any]:
    """Return the cache key of a table `[data]`, without the content of the training files."""
    keys = table.model_dump(exclude={"train", "valid", "test", "teacher"})
    return [keys, [str(path.absolute()) for path in data_files(table)], fingerprints(table)]


def fingerprints(table: DataRecipe) -> dict[str, str]:
    """Return the digests of the files of validation data, test data and teacher, by their keys in `[data]`."""
    paths = {"valid": table.valid, "test": table.test, "teacher": getattr(table, "teacher", "")}
    return {key: digest_of(files_at(path)) for key, path in paths.items() if path}


def fingerprints_of(job: Job[Any]) -> dict[str, str]:
    """Return the digests of the data of a job by their keys in `[data]`. The digest of the bytes of files is followed
    by "+" and the digest of the labels in the names of files.
    """
    data = job.recipe.data
    digests = {"train": job.fingerprint, **fingerprints(data)}
    labels_of = (lambda location: []) if job.data_set is None else job.data_set.labels_in_names
    names = {key: json.dumps(labels_of(getattr(data, key))) for key in digests}
    return {key: f"{digest}+{hashlib.sha256(names[key].encode()).hexdigest()}" for key, digest in digests.items()}


def _note_repeats(division: Division, group: str, examples: str) -> list[str]:
    """Return a note on sources with several examples."""
    count = len(division.train) + len(division.valid)
    sources = f'groups ("{group}")' if group else "sources"
    held_out = f"{division.num_valid_groups:,} with {len(division.valid):,} {examples} are for validation"
    held_out = f"{held_out}, no source is in both" if len(division.valid) else "nothing can be kept for validation"
    return [f"{count:,} {examples} come from {division.num_groups:,} {sources}: {held_out}"]


class DataSet(ABC, Generic[DataT]):
    """The examples of a recipe. The constructor reads and checks all files, and raises DataError for unusable data."""

    unit: ClassVar[str]
    """The unit of a prediction, such as "words"."""
    recipe: Any
    split: Split[DataT]
    fingerprint: str
    """The fingerprint of the training data."""
    origins: Sequence[Origin] = ()
    """The runs whose layers the model needs."""
    contextual: Any = None
    """`Job.contextual`."""

    @abstractmethod
    def amount(self, parts: Any) -> str:
        """Return the amount of data in one line; `parts` are the `ModelParts` of the job."""

    def lines(self) -> list[str]:
        """Return the training, validation and test data as a list in Markdown."""
        data, split = self.recipe.data, self.split
        is_cross_validated = split.valid is None and self.recipe.is_gradient_free
        valid = f"- validation: {'cross-validation' if is_cross_validated else split.valid_from}"
        lines = [f"- training: `{data.train}`, {split.train}", valid + (f", {split.valid}" if split.valid else "")]
        return [*lines, *([f"- test: `{data.test}`, {split.test}"] if split.test else [])]

    @property
    def notes(self) -> list[str]:
        """Remarks on the data."""
        return []

    def protocol(self) -> str:
        """Return one line about how the data are read, or ""."""
        return ""

    def config(self, parts: Any) -> dict[str, Any]:
        """Return the keys of `config.json` that describe how files are read, and the sizes of the model parts."""
        return {}

    def labels_in_names(self, location: str) -> list[str]:
        """Return the labels that are names of files or folders, not content of files."""
        return []

    def inherit(self, model: nn.Module, parts: Any) -> Mapping[str, Tensor | None]:
        """Copy the weights that come from another run, and return `Job.inherited`."""
        return {}


class DataSetJob(Job[ModelT], Generic[ModelT, DataT]):
    """The job of a model that learns from a `DataSet`."""

    recipe: Any

    def __init__(self, recipe: Any, data_set: DataSet[DataT]) -> None:
        self.recipe, self.data_set, self.split = recipe, data_set, data_set.split
        self.fingerprint, self.origins = data_set.fingerprint, data_set.origins
        self.contextual = data_set.contextual

    @property
    def data(self) -> str:
        return self.data_set.amount(self.parts)

    @property
    def notes(self) -> list[str]:
        notes = [*self.data_set.notes, *self.split.notes]
        return [note for note in notes if note != NO_VALIDATION or not self.recipe.is_gradient_free]

    def folds(self, num_folds: int, *, classes: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the fold of each training example (N,). Raise DataError for fewer than two folds."""
        folds = assign_folds(self.split.train.group_keys, num_folds, seed=self.recipe.train.seed, classes=classes)
        if not folds.any():
            raise DataError("cross-validation needs at least two different texts or groups", self.recipe.data.train)
        return folds

    def protocol(self, model: ModelT) -> str:
        return self.data_set.protocol()

    def config(self) -> dict[str, Any]:
        return self.data_set.config(self.parts)

    def build_model(self) -> ModelT:
        model = super().build_model()
        self.inherited = self.data_set.inherit(model, self.parts)
        return model

    def data_lines(self) -> list[str]:
        return self.data_set.lines()


def prepare_examples(recipe: Recipe, *, processes: int = 1) -> str:
    """Read the labeled data of a recipe into the cache with several processes. Return a summary."""
    with use_processes(processes):
        job: Any = task_entry(recipe.task).job_class(recipe)
        job.build_model()
    return f"{job.data}; {'in the cache' if job.split.key else 'so small that each training reads them'}"


MAX_CARD_LABELS = 20
"""The maximum number of labels in the text of the card."""
CONFUSION = "confusion.png"
MAX_DRAWN_LABELS = 40
"""The maximum number of labels of a confusion matrix, which has the most frequent labels."""
MAX_NUMBERED_LABELS = 15
"""The maximum number of labels of a confusion matrix whose cells have numbers."""
MAX_NAME_CHARACTERS = 20


class LabelsJob(DataSetJob[ModelT, Any]):
    """The job of a model of labeled data."""

    support_name: ClassVar[str]
    """The name of the score that is the number of labeled units."""
    data_class: ClassVar[Callable[..., Any]]
    """The class of the data set; its arguments are the recipe and the run that is resumed."""
    parts: Any
    best_scores: Any = None
    """The scores of the best weights on the validation data."""

    @property
    @abstractmethod
    def score_columns(self) -> Mapping[str, tuple[str, str]]:
        """The scores on the card, with their titles and formats."""

    @property
    def unit(self) -> str:  # type: ignore[override]
        """The unit that has a label."""
        return self.data_set.unit

    @property
    def confusion(self) -> tuple[list[str], list[list[int]]] | None:
        """The labels and the confusion matrix of the validation data, whose rows are correct labels and whose columns
        are predicted labels; None if the task has no such matrix.
        """
        return None

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """Return a function that draws the confusion matrix of the validation data."""
        if (confusion := self.confusion) is None:
            return {}
        return {CONFUSION: lambda path: draw_confusion(*confusion, path, title=path.parent.name)}

    @property
    def notes(self) -> list[str]:
        """Remarks on the data, and on labels that are missing in the training or in the validation data."""
        notes = super().notes
        for name, data in (("validation", self.split.valid), ("test", self.split.test)):
            counts = self.label_counts(data) if data is not None else Counter[str]()
            if missing := sorted(counts.keys() - set(self.parts.labels.names)):
                items = pluralize(sum(counts[label] for label in missing), "item")
                notes.append(f"training has no {list_names(missing)}, the label of {items} of the {name} data")
        if self.split.valid is not None and not self.recipe.data.valid:
            counts, valid_counts = (self.label_counts(data) for data in (self.split.train, self.split.valid))
            missing = [f"{name} ({n:,} in training)" for name, n in counts.most_common() if not valid_counts[name]]
            if missing:
                notes.append(f"validation has no {list_names(missing[::-1])}: no score measures these labels")
        return notes

    def encode(self, data: Any) -> Any:
        return self.data_set.encode(data, self.parts)

    def label_counts(self, data: Any) -> Counter[str]:
        """Return the number of occurrences of each label in `data`, such as the training data."""
        return data.label_counts

    def about(self) -> str:
        names = self.parts.labels.names
        return f"of {len(names)} labels ({list_names(names, MAX_CARD_LABELS)})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        lines = score_table(scores, {**self.score_columns, self.support_name: (self.unit, ",")})
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]


def label_table(per_label: dict[str, dict[str, Any]]) -> list[str]:
    """Return the scores of each label as a table in Markdown; the label with the lowest F1 comes first."""
    lines = ["| label | precision | recall | F1 | in the data |", "|---|---|---|---|---|"]
    for label, score in sorted(per_label.items(), key=lambda item: (item[1]["f1"], item[0])):
        shares = " | ".join(f"{100 * score[key]:.1f}" for key in ("precision", "recall", "f1"))
        cell = label.replace("|", r"\|")
        lines.append(f"| {cell} | {shares} | {score['support']:,} |")
    return lines


def draw_confusion(labels: list[str], counts: list[list[int]], path: Path, *, title: str) -> None:
    """Draw a confusion matrix: rows are correct labels, columns are predicted labels, colors are shares of a row."""
    matrix = np.array(counts)
    rows = np.sort(np.argsort(-matrix.sum(1), kind="stable")[:MAX_DRAWN_LABELS])
    matrix, names = matrix[np.ix_(rows, rows)], distinct_names([labels[row] for row in rows], MAX_NAME_CHARACTERS)
    size = 2.4 + 0.42 * len(names)
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    with picture(path, (size + 1.2, size)) as figure:
        axes = figure.add_subplot()
        figure.colorbar(axes.imshow(shares, cmap="Blues", vmin=0, vmax=1), label="share of the correct label")
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted", ylabel="correct", title=title)
        if len(names) <= MAX_NUMBERED_LABELS:
            for row, column in np.ndindex(*matrix.shape):
                color = "white" if shares[row, column] > 0.5 else "#1f4e79"
                axes.text(column, row, f"{matrix[row, column]:,}", ha="center", va="center", color=color, fontsize=8)
