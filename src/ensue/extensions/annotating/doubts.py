"""Detection of labels that are likely wrong, by cross-validation.

The examples are divided into folds. For each fold, a model that is trained on the other folds predicts the
probabilities of the labels. Examples are ranked by self-confidence (Northcutt et al. 2021, "Confident learning").
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ensue.data.detection.kind import detect
from ensue.data.division import assign_folds
from ensue.data.files import Data, as_location
from ensue.errors import DataError, EnsueError, OverlapError, RecipeError, check_integer
from ensue.extensions.annotating.examples import EXAMPLES, Doubt, Examples
from ensue.inspection.page import Article, Section, content, page
from ensue.library import load
from ensue.outputs import row_lines
from ensue.recipe import Recipe, read_recipe
from ensue.runs.reporter import Reporter
from ensue.runs.weights import write_text
from ensue.tasks import task_entry
from ensue.training.run import train_run

QUICK_RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sentences": ("tag-lstm-crf", {"train.epochs": 5, "train.validations": 5}),
    "texts": ("classify-bag", {}),
}
"""The default recipe for sentences and for texts, with settings that train it in about a minute."""
QUICK_TAGGER_WORDS, MAX_QUICK_EPOCHS = 125_000, 25
"""A quick tagger is trained for enough epochs to read this number of words, up to a maximum of epochs."""
MAX_PAGE_DOUBTS, MAX_LINEAR_TEXTS = 1_000, 2_000
"""The maximum numbers of doubts on a page, and of texts for which classify-linear is the default recipe."""


@dataclass(frozen=True)
class Doubts:
    """The doubts of a file, ranked by the probability of the labels, lowest first.

    The text of the file is unchanged[0] + old[0] + unchanged[1] + old[1] + … + unchanged[-1]: `old[n]` are the
    characters that the doubt `ranked[ranks[n]]` would replace.
    """

    location: str
    unit: str
    num_labels: int
    ranked: Sequence[Doubt]
    unchanged: Sequence[str]
    ranks: Sequence[int]
    old: Sequence[str]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the names of the columns of a table, and then its rows."""
        yield "place", "probability", "given", "proposed", "text"
        for doubt in self.ranked:
            labels = " ".join(doubt.given), " ".join(doubt.proposed)
            place = f"{doubt.path}:{doubt.line}"
            yield place, f"{doubt.probability:.4f}", *labels, " ".join(doubt.text[doubt.start : doubt.end].split())

    def lines(self, format: str) -> Iterator[str]:
        """Return the lines of a file with all doubts: "jsonl", "csv" or "tsv"."""
        header, *rows = self.rows()
        tables = (dict(zip(header, row, strict=True)) for row in rows)
        return row_lines(format, (doubt.as_json() for doubt in self.ranked) if format == "jsonl" else tables, header)

    def repaired(self, accepted: Sequence[bool]) -> str:
        """Return the text of the file after the accepted doubts are applied; the script of the page does the same."""
        text = []
        for unchanged, rank, old in zip(self.unchanged, self.ranks, self.old, strict=False):
            text += [unchanged, self.ranked[rank].edit.new if accepted[rank] else old]
        return "".join([*text, self.unchanged[-1]])

    def page(self) -> str:
        """Return the HTML document on which a person accepts or rejects doubts, and saves the corrected file."""
        name = Path(self.location).name.removesuffix(".xz").removesuffix(".gz") or "labels"
        edits = [[rank, old, self.ranked[rank].edit.new] for rank, old in zip(self.ranks, self.old, strict=True)]
        script_data = {"name": name, "parts": self.unchanged, "edits": edits}
        facts = {
            "file": self.location, self.unit: f"{self.num_labels:,}", "doubts": f"{len(self.ranked):,}",
            "on this page": f"the first {min(MAX_PAGE_DOUBTS, len(self.ranked)):,}",
        }  # fmt: skip
        values = {"doubts": self.ranked[:MAX_PAGE_DOUBTS], "numbers": script_data}
        section = Section("Doubts", "extensions/annotating/doubts.html", values)
        return page(f"Doubts of {self.location}", content(f"Doubts of {self.location}", [Article(facts, [section])]))


