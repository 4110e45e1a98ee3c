"""Distillation: a student is trained on the label distributions that its teachers assign to texts or words.

Static word vectors are distilled from a sentence encoder, which embeds single words. Sources: Hinton et al. 2015,
"Distilling the Knowledge in a Neural Network"; Tulkens & van Dongen 2024, "Model2Vec" (principal components of word
vectors); Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings" (weights by frequency).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ensue.data.compact_texts import Texts
from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.division import split_rows
from ensue.data.examples import Document
from ensue.data.files import Data, as_location
from ensue.data.sentences.sentence import Sentence, SourceText
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError, RecipeError, check_fraction, check_path, check_type, list_names
from ensue.extensions.word_vectors.examples import LINE_END
from ensue.extensions.word_vectors.model import WordVectorParts
from ensue.extensions.word_vectors.recipe import DistilledVectorsTable, WordVectorsRecipe
from ensue.library import load, resolve_recipe
from ensue.library import train as train_student
from ensue.nn import viterbi_path
from ensue.outputs import check_outputs, write_text
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.classification.model import document_source
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.data import best_tags, check_tags, make_labels, sentence_source
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.texts.corpus import training_source
from ensue.tasks.words.data import Distribution, TeacherLabels, read_teacher_answers, soften
from ensue.text.labels import Labels
from ensue.text.schemes import SchemeDetector, convert
from ensue.training.imported import Imported, write_run

MAX_DROPPED_PROBABILITY = 1e-3
"""The maximum total probability of a word's tags that are left out of the training file."""
Probabilities = NDArray[np.float64]


class Example(NamedTuple):
    """A text, a pair of texts, or the words of a sentence, with labels, which are empty for texts of a pool."""

    texts: tuple[str, ...]
    labels: Sequence[str]
    source: Any
    """The document or sentence that teachers read."""
    group: str = ""

    def error(self, message: str) -> DataError:
        """Return a DataError with the place of the example."""
        source = self.source
        return source.error(message) if isinstance(source, Sentence) else DataError(message, source.path, source.line)


class Teacher(NamedTuple):
    """The N labels of a teacher, and a function from examples to probabilities (K, N): a row for each text or word."""

    names: Sequence[str]
    predict: Callable[[Sequence[Example]], Iterator[Probabilities]]
    labels: TeacherLabels | Labels | None = None
    """The predictions in a file, or the labels of a tagger."""

    @classmethod
    def of_file(cls, answers: TeacherLabels) -> "Teacher":
        """Return a teacher with stored predictions. Its `predict` raises DataError for a text without a prediction."""
        names = sorted(answers.names)

        def predict(examples: Sequence[Example]) -> Iterator[Probabilities]:
            for example in examples:
                if example.texts not in answers.means:
                    raise example.error(f"{answers.path} has no prediction for this text")
                rows = answers.means[example.texts]
                yield np.array([[row.get(name, 0.0) for name in names] for row in rows])

        return cls(names, predict, answers)

    def predict_columns(self, examples: Sequence[Example], names: Sequence[str]) -> Iterator[Probabilities]:
        """Yield the probabilities of each example (K, N), with a column for each of `names`; 0 for unknown names."""
        columns = [names.index(name) for name in self.names]
        for probabilities in self.predict(examples):
            result = np.zeros((len(probabilities), len(names)))
            result[:, columns] = probabilities
            yield result


