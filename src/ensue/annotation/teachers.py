"""Texts with the answers of teachers, from which a student learns: a data set whose labels are distributions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ensue.data.documents import Document
from ensue.errors import DataError, EnsueError, listed
from ensue.library import load
from ensue.recipe import Recipe, read_recipe
from ensue.runs.reporter import Reporter
from ensue.runs.weights import write_text
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationData, ClassificationRecipe
from ensue.tasks.classification.teacher import read_answers, softened
from ensue.tasks.classification.texts import document_source

WRITTEN = {"format": "json", "texts": [], "labels": "label", "separator": "", "joined": False, "header": "auto",
           "encoding": "utf-8"}  # fmt: skip
"""How the written files are read; a text is `text`, those of a pair are `text1` and `text2`."""

Shares = Mapping[str, float]
Row = tuple[Document, Sequence[str], Shares]
"""A document, its labels, and the probabilities that are learned, if there are some."""


def taught(
    teachers: Sequence[str],
    recipe: Recipe,
    out: Path,
    *,
    pool: str = "",
    gold: float = 0.5,
    temperature: float = 1.0,
    overwrite: bool = False,
    device: str = "auto",
    reporter: Reporter | None = None,
) -> Recipe:
    """The recipe of a student of these teachers, whose data are written beside its run `out`.

    A teacher is a run, or a file of answers. The student learns the mean of what they say, at this temperature, of the
    recipe's training texts and of the others of `pool`, which have no labels; it may be a teacher's file. The label of
    a training text counts `gold`, and the teachers the rest. Raises EnsueError for a recipe or a teacher that is not of
    one label a text, for texts and labels that a teacher does not know, and for files that would be lost.
    """
    if not teachers:
        raise EnsueError("expected teachers and the recipe of the student: ensue distill TEACHER ... RECIPE")
    if not isinstance(recipe, ClassificationRecipe):
        raise EnsueError(f"a student is a classifier of texts; the recipe is that of a {recipe.what}")
    data, reporter = recipe.data, reporter or Reporter()
    parts = ["train", *(part for part in ("valid", "test") if getattr(data, part))]
    files = {part: beside(out, f"taught-{part}") for part in parts}
    check_lost([*teachers, data.train, data.valid, data.test, pool], out, list(files.values()), overwrite=overwrite)
    labeled = document_source(data, data.train, group=data.group) if data.train else None
    documents = [] if labeled is None else list(labeled)
    if pool:
        there = {document.texts for document in documents}
        documents += [document for document in _pooled(pool, data, teachers) if document.texts not in there]
    if not documents:
        raise EnsueError("no text to learn from: --train names texts with labels, --pool texts without")
    asked = {teacher: _teacher(teacher, device) for teacher in teachers}
    names = sorted(set().union(*(known for known, _ in asked.values())))
    for document in documents:
        if len(document.labels) > 1 or not set(document.labels) <= set(names):
            found = f"the label {listed(document.labels)}; the teachers give one of {listed(names)}"
            raise DataError(found, document.path, document.line)
    like, rows = None if labeled is None else labeled.layout, dict[str, Iterator[Row]]()
    for part in parts[1:]:
        source = document_source(data, getattr(data, part), like=like)
        rows[part] = ((document, document.labels, {}) for document in source)
    told = []
    for teacher, (_, answers) in asked.items():
        if not Path(teacher).is_file():
            reporter.noted(f"{teacher} reads {len(documents):,} texts")
        told.append(list(answers(documents)))
    rows["train"] = _mixed(documents, told, names, gold=gold, temperature=temperature)
    for part, path in files.items():
        write_lines(path, _lines(rows[part], is_grouped=bool(data.group)))
    group = {"data.group": "group"} if data.group else {}
    paths = {f"data.{part}": str(path) for part, path in files.items()}
    own = {f"data.{key}": value for key, value in WRITTEN.items()}
    return read_recipe(recipe, {**own, **group, **paths, "data.teacher": str(files["train"])})


def beside(out: Path, name: str) -> Path:
    """The file with data of a run, beside it. Raises EnsueError for a place without a name."""
    if not out.name:
        raise EnsueError(f"{out}: has no name; choose another --out")
    return out.with_name(f"{out.name}.{name}.jsonl")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a file, and the folder that it is in."""
    content = "".join(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)