def doubt(
    location: Data, *, recipe: str = "", settings: Mapping[str, Any] | Sequence[str] = (), folds: int = 4,
    seed: int = 0, device: str = "auto", threads: int | None = None, reporter: Reporter | None = None,
) -> Doubts:  # fmt: skip
    """Return labels that are likely wrong: models that were not trained on these texts predict other labels.

    Args:
        location: Labeled sentences or texts: a path, a list of paths, or Python objects as for `ensue.train`.
        recipe: The recipe of the models; default: a quick recipe for the data.
        settings: Changes of the recipe.
        folds: The number of models. Each model is trained on the examples of all folds but one.
        seed: The seed of the folds and of training.
        device: The device, as for `ensue.load`.
        threads: CPU threads; by default the fastest number on this machine.
        reporter: Receives a note for each fold.

    Raises:
        EnsueError: The data have no labels of texts or words, or fewer different examples than folds.
    """
    check_integer("folds", folds, 2, 1000)
    check_integer("seed", seed, 0, 2**32 - 1)
    reporter = reporter or Reporter()
    location = as_location(location)
    chosen_recipe = _choose_recipe(location, recipe, settings)
    entry = task_entry(chosen_recipe.task)
    if entry.pipeline_class not in EXAMPLES:
        raise EnsueError(f"found the recipe of a {entry.what}; expected the recipe of a classifier or tagger")
    examples: Examples
    try:
        examples = EXAMPLES[entry.pipeline_class](chosen_recipe)
    except OverlapError:
        if recipe:
            raise
        chosen_recipe = read_recipe(chosen_recipe, {"data.nested": 3})  # up to three layers of overlapping spans
        examples = EXAMPLES[entry.pipeline_class](chosen_recipe)
    are_few_texts = examples.unit == "texts" and examples.num_labels <= MAX_LINEAR_TEXTS
    if not recipe and are_few_texts and "text2" not in examples.row(0):
        with suppress(RecipeError):  # `settings` may have keys that only the current recipe has
            chosen_recipe = read_recipe("classify-linear", settings, train=location)
    if not recipe and examples.unit == "words" and chosen_recipe.train.epochs is not None:
        epochs = min(MAX_QUICK_EPOCHS, max(chosen_recipe.train.epochs, -(-QUICK_TAGGER_WORDS // examples.num_labels)))
        chosen_recipe = read_recipe(read_recipe(chosen_recipe, {"train.epochs": epochs}), settings)
    if (count := len(set(examples.keys))) < folds:
        raise DataError(f"{count} distinct examples for {folds} folds; expected one or more for each fold", location)
    doubts: list[tuple[int, Doubt]] = []
    fold_of = assign_folds(examples.keys, folds, seed=seed)  # equal texts are in the same fold
    with TemporaryDirectory() as name:
        for fold in range(folds):
            folder = Path(name)
            rows = (json.dumps(examples.row(int(n)), ensure_ascii=False) for n in np.flatnonzero(fold_of != fold))
            write_text(folder / "train.jsonl", "\n".join(rows) + "\n")
            data = {"data.train": str(folder / "train.jsonl"), "data.format": "json", "data.encoding": "utf-8"}
            empty = {"data.valid": "", "data.test": "", "data.group": ""}
            fold_recipe = read_recipe(chosen_recipe, {**data, **empty, **examples.settings, "train.seed": seed})
            reporter.noted(f"fold {fold + 1} of {folds}: {np.count_nonzero(fold_of != fold):,} training examples")
            try:
                outcome = train_run(fold_recipe, folder / f"{fold}", device=device, threads=threads)
            except DataError as error:
                raise DataError(f"fold {fold + 1} of {folds}: {error.message}", location) from None
            if outcome.reason == "interrupted":
                raise KeyboardInterrupt
            held_out = np.flatnonzero(fold_of == fold).tolist()
            doubts += examples.doubts(load(folder / f"{fold}", device=device), held_out)
    return rank_doubts(location, examples, doubts)


def _choose_recipe(location: str, recipe: str, settings: Mapping[str, Any] | Sequence[str]) -> Recipe:
    if recipe:
        return read_recipe(recipe, settings, train=location)
    errors: dict[str, EnsueError] = {}
    actual = ""
    for kind, (name, quick) in QUICK_RECIPES.items():
        try:
            chosen_recipe = read_recipe(read_recipe(name, quick), settings, train=location)
        except RecipeError as error:  # `settings` may be for the other recipe
            errors[kind] = error
            continue
        data: Any = chosen_recipe.data
        words = ",".join(getattr(data, "texts", ())) or getattr(data, "words", "")
        labels, format = data.labels if isinstance(data.labels, str) else "", data.format.replace("auto", "")
        actual = detect(location, format=format, words=words, labels=labels, encoding=data.encoding).kind
        if actual == kind:
            return chosen_recipe
    if problem := errors.get(actual) or (None if actual else errors["texts"]):
        raise problem
    raise EnsueError(f"{location}: read as {actual}; expected labeled sentences or texts; `ensue data` shows a report")


def rank_doubts(location: str, examples: Examples, doubts: list[tuple[int, Doubt]]) -> Doubts:
    """Return the doubts of a file, ordered by probability. `doubts` has pairs (index of the example, doubt)."""
    order = sorted(range(len(doubts)), key=lambda row: (doubts[row][1].probability, doubts[row][0]))
    rank_of = {row: rank for rank, row in enumerate(order)}
    in_file = sorted(range(len(doubts)), key=lambda row: (doubts[row][0], doubts[row][1].edit.start))
    starts = np.cumsum([0, *map(len, examples.texts)])
    text, unchanged, old, end = "".join(examples.texts), [], [], 0
    for row in in_file:
        number, edit = doubts[row][0], doubts[row][1].edit
        start = int(starts[number]) + edit.start
        unchanged.append(text[end:start])
        end = int(starts[number]) + edit.end
        old.append(text[start:end])
    unchanged.append(text[end:])
    by_rank, ranks = [doubts[row][1] for row in order], [rank_of[row] for row in in_file]
    return Doubts(location, examples.unit, examples.num_labels, by_rank, unchanged, ranks, old)