class ClassifierData:
    """The data of a student that classifies texts, or pairs of texts, by one label each."""

    data_settings: ClassVar[Mapping[str, Any]] = {
        "format": "json", "texts": [], "labels": "label", "separator": "", "joined": False, "header": "auto",
        "encoding": "utf-8",
    }  # fmt: skip
    """The `[data]` settings with which a recipe reads the objects that `as_json` returns."""
    is_random: ClassVar[bool] = True
    """Whether validation data are drawn at random, from each class; otherwise they are the last examples."""

    def __init__(self, recipe: Any) -> None:
        self.recipe, self.data = recipe, recipe.data

    def source(self, location: str, *, like: Any = None) -> Any:
        """Return the labeled examples of a file, in the format of the training data `like`."""
        if like is not None:
            return document_source(self.data, location, like=like.layout)
        return document_source(self.data, location, group=self.data.group)

    def read_pool(self, pool: str, *, has_predictions: bool) -> Iterable[Example]:
        """Return the unlabeled examples of a pool, which may be a file of stored predictions."""
        if has_predictions:
            return (Example(row.texts, (), Document(row.texts, path=pool)) for row in read_teacher_answers(pool))
        data = self.data.model_copy(update={"format": "auto", "labels": ""})
        return self.examples(document_source(data, pool, is_labeled=False))

    def examples(self, source: Any) -> Iterator[Example]:
        """Return the examples of a source."""
        return (Example(document.texts, document.labels, document, document.group) for document in source)

    def load_teacher(self, path: str, device: str) -> Teacher:
        """Return the teacher of a run or of a file of predictions. Raise EnsueError for an unsupported model."""
        if Path(path).is_file():
            return Teacher.of_file(TeacherLabels(path, lambda answer: answer.texts))
        pipeline = load(path, kind=ClassificationPipeline, device=device)
        if pipeline.labels.multiple:
            raise EnsueError(f"{path}: a multi-label classifier; expected a single-label classifier")

        def predict(examples: Sequence[Example]) -> Iterator[Probabilities]:
            for answer in pipeline.classify(example.source for example in examples):
                yield answer.probabilities.astype(np.float64)[None]

        return Teacher(pipeline.labels.names, predict)

    def label_names(self, labeled: Sequence[Example], teachers: Mapping[str, Teacher]) -> Sequence[str]:
        """Return the names of the labels to learn. Raise EnsueError for incompatible teachers or labels."""
        names = sorted({name for teacher in teachers.values() for name in teacher.names})
        for example in labeled:
            if len(example.labels) > 1:
                raise example.error(_describe_unknown(example.labels, names))
        return names

    def gold_labels(self, example: Example) -> Sequence[str]:
        """Return the labels of an example in the teachers' scheme."""
        return example.labels

    def best_labels(self, probabilities: Probabilities, names: Sequence[str]) -> Sequence[str]:
        """Return the most probable labels, from the probabilities (K, N) of the labels `names`."""
        return (names[int(probabilities[0].argmax())],)

    def split(self, labeled: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """Split the labeled examples into training and validation examples."""
        num_train = round(len(labeled) * (1 - self.data.valid_fraction))
        labels = Texts()
        for example in labeled:
            labels.append(example.labels[:1] if self.is_random else example.labels)
        by: dict[str, Any] = {"classes": labels.max_ranks()} if self.is_random else {}
        if self.data.division == "labels" and not self.is_random:
            by["labels"] = labels.distinct_pairs()
        sources = [example.group or example.texts for example in labeled]
        division = split_rows(sources, num_train, is_random=self.is_random, **by)
        return [labeled[row] for row in division.train], [labeled[row] for row in division.valid]

    def as_json(self, example: Example, labels: Sequence[str], probabilities: Sequence[Distribution]) -> dict[str, Any]:
        """Return an example as a JSON object, with the probabilities to learn unless they are empty."""
        texts = ["text"] if len(example.texts) == 1 else ["text1", "text2"]
        row: dict[str, Any] = dict(zip(texts, example.texts, strict=True))
        row["label"] = labels[0] if len(labels) == 1 else list(labels)
        if probabilities:
            row["probabilities"] = probabilities[0]
        if self.data.group:
            row["group"] = example.group or example.texts[0]
        return row


class TaggerData(ClassifierData):
    """The data of a student that tags sentences. A row of probabilities belongs to a word, a column to a tag."""

    data_settings: ClassVar[Mapping[str, Any]] = {
        "format": "json", "words": "tokens", "labels": "labels", "encoding": "utf-8",
    }  # fmt: skip
    is_random = False
    labels: Labels
    """The labels of the student, in the scheme of the training data."""

    def __init__(self, recipe: LabelingRecipe) -> None:
        super().__init__(recipe)
        if recipe.data.label_columns or recipe.data.nested:
            problem = "a student has a single label column without overlapping spans"
            raise EnsueError(f"{problem}; ensue train learns other labels from labeled sentences")
        self.documents: dict[tuple[str, int], int] = {}

    def source(self, location: str, *, like: Any = None) -> Any:
        return sentence_source(self.recipe, location, like=None if like is None else like.format)

    def read_pool(self, pool: str, *, has_predictions: bool) -> Iterable[Example]:
        sentences: Iterable[Sentence] = SentenceSource(pool, encoding=self.data.encoding, splitter=self.data.splitter)
        if has_predictions:
            answers = read_teacher_answers(pool, by_word=True)
            sentences = (Sentence(answer.texts, source=SourceText(pool)) for answer in answers)
        return (Example(sentence.words, (), sentence) for sentence in sentences if sentence.words)

    def examples(self, source: Any) -> Iterator[Example]:
        column, group = self.data.label_column or None, self.data.group
        for sentence in source:
            if sentence.words:
                name = source.format.group(sentence, group) if group else ""
                yield Example(sentence.words, source.format.labels(sentence, column), sentence, name)

    def load_teacher(self, path: str, device: str) -> Teacher:
        if Path(path).is_file():
            return Teacher.of_file(TeacherLabels(path, lambda answer: answer.texts, by_word=True))
        pipeline = load(path, kind=LabelingPipeline, device=device)
        if not isinstance(pipeline.labels, Labels):
            raise EnsueError(f"{path}: several heads; expected a teacher with one label column")

        def predict(examples: Sequence[Example]) -> Iterator[Probabilities]:
            for answer in pipeline.label((example.source for example in examples), confidence=True):
                assert answer.posterior is not None
                yield answer.posterior.marginals.astype(np.float64)

        return Teacher(pipeline.labels.symbols, predict, pipeline.labels)

    def label_names(self, labeled: Sequence[Example], teachers: Mapping[str, Teacher]) -> Sequence[str]:
        tags = {name for teacher in teachers.values() for name in teacher.names}
        detector, scheme = SchemeDetector(), None
        for example in labeled:
            detector.feed(example.labels, example.source.line)
        for teacher in () if labeled else teachers.values():  # no gold label determines the scheme
            scheme = scheme or (teacher.labels.scheme if isinstance(teacher.labels, Labels) else None)
            for rows in teacher.labels.means.values() if isinstance(teacher.labels, TeacherLabels) else ():
                detector.feed(best_tags(rows))
        scheme = scheme or detector.result(self.data.train or None)
        converted = tags if scheme is None else {name for tag in tags for name in convert([tag], scheme)}
        self.labels = labels = make_labels(self.recipe.head.scheme, sorted(converted), scheme)
        for path, teacher in teachers.items():
            if isinstance(teacher.labels, TeacherLabels):
                check_tags(teacher.labels, labels)
            elif isinstance(teacher.labels, Labels) and teacher.labels.tag_scheme != labels.tag_scheme:
                actual, expected = teacher.labels.tag_scheme or "plain labels", labels.tag_scheme or "plain labels"
                raise EnsueError(f"{path}: predicts {actual}; the student expects {expected} (head.scheme)")
        return labels.symbols

    def gold_labels(self, example: Example) -> Sequence[str]:
        scheme = self.labels.tag_scheme
        return convert(example.labels, scheme) if scheme else example.labels

    def best_labels(self, probabilities: Probabilities, names: Sequence[str]) -> Sequence[str]:
        masks, path = self.labels.legal_transitions(), probabilities.argmax(1)
        if masks is not None:  # masks of legal first and last tags and of legal pairs of tags
            with np.errstate(divide="ignore"):
                scores = (np.log(mask.astype(float)) for mask in masks)
                path = viterbi_path(np.log(np.maximum(probabilities, 1e-12)), *scores)
        return self.labels.decode(path.tolist())

    def as_json(self, example: Example, labels: Sequence[str], probabilities: Sequence[Distribution]) -> dict[str, Any]:
        sentence = example.source
        row: dict[str, Any] = {name: list(sentence.column(name)) for name in self.recipe.features.columns}
        row |= {"tokens": list(example.texts), "labels": list(labels)}
        if probabilities:
            minimum = MAX_DROPPED_PROBABILITY / len(self.labels)
            row["probabilities"] = [{tag: p for tag, p in word.items() if p >= minimum} for word in probabilities]
        if self.data.group:
            row["group"] = example.group or " ".join(example.texts)
        if self.data.context_words and sentence.document is not None:
            key = (sentence.source.name, sentence.document)
            row["document"] = self.documents.setdefault(key, len(self.documents))
        return row


WORDS_PER_REPORT = 4096


def write_static_vectors(
    teachers: Sequence[str], recipe: Recipe, out: Path, *, pool: str = "", gold: float = 0.5, temperature: float = 1.0,
    overwrite: bool = False, device: str = "auto", reporter: Reporter | None = None,
) -> None:  # fmt: skip
    """Write the run `out` with the vector of each word, computed by a teacher whose pipeline has `embed`.

    The words come from the recipe's training text or from `pool`.
    """
    if not isinstance(recipe, WordVectorsRecipe) or not isinstance(table := recipe.vectors, DistilledVectorsTable):
        raise RecipeError(f'expected a recipe with vectors.kind = "distilled", found {recipe.describe()}')
    texts = [path for path in (recipe.data.train, pool) if path]
    if len(teachers) != 1 or len(texts) != 1:
        raise EnsueError("word vectors need exactly one teacher and one text (--train or --pool)")
    if (recipe.data.valid, recipe.data.test, gold, temperature) != ("", "", 0.5, 1.0):
        raise EnsueError("--valid, --test, --gold and --temperature are for students with labels")
    (teacher,), (text,) = teachers, texts
    check_outputs([teacher, text], folders=[out], overwrite=overwrite, are_new=True)
    pipeline, reporter = load(teacher, device=device), reporter or Reporter()
    if not hasattr(pipeline, "embed"):
        raise EnsueError(f"{teacher}: this model has no text embeddings (`ensue embed`)")
    source = training_source(recipe.data.model_copy(update={"train": text}))
    tokenizer: Any = load_or_train_tokenizer(source, stop=None, **recipe.tokenizer.model_dump())
    size, ids = tokenizer.vocabulary_size, tokenize(source, tokenizer)
    words = [tokenizer.symbol(word_id) for word_id in range(LINE_END + 1, size)]  # the special symbols come first
    if not words:
        raise DataError("no word occurs tokenizer.min_count times", text)
    counts = sum((np.bincount(block, minlength=size) for _, block in ids.blocks()), np.zeros(size, np.int64))
    embedded = []
    for start in range(0, len(words), WORDS_PER_REPORT):
        reporter.working(f"{teacher} embeds {len(words):,} words", start / len(words))
        embedded.append(pipeline.embed(words[start : start + WORDS_PER_REPORT]))
    vectors = np.concatenate(embedded)
    if table.d_words > vectors.shape[1]:
        raise EnsueError(f"vectors.d_words is {table.d_words}; {teacher} has only {vectors.shape[1]} dimensions")
    rows, share = principal_components(vectors, table.d_words)
    rows *= weights_by_frequency(counts[LINE_END + 1 :], table.smoothing)[:, None]
    special = torch.zeros(LINE_END + 1, table.d_words)
    directory, parts = RunDirectory(teacher), WordVectorParts(tokenizer)
    note = f"{table.d_words} principal components of {len(words):,} word vectors explain {share:.1%} of the variance"
    student = Imported(
        Path(teacher), (directory.weights,), f"a {directory.entry.what}", read_recipe(recipe, train=text), parts,
        {"vocabulary_size": size}, {"vectors": torch.cat([special, torch.from_numpy(rows.astype(np.float32))])}, [note],
    )  # fmt: skip
    reporter.noted(note)
    write_run(student, out, overwrite=overwrite)


def principal_components(vectors: Float[NDArray[np.float32], "V D"], d: int) -> tuple[NDArray[np.float64], float]:
    """Return the first d principal components (V, d) of vectors, and the share of the variance that they explain."""
    centered = vectors.astype(np.float64)
    centered -= centered.mean(0)
    variances, directions = np.linalg.eigh(centered.T @ centered)
    axes = directions[:, : -d - 1 : -1]  # `eigh` sorts by increasing variance
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(d)])  # the largest coefficient is positive
    return centered @ axes, float(variances[-d:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))