def check_lost(given: Sequence[str], out: Path, files: Sequence[Path], *, overwrite: bool) -> None:
    """Raises EnsueError if the run or a file would be written over, or over or into what is read."""
    own = [path.resolve() for path in (out, *files)]
    for name in filter(None, given):
        path = Path(name).resolve()
        if any(one in (path, *path.parents) for one in own):
            raise EnsueError(f"{name}: would be written over; choose another --out")
        if path in own[0].parents:
            raise EnsueError(f"{name}: the run would be written into it; choose another --out")
    if not overwrite and (there := next((path for path in (out, *files) if path.exists()), None)):
        raise EnsueError(f"{there}: is there already; --overwrite replaces it")


def _pooled(pool: str, data: ClassificationData, teachers: Sequence[str]) -> Iterable[Document]:
    if pool in teachers:
        return (Document(answer.texts, path=pool) for answer in read_answers(pool))
    return document_source(data.model_copy(update={"format": "auto", "labels": ""}), pool, is_labeled=False)


def _teacher(teacher: str, device: str) -> tuple[set[str], Callable[[Sequence[Document]], Iterator[Shares]]]:
    """The labels that a teacher gives, and what it says of each document: a file is searched, a run is asked."""
    if Path(teacher).is_file():
        known = {answer.texts: answer.probabilities for answer in read_answers(teacher)}

        def written(documents: Sequence[Document]) -> Iterator[Shares]:
            for document in documents:
                if document.texts not in known:
                    raise DataError(f"{teacher} has no answer for this text", document.path, document.line)
                yield known[document.texts]

        return set().union(*known.values()), written
    pipeline = load(teacher, kind=ClassificationPipeline, device=device)
    names = pipeline.labels.names
    if pipeline.labels.multiple:
        raise EnsueError(f"{teacher}: gives a text several labels; expected a teacher that gives one")

    def said(documents: Sequence[Document]) -> Iterator[Shares]:
        for answer in pipeline.classify(documents):
            yield dict(zip(names, answer.probabilities.astype(np.float64).tolist(), strict=True))

    return set(names), said


def _mixed(
    documents: Sequence[Document],
    told: Sequence[Sequence[Shares]],
    names: Sequence[str],
    *,
    gold: float,
    temperature: float,
) -> Iterator[Row]:
    """Each document with its label, or the teachers' most probable one, and the probabilities that are learned."""
    for document, *answers in zip(documents, *told, strict=True):
        table = np.array([[answer.get(name, 0.0) for name in names] for answer in answers])
        shares, labels = softened(table, temperature).mean(0), document.labels
        if labels:
            shares = (1 - gold) * shares + gold * (np.array(names) == labels[0])
        rounded = {name: float(f"{share:.6g}") for name, share in zip(names, shares.tolist(), strict=True)}
        yield document, labels or (names[int(shares.argmax())],), rounded


def _lines(rows: Iterable[tuple[Document, Sequence[str], Mapping[str, float]]], *, is_grouped: bool) -> Iterator[str]:
    """A JSON line for each document."""
    for document, labels, shares in rows:
        names = ["text"] if len(document.texts) == 1 else ["text1", "text2"]
        row: dict[str, Any] = dict(zip(names, document.texts, strict=True))
        row["label"] = labels[0] if len(labels) == 1 else list(labels)
        if shares:
            row["probabilities"] = shares
        if is_grouped:
            row["group"] = document.group or document.texts[0]
        yield json.dumps(row, ensure_ascii=False) + "\n"
