"""Texts with the answers of teachers, from which a student learns: a data set whose labels are distributions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_path, check_share, check_type
from ensue.data.division import divided
from ensue.data.examples import Document
from ensue.data.files import Location, one_location
from ensue.data.sentences.sentence import Sentence, SourceLines
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError, listed
from ensue.extensions.annotating.static_student import static_student
from ensue.library import checked_recipe, load
from ensue.library import train as train_student
from ensue.nn import viterbi_path
from ensue.outputs import check_outputs, write_text
from ensue.recipe import Recipe, read_recipe
from ensue.runs.reporter import Reporter
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.texts import document_source
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.data import best_tags, check_tags, labels_in, sentence_source
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.word_vectors.recipe import WordVectorsRecipe
from ensue.tasks.words.teacher import Shares, Told, read_answers, softened
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import convert

LEAST_SHARE = 1e-3
"""The probabilities of a word's tags that are left out of a file have together at most this."""
Numbers = NDArray[np.float64]


class Example(NamedTuple):
    """An item that a student reads: texts, or the words of a sentence, with their labels; of a pool without."""

    read: tuple[str, ...]
    labels: Sequence[str]
    source: Any
    """The document or sentence as teachers read it."""
    group: str = ""

    def error(self, message: str) -> DataError:
        """A DataError with its place in front."""
        source = self.source
        return source.error(message) if isinstance(source, Sentence) else DataError(message, source.path, source.line)


class Teacher(NamedTuple):
    """A teacher: names of its labels or tags, and for each example probabilities (N, K), one row a text or word."""

    names: Sequence[str]
    answers: Callable[[Sequence[Example]], Iterator[Numbers]]
    of: Told | Labels | None = None
    """The file, or the labels of a tagger."""

    @classmethod
    def told(cls, told: Told) -> Teacher:
        """A file of answers, by what is read. Raises DataError if it has no answer for an example."""
        names = sorted(told.names)

        def written(examples: Sequence[Example]) -> Iterator[Numbers]:
            for example in examples:
                if example.read not in told.means:
                    raise example.error(f"{told.path} has no answer for this text")
                rows = told.means[example.read]
                yield np.array([[shares.get(name, 0.0) for name in names] for shares in rows])

        return cls(names, written, told)