def weights_by_frequency(counts: Int[NDArray[np.int64], " V"], smoothing: float) -> Float[NDArray[np.float64], " V"]:
    """Return a / (a + p) for each word, where p is its relative frequency and a the smoothing; 1 for a = 0."""
    frequencies = counts / max(1, counts.sum())
    return smoothing / (smoothing + frequencies) if smoothing else np.ones(len(counts))


STUDENTS: Mapping[str, type[ClassifierData]] = {"classification": ClassifierData, "labeling": TaggerData}
"""The data of a student, by the name of its task."""


def student_recipe(teachers: Sequence[str], recipe: Recipe, out: Path, **options: Any) -> Recipe | None:
    """Write a student's data and return the recipe to train it; for word vectors, write the run and return None."""
    if isinstance(recipe, WordVectorsRecipe):
        write_static_vectors(teachers, recipe, out, **options)
        return None
    return write_student_data(teachers, recipe, out, **options)


def write_student_data(
    teachers: Sequence[str], recipe: Recipe, out: Path, *, pool: str = "", gold: float = 0.5, temperature: float = 1.0,
    overwrite: bool = False, device: str = "auto", reporter: Reporter | None = None,
) -> Recipe:  # fmt: skip
    """Write the data of a student beside its run `out`, and return the recipe that trains the student on them."""
    if len({*teachers}) < len(teachers):
        raise EnsueError(f"{max(teachers, key=teachers.count)}: listed twice; expected distinct teachers")
    if not teachers:
        raise EnsueError("expected teachers and the recipe of the student: ensue distill TEACHER ... RECIPE")
    if recipe.task not in STUDENTS:
        raise EnsueError(f"found the recipe of a {recipe.what}; expected the recipe of a text classifier or tagger")
    student, reporter = STUDENTS[recipe.task](recipe), reporter or Reporter()
    data = student.data
    files = {name: path_beside(out, f"taught-{name}") for name in ("train", "valid", "test")}
    inputs = [*teachers, *recipe.inputs, pool]
    check_outputs(inputs, files=list(files.values()), folders=[out], overwrite=overwrite, are_new=True)
    source = student.source(data.train) if data.train else None
    labeled = [] if source is None else list(student.examples(source))
    is_divided = bool(pool and labeled and not data.valid)
    examples, held_out = student.split(labeled) if is_divided else (labeled[:], [])
    if pool:
        labeled_texts = {example.texts for example in labeled}
        unlabeled = student.read_pool(pool, has_predictions=pool in teachers)
        examples += [example for example in unlabeled if example.texts not in labeled_texts]
    if not examples:
        raise EnsueError("no training texts; give labeled texts with --train or unlabeled texts with --pool")
    loaded = {path: student.load_teacher(path, device) for path in teachers}
    names = student.label_names(labeled, loaded)
    for example in labeled:
        if unknown := sorted({*student.gold_labels(example)} - {*names}):
            raise example.error(_describe_unknown(unknown, names))
    held_out_sets = {
        name: student.examples(student.source(getattr(data, name), like=source))
        for name in ("valid", "test")
        if getattr(data, name)
    }
    if held_out:
        held_out_sets["valid"] = iter(held_out)
        reporter.noted(f"validation: {len(held_out):,} of {len(labeled):,} labeled texts, held out from training")
    elif pool and not data.valid and data.valid_fraction:
        reporter.noted("validation uses the teachers' labels, since few texts are labeled; --valid adds labeled texts")
    answers = []
    for path, teacher in loaded.items():
        if not Path(path).is_file():
            reporter.noted(f"{path} labels {len(examples):,} texts")
        answers.append(teacher.predict_columns(examples, names))
    means = (soften(np.array(by_teacher), temperature).mean(0) for by_teacher in zip(*answers, strict=True))
    rows = {"train": _mix_targets(student, examples, means, names, gold)}
    rows |= {name: (student.as_json(item, item.labels, ()) for item in items) for name, items in held_out_sets.items()}
    lines = {name: [json.dumps(row, ensure_ascii=False) + "\n" for row in items] for name, items in rows.items()}
    for name, texts in lines.items():
        write_lines(files[name], texts)
    group = {"data.group": "group"} if data.group else {}
    paths = {f"data.{name}": str(files[name]) for name in lines}
    settings = {f"data.{key}": value for key, value in student.data_settings.items()}
    return read_recipe(recipe, {**settings, **group, **paths, "data.teacher": str(files["train"])})


