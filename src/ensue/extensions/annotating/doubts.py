"""Labels that are likely wrong: those that models which have not seen them find improbable.

The examples are divided into folds. For each fold a model is trained on the others, and says how probable the labels
of the fold are. Source: Northcutt et al. 2021, "Confident learning"; examples are ranked by self-confidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_whole
from ensue.data.detection.kind import take
from ensue.data.files import Location, one_location
from ensue.errors import DataError, EnsueError
from ensue.extensions.annotating.examples import EXAMPLES, Doubt, Examples
from ensue.inspection.page import Part, Section, content, page
from ensue.library import load
from ensue.recipe import Recipe, read_recipe
from ensue.runs.reporter import Reporter
from ensue.runs.weights import write_text
from ensue.tasks import task_entry
from ensue.training.run import train_run

QUICK: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sentences": ("tag-lstm-crf", {"train.epochs": 5, "train.validations": 5}),
    "texts": ("classify-bag", {}),
}
"""For each kind of data a recipe that is trained in a minute or so, with what makes it quick."""
SHOWN = 1_000
"""The most doubts on a page."""


@dataclass(frozen=True)
class Doubts:
    """The doubts of a file, the most doubtful first. `parts` are the text of the file, and between two of them stand
    the characters that a doubt would change, in the order `places` of the doubts in the file.
    """

    location: str
    unit: str
    num_labels: int
    ranked: Sequence[Doubt]
    parts: Sequence[str]
    places: Sequence[int]
    old: Sequence[str]

    def json_lines(self) -> Iterator[str]:
        """A JSON object for each doubt."""
        return (json.dumps(doubt.as_json(), ensure_ascii=False) + "\n" for doubt in self.ranked)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The rows of a table: file and line, the probability of what is given, this, what is proposed, the text."""
        yield "place", "probability", "given", "proposed", "text"
        for doubt in self.ranked:
            labels = " ".join(doubt.given), " ".join(doubt.proposed)
            place = f"{doubt.path}:{doubt.line}"
            yield place, f"{doubt.probability:.4f}", *labels, " ".join(doubt.text[doubt.start : doubt.end].split())

    def table_lines(self) -> Iterator[str]:
        """The rows as lines, with tabs between columns."""
        return ("\t".join(row) + "\n" for row in self.rows())

    def repaired(self, accepted: Sequence[bool]) -> str:
        """The text of the file, in which the doubts that are accepted have changed; the page does the same."""
        found = []
        for part, place, old in zip(self.parts, self.places, self.old, strict=False):
            found += [part, self.ranked[place].edit.new if accepted[place] else old]
        return "".join([*found, self.parts[-1]])

    def page(self) -> str:
        """The document on which a person accepts or keeps, and saves the repaired file."""
        name = Path(self.location).name.removesuffix(".xz").removesuffix(".gz") or "labels"
        edits = [[place, old, self.ranked[place].edit.new] for place, old in zip(self.places, self.old, strict=True)]
        numbers = {"name": name, "parts": self.parts, "edits": edits}
        facts = {
            "file": self.location,
            self.unit: f"{self.num_labels:,}",
            "doubts": f"{len(self.ranked):,}",
            "on this page": f"the first {min(SHOWN, len(self.ranked)):,}",
        }
        section = Section(
            "Doubts", "extensions/annotating/doubts.html", {"doubts": self.ranked[:SHOWN], "numbers": numbers}
        )
        return page(f"Doubts of {self.location}", content(f"Doubts of {self.location}", [Part(facts, [section])]))


def doubt(
    location: Location,
    *,
    recipe: str = "",
    settings: Sequence[str] = (),
    folds: int = 4,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Doubts:
    """The labels of a file of sentences or texts that are likely wrong.

    `recipe` is that of the models; without one it follows from the data. Raises EnsueError for data without labels, for
    a recipe whose labels cannot be doubted, and for fewer examples than folds.
    """
    check_whole("folds", folds, 2, 1000)
    check_whole("seed", seed, 0, 2**32 - 1)
    reporter = reporter or Reporter()
    location = one_location(location)
    chosen = _recipe(location, recipe, settings)
    entry = task_entry(chosen.task)
    if entry.pipeline_class not in EXAMPLES:
        raise EnsueError(f"doubt is for classifiers and taggers; the recipe is that of a {entry.what}")
    examples: Examples = EXAMPLES[entry.pipeline_class](chosen)
    if len(set(examples.keys)) < folds:
        raise DataError(f"{len(set(examples.keys))} different examples for {folds} folds", location)
    found: list[tuple[int, Doubt]] = []
    fold_of = _folds(examples.keys, folds, seed)
    with TemporaryDirectory() as name:
        for fold in range(folds):
            folder = Path(name)
            rows = (json.dumps(examples.row(int(n)), ensure_ascii=False) for n in np.flatnonzero(fold_of != fold))
            write_text(folder / "train.jsonl", "\n".join(rows) + "\n")
            data = {"data.train": str(folder / "train.jsonl"), "data.format": "json", "data.encoding": "utf-8"}
            none = {"data.valid": "", "data.test": "", "data.group": ""}
            of_fold = read_recipe(chosen, {**data, **none, **examples.settings, "train.seed": seed})
            reporter.noted(f"fold {fold + 1} of {folds}: {np.count_nonzero(fold_of != fold):,} examples to learn from")
            outcome = train_run(of_fold, folder / f"{fold}", device=device, threads=threads)
            if outcome.reason == "interrupted":
                raise KeyboardInterrupt
            numbers = np.flatnonzero(fold_of == fold).tolist()
            found += examples.doubts(load(folder / f"{fold}", device=device), numbers)
    return ranked(location, examples, found)


def _recipe(location: str, recipe: str, settings: Sequence[str]) -> Recipe:
    if recipe:
        return read_recipe(recipe, settings, train=location)
    kind = take(location).kind
    if kind not in QUICK:
        raise EnsueError(
            f"{location}: read as {kind}; labels of sentences or of texts are doubted (ensue data shows it)"
        )
    name, quick = QUICK[kind]
    return read_recipe(read_recipe(name, quick), settings, train=location)


def _folds(keys: Sequence[Any], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each example; what says the same is in one fold, so that no model has seen it."""
    numbers: dict[Any, int] = {}
    key_of = [numbers.setdefault(key, len(numbers)) for key in keys]
    drawn = np.random.default_rng(seed).permutation(len(numbers)) % folds
    return np.array([drawn[key] for key in key_of], np.int64)


def ranked(location: str, examples: Examples, found: list[tuple[int, Doubt]]) -> Doubts:
    """The doubts of a file, each with the number of its example, in order of probability."""
    order = sorted(range(len(found)), key=lambda place: (found[place][1].probability, found[place][0]))
    rank_of = {place: rank for rank, place in enumerate(order)}
    in_file = sorted(range(len(found)), key=lambda place: (found[place][0], found[place][1].edit.start))
    parts, old, open_part, done, at = [], [], [], 0, 0
    for place in in_file:
        number, edit = found[place][0], found[place][1].edit
        while done < number:
            open_part.append(examples.pieces[done][at:])
            done, at = done + 1, 0
        open_part.append(examples.pieces[number][at : edit.start])
        parts.append("".join(open_part))
        old.append(examples.pieces[number][edit.start : edit.end])
        open_part, at = [], edit.end
    parts.append("".join([*open_part, examples.pieces[done][at:], *examples.pieces[done + 1 :]]))
    ranked = [found[place][1] for place in order]
    return Doubts(
        location, examples.unit, examples.num_labels, ranked, parts, [rank_of[place] for place in in_file], old
    )