class TextLessons:
    """The lessons of students, by the recipe of one: texts, or pairs of texts, with a label each."""

    written: ClassVar[Mapping[str, Any]] = {
        "format": "json", "texts": [], "labels": "label", "separator": "", "joined": False, "header": "auto",
        "encoding": "utf-8",
    }  # fmt: skip
    """Values that say how its files are read, those of the recipe's table `[data]`."""
    drawn: ClassVar[bool] = True
    """Whether validation data are drawn at random; else they are the end."""

    def __init__(self, recipe: Any) -> None:
        self.recipe, self.data = recipe, recipe.data

    def source(self, location: str, *, like: Any = None) -> Any:
        """The labeled examples of a file, in the format of the training data `like`."""
        if like is not None:
            return document_source(self.data, location, like=like.layout)
        return document_source(self.data, location, group=self.data.group)

    def pooled(self, pool: str, *, is_told: bool) -> Iterable[Example]:
        """The examples of a pool, which have no labels; it may be a file of answers."""
        if is_told:
            return (Example(answer.texts, (), Document(answer.texts, path=pool)) for answer in read_answers(pool))
        data = self.data.model_copy(update={"format": "auto", "labels": ""})
        return self.examples(document_source(data, pool, is_labeled=False))

    def examples(self, source: Any) -> Iterator[Example]:
        """The labeled examples of a source."""
        return (Example(document.texts, document.labels, document, document.group) for document in source)

    def teacher(self, path: str, device: str) -> Teacher:
        """A run, or a file of answers. Raises EnsueError for one that cannot teach."""
        if Path(path).is_file():
            return Teacher.told(Told(path, lambda answer: answer.texts))
        pipeline = load(path, kind=ClassificationPipeline, device=device)
        if pipeline.labels.multiple:
            raise EnsueError(f"{path}: gives a text several labels; expected a teacher that gives one")

        def said(examples: Sequence[Example]) -> Iterator[Numbers]:
            for answer in pipeline.classify(example.source for example in examples):
                yield answer.probabilities.astype(np.float64)[None]

        return Teacher(pipeline.labels.names, said)

    def names(self, labeled: Sequence[Example], teachers: Mapping[str, Teacher]) -> Sequence[str]:
        """The names of what is learned. Raises EnsueError for teachers that do not go together."""
        names = sorted({name for teacher in teachers.values() for name in teacher.names})
        for example in labeled:
            if len(example.labels) > 1:
                raise example.error(_unknown(example.labels, names))
        return names

    def gold(self, example: Example) -> Sequence[str]:
        """The names of an example's labels."""
        return example.labels

    def best(self, shares: Numbers, names: Sequence[str]) -> Sequence[str]:
        """The most probable labels by the probabilities (N, K) of these names."""
        return (names[int(shares[0].argmax())],)

    def divided(self, labeled: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """The labeled examples for training, and for validation; if these are drawn, from each class."""
        kept = round(len(labeled) * (1 - self.data.valid_fraction))
        firsts = [tuple(example.labels[:1]) for example in labeled]
        numbers = {label: number for number, (label, _) in enumerate(Counter(firsts).most_common())}
        classes = np.array([numbers[label] for label in firsts], np.int64) if self.drawn else None
        sources = [example.group or example.read for example in labeled]
        division = divided(sources, kept, drawn=self.drawn, classes=classes)
        return [labeled[row] for row in division.train], [labeled[row] for row in division.valid]

    def line(self, example: Example, labels: Sequence[str], shares: Sequence[Shares]) -> dict[str, Any]:
        """The line of an example in a file, with the probabilities that are learned, if there are some."""
        texts = ["text"] if len(example.read) == 1 else ["text1", "text2"]
        row: dict[str, Any] = dict(zip(texts, example.read, strict=True))
        row["label"] = labels[0] if len(labels) == 1 else list(labels)
        if shares:
            row["probabilities"] = shares[0]
        if self.data.group:
            row["group"] = example.group or example.read[0]
        return row


class WordLessons(TextLessons):
    """Sentences with a label for each word, which is a row; what is learned are tags."""

    written: ClassVar[Mapping[str, Any]] = {
        "format": "json", "words": "tokens", "labels": "labels", "encoding": "utf-8",
    }  # fmt: skip
    drawn = False
    labels: Labels
    """The labels that teachers give, in the scheme of the training data."""

    def __init__(self, recipe: LabelingRecipe) -> None:
        super().__init__(recipe)
        if recipe.data.label_columns or recipe.data.nested:
            raise EnsueError("a student has one column of labels, whose spans do not overlap")
        self.documents: dict[tuple[str, int], int] = {}

    def source(self, location: str, *, like: Any = None) -> Any:
        return sentence_source(self.recipe, location, like=None if like is None else like.format)

    def pooled(self, pool: str, *, is_told: bool) -> Iterable[Example]:
        found: Iterable[Sentence] = SentenceSource(pool, encoding=self.data.encoding, splitter=self.data.splitter)
        if is_told:
            answers = read_answers(pool, of_words=True)
            found = (Sentence(answer.texts, source=SourceLines(pool)) for answer in answers)
        return (Example(sentence.words, (), sentence) for sentence in found if sentence.words)

    def examples(self, source: Any) -> Iterator[Example]:
        column, group = self.data.label_column or None, self.data.group
        for sentence in source:
            if sentence.words:
                of = source.format.group(sentence, group) if group else ""
                yield Example(sentence.words, source.format.labels(sentence, column), sentence, of)

    def teacher(self, path: str, device: str) -> Teacher:
        if Path(path).is_file():
            return Teacher.told(Told(path, lambda answer: answer.texts, of_words=True))
        pipeline = load(path, kind=LabelingPipeline, device=device)
        if not isinstance(pipeline.labels, Labels):
            raise EnsueError(f"{path}: has several heads; expected a teacher of one column of labels")

        def said(examples: Sequence[Example]) -> Iterator[Numbers]:
            for answer in pipeline.label((example.source for example in examples), confidence=True):
                assert answer.posterior is not None
                yield answer.posterior.marginals.astype(np.float64)

        return Teacher(pipeline.labels.symbols, said, pipeline.labels)

    def names(self, labeled: Sequence[Example], teachers: Mapping[str, Teacher]) -> Sequence[str]:
        tags = {name for teacher in teachers.values() for name in teacher.names}
        detector, scheme = SchemeDetector(), None
        for example in labeled:
            detector.feed(example.labels, example.source.line)
        for teacher in () if labeled else teachers.values():
            scheme = scheme or (teacher.of.scheme if isinstance(teacher.of, Labels) else None)
            for rows in teacher.of.means.values() if isinstance(teacher.of, Told) else ():
                detector.feed(best_tags(rows))
        scheme = scheme or detector.result(self.data.train or None)
        written = tags if scheme is None else {name for tag in tags for name in convert([tag], scheme)}
        self.labels = labels = labels_in(self.recipe.head.scheme, sorted(written), scheme)
        for path, teacher in teachers.items():
            if isinstance(teacher.of, Told):
                check_tags(teacher.of, labels)
            elif isinstance(teacher.of, Labels) and teacher.of.tag_scheme != labels.tag_scheme:
                found, wanted = (one.tag_scheme or "plain labels" for one in (teacher.of, labels))
                raise EnsueError(f"{path}: gives {found}, the student learns {wanted} (head.scheme)")
        return labels.symbols

    def gold(self, example: Example) -> Sequence[str]:
        scheme = self.labels.tag_scheme
        return convert(example.labels, scheme) if scheme else example.labels

    def best(self, shares: Numbers, names: Sequence[str]) -> Sequence[str]:
        legal = self.labels.legal()
        path = shares.argmax(1)
        if legal is not None:
            with np.errstate(divide="ignore"):
                path = viterbi_path(np.log(np.maximum(shares, 1e-12)), *(np.log(part.astype(float)) for part in legal))
        return self.labels.decode(path.tolist())

    def line(self, example: Example, labels: Sequence[str], shares: Sequence[Shares]) -> dict[str, Any]:
        sentence = example.source
        row: dict[str, Any] = {name: list(sentence.column(name)) for name in self.recipe.features.columns}
        row |= {"tokens": list(example.read), "labels": list(labels)}
        if shares:
            least = LEAST_SHARE / len(self.labels)
            row["probabilities"] = [{tag: share for tag, share in of.items() if share >= least} for of in shares]
        if self.data.group:
            row["group"] = example.group or " ".join(example.read)
        if self.data.context_words and sentence.document is not None:
            place = (sentence.source.name, sentence.document)
            row["document"] = self.documents.setdefault(place, len(self.documents))
        return row


LESSONS: Mapping[str, type[TextLessons]] = {"classification": TextLessons, "labeling": WordLessons}
"""By the name of the task."""


def student_of(teachers: Sequence[str], recipe: Recipe, out: Path, **options: Any) -> Recipe | None:
    """The recipe by which a student is trained, as `taught` gives it; None for word vectors, whose run is made here."""
    if isinstance(recipe, WordVectorsRecipe):
        static_student(teachers, recipe, out, **options)
        return None
    return taught(teachers, recipe, out, **options)


def taught(
    teachers: Sequence[str], recipe: Recipe, out: Path, *, pool: str = "", gold: float = 0.5, temperature: float = 1.0,
    overwrite: bool = False, device: str = "auto", reporter: Reporter | None = None,
) -> Recipe:  # fmt: skip
    """The recipe of a student of these teachers, whose data are written beside its run `out`.

    A teacher is a run, or a file of answers. The student learns the mean of what they say, at this temperature, of the
    recipe's training texts and of the others of `pool`, which have no labels; it may be a teacher's file. The label of
    a text or word counts `gold`, and the teachers the rest. Raises EnsueError for a recipe or a teacher that is not of
    one label a text or word, for texts and labels that a teacher does not know, and for files that would be lost.
    """
    if len({*teachers}) < len(teachers):
        raise EnsueError(f"{max(teachers, key=teachers.count)}: is named twice; expected different teachers")
    if not teachers:
        raise EnsueError("expected teachers and the recipe of the student: ensue distill TEACHER ... RECIPE")
    if recipe.task not in LESSONS:
        raise EnsueError(f"a student is a classifier or tagger of texts; the recipe is that of a {recipe.what}")
    lessons, reporter = LESSONS[recipe.task](recipe), reporter or Reporter()
    data = lessons.data
    possible = [beside(out, f"taught-{part}") for part in ("train", "valid", "test")]
    inputs = [*teachers, *recipe.inputs, pool]
    check_outputs(inputs, files=possible, folders=[out], overwrite=overwrite, are_new=True)
    labeled = lessons.source(data.train) if data.train else None
    gold_examples = [] if labeled is None else list(lessons.examples(labeled))
    is_divided = bool(pool and gold_examples and not data.valid)
    examples, held_out = lessons.divided(gold_examples) if is_divided else (gold_examples[:], [])
    parts = ["train", *(part for part in ("valid", "test") if getattr(data, part) or (part == "valid" and held_out))]
    files = {part: beside(out, f"taught-{part}") for part in parts}
    if pool:
        there = {example.read for example in gold_examples}
        pooled = lessons.pooled(pool, is_told=pool in teachers)
        examples += [example for example in pooled if example.read not in there]
    if not examples:
        raise EnsueError("no text to learn from: --train names texts with labels, --pool texts without")
    asked = {teacher: lessons.teacher(teacher, device) for teacher in teachers}
    names = lessons.names(gold_examples, asked)
    for example in gold_examples:
        if wrong := sorted({*lessons.gold(example)} - {*names}):
            raise example.error(_unknown(wrong, names))
    given = [part for part in parts[1:] if getattr(data, part)]
    rows = {part: lessons.examples(lessons.source(getattr(data, part), like=labeled)) for part in given}
    if held_out:
        rows["valid"] = iter(held_out)
        reporter.noted(
            f"validation: {len(held_out):,} of {len(gold_examples):,} texts with labels; they are not learned"
        )
    elif pool and not data.valid and data.valid_fraction:
        reporter.noted("validation with the teachers' labels, since too few texts have labels; --valid names others")
    answers = []
    for teacher, found in asked.items():
        if not Path(teacher).is_file():
            reporter.noted(f"{teacher} reads {len(examples):,} texts")
        answers.append(_aligned(found, examples, names))
    means = (softened(np.array(of_each), temperature).mean(0) for of_each in zip(*answers, strict=True))
    lines = {"train": _mixed(lessons, examples, means, names, gold)}
    lines |= {part: (lessons.line(each, each.labels, ()) for each in of) for part, of in rows.items()}
    whole = {part: [json.dumps(row, ensure_ascii=False) + "\n" for row in of] for part, of in lines.items()}
    for part, path in files.items():
        write_lines(path, whole[part])
    group = {"data.group": "group"} if data.group else {}
    paths = {f"data.{part}": str(path) for part, path in files.items()}
    own = {f"data.{key}": value for key, value in lessons.written.items()}
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


def _unknown(labels: Sequence[str], names: Sequence[str]) -> str:
    return f"the label {listed(labels)}; the teachers give one of {listed(names)}"


def _aligned(teacher: Teacher, examples: Sequence[Example], names: Sequence[str]) -> Iterator[Numbers]:
    """A teacher's answers about each example, for these names in their order."""
    places = [names.index(name) for name in teacher.names]
    for found in teacher.answers(examples):
        wide = np.zeros((len(found), len(names)))
        wide[:, places] = found
        yield wide


def _mixed(
    lessons: TextLessons, examples: Sequence[Example], means: Iterable[Numbers], names: Sequence[str], gold: float
) -> Iterator[dict[str, Any]]:
    """Yield the line of each example: its labels, or else the teachers' best ones, and the target probabilities."""
    for example, mean in zip(examples, means, strict=True):
        labels, shares = example.labels, mean
        if labels:
            own = np.array(names) == np.array(lessons.gold(example))[:, None]
            shares = (1 - gold) * shares + gold * own
        rows = [{name: float(f"{share:.6g}") for name, share in zip(names, of, strict=True)} for of in shares.tolist()]
        yield lessons.line(example, labels or lessons.best(shares, names), rows)


def distill(
    teachers: str | Path | Sequence[str | Path], recipe: str | Path | Recipe, *, out: str | Path,
    train: Location = "", pool: Location = "", valid: Location = "", test: Location = "", gold: float = 0.5,
    temperature: float = 1.0, settings: Mapping[str, Any] | Sequence[str] = (), overwrite: bool = False,
    device: str = "auto", threads: int | None = None, reporter: Reporter | None = None,
) -> Pipeline:  # fmt: skip
    """Trains a student of these teachers (runs, or files of answers), and returns it, as `ensue distill` does.

    `train` are texts with labels, `pool` texts without; one of them is enough. The label of a text counts `gold` (0 to
    1), the teachers the rest, and their logits are divided by `temperature`. The data of the student are written beside
    `out`. Word vectors have one teacher, and the words of one text. Other arguments are those of `ensue.train`. Raises
    an `EnsueError` of one line for mistakes of the caller.
    """
    several = [teachers] if isinstance(teachers, str | Path) else list(teachers)
    for path in several:
        check_path("a teacher", path)
    check_path("out", out)
    check_share("gold", gold)
    check_type("temperature", temperature, (int, float), "a number")
    if not 0.01 <= temperature <= 100:
        raise EnsueError(f"temperature must be 0.01 to 100, found {temperature}")
    student = student_of(
        list(map(str, several)), checked_recipe(recipe, settings, train=train, valid=valid, test=test), Path(out),
        pool=one_location(pool, "pool"), gold=gold, temperature=temperature, overwrite=overwrite, device=device,
        reporter=reporter,
    )  # fmt: skip
    if student is None:
        return load(out, device=device)
    return train_student(student, out=out, overwrite=overwrite, device=device, threads=threads, reporter=reporter)