def path_beside(out: Path, name: str) -> Path:
    """Return the path of a data file beside a run. Raise EnsueError for a run path without a final name."""
    if not out.name:
        raise EnsueError(f"{out}: has no name; choose another --out")
    return out.with_name(f"{out.name}.{name}.jsonl")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file, and create its folder. All lines are computed before the file is opened."""
    content = "".join(lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, content)


def _describe_unknown(labels: Sequence[str], names: Sequence[str]) -> str:
    return f"the label {list_names(labels)}; expected one of the teachers' labels {list_names(names)}"


def _mix_targets(
    student: ClassifierData, examples: Sequence[Example], means: Iterable[Probabilities], names: Sequence[str],
    gold: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the JSON object of each example: its gold labels, or else the teachers' best labels, and the targets."""
    for example, mean in zip(examples, means, strict=True):
        labels, targets = example.labels, mean
        if labels:
            is_gold = np.array(names) == np.array(student.gold_labels(example))[:, None]
            targets = (1 - gold) * targets + gold * is_gold
        rows = [{name: float(f"{p:.6g}") for name, p in zip(names, row, strict=True)} for row in targets.tolist()]
        yield student.as_json(example, labels or student.best_labels(targets, names), rows)


def distill(
    teachers: str | Path | Sequence[str | Path], recipe: str | Path | Recipe, *, out: str | Path,
    train: Data = "", pool: Data = "", valid: Data = "", test: Data = "", gold: float = 0.5,
    temperature: float = 1.0, settings: Mapping[str, Any] | Sequence[str] = (), overwrite: bool = False,
    device: str = "auto", threads: int | None = None, reporter: Reporter | None = None,
) -> Pipeline:  # fmt: skip
    """Train a student model on the predictions of teachers, like `ensue distill`, and return its pipeline.

    The data of the student are written beside `out`. For word vectors, pass a single teacher, and only `train` or
    `pool`.

    Args:
        teachers: Run directories, or files of predictions.
        recipe: The student's recipe.
        out: The student's run directory.
        train: Labeled texts. Either `train` or `pool` is required.
        pool: Unlabeled texts.
        valid: Validation data.
        test: Test data.
        gold: The weight of the gold label, from 0 to 1; the teachers have the weight `1 - gold`.
        temperature: The divisor of the teachers' logits, from 0.01 to 100.
        settings: Changes of the recipe, as for `ensue.train`.
        overwrite: Whether the run at `out` and its data are replaced.
        device: The device of the teachers and of the student.
        threads: The number of threads.
        reporter: Receives notes and progress.

    Raises:
        EnsueError: An argument is invalid, as for `ensue distill`.
    """
    paths = [teachers] if isinstance(teachers, str | Path) else list(teachers)
    for path in paths:
        check_path("a teacher", path)
    check_path("out", out)
    check_fraction("gold", gold)
    check_type("temperature", temperature, (int, float), "a number")
    if not 0.01 <= temperature <= 100:
        raise EnsueError(f"temperature must be 0.01 to 100, found {temperature}")
    student = student_recipe(
        list(map(str, paths)), resolve_recipe(recipe, settings, train=train, valid=valid, test=test), Path(out),
        pool=as_location(pool, "pool"), gold=gold, temperature=temperature, overwrite=overwrite, device=device,
        reporter=reporter,
    )  # fmt: skip
    if student is None:
        return load(out, device=device)
    return train_student(student, out=out, overwrite=overwrite, device=device, threads=threads, reporter=reporter)
