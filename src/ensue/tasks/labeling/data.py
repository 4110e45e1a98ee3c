"""The labeled sentences of a recipe, and their encoding for a tagger."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Columns, Numbers, StringColumn, Texts
from ensue.data.parallel import batched, ordered_map
from ensue.data.sentences.columns import Columns as ColumnsFormat
from ensue.data.sentences.sentence import Format, Sentence, passages
from ensue.data.sentences.source import PlainText, SentenceSource
from ensue.data.sentences.span_borders import SpanBorders
from ensue.errors import DataError, RecipeError, list_names
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import Split
from ensue.tasks.labeling.model import TaggerParts
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.task import CHUNK_SENTENCES, LabeledTexts, Passages
from ensue.tasks.words.data import Distribution, EncodedTexts, TeacherLabels, WordsData
from ensue.tasks.words.model import d_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text import schemes
from ensue.text.label_columns import HEAD_KINDS, LabelColumns, LabelHead, NestedLabels, TaggerLabels, count_head_values
from ensue.text.labels import Labels
from ensue.text.schemes import LAYER_SIGN, OUTSIDE, SCHEMES, Scheme, SchemeDetector, Span

MIN_DOCUMENTS = 5
"""The minimum number of documents for a linear tagger to be cross-validated by documents; with fewer, by sentences."""


class WordLabels(Sequence[list[Any]]):
    """The labels of the words of each sentence: strings, or tuples of strings with `has_several_columns`."""

    def __init__(self, columns: Sequence[Texts], *, has_several_columns: bool) -> None:
        self.columns, self.has_several_columns = columns, has_several_columns

    def _group_by_word(self, values: Sequence[Sequence[str]]) -> list[Any]:
        return list(zip(*values, strict=True)) if self.has_several_columns else list(values[0])

    def __getitem__(self, row: int) -> list[Any]:  # type: ignore[override]  # slices are not supported
        return self._group_by_word([column[row] for column in self.columns])

    def __iter__(self) -> Iterator[list[Any]]:
        return map(self._group_by_word, zip(*self.columns, strict=True))

    def __len__(self) -> int:
        return len(self.columns[0])


class Sentences(Columns):
    """The sentences of a file: words, labels, other columns, and whether a sentence continues a passage."""

    @classmethod
    def empty(cls, labels: Sequence[str], columns: Sequence[str]) -> Self:
        """Return an empty table with columns of `labels` ("" for a single column) and other `columns`."""
        values = {name: Texts() for name in [*(f"label {name}" for name in labels), *(f"column {c}" for c in columns)]}
        values |= {f"misaligned {name}": Texts() for name in labels}
        return cls({"words": Texts(), **values, "continues": Numbers("b"), "groups": StringColumn()})

    def append(
        self, sentence: Sentence, labels: Mapping[str, Sequence[str]], *, misaligned: Mapping[str, Sequence[Span]],
        continues: bool = False, group: str = "",
    ) -> None:  # fmt: skip
        """Append a sentence, with labels and misaligned spans (that begin or end inside of a word) by column."""
        self.texts.append(sentence.words)
        for name, values in labels.items():
            self.columns[f"label {name}"].append(values)
            self.columns[f"misaligned {name}"].append([f"{a} {b} {label}" for label, a, b in misaligned[name]])
        for name, column in self.input_columns.items():
            column.append(sentence.column(name))
        self.columns["continues"].extend([continues])
        self.columns["groups"].extend([group])

    @property
    def texts(self) -> Texts:
        """The words of each sentence."""
        return self.columns["words"]

    @property
    def labels(self) -> WordLabels:
        """The labels of each sentence."""
        columns = self._select_columns("label ")
        return WordLabels(list(columns.values()), has_several_columns="" not in columns)

    @property
    def misaligned(self) -> Sequence[Mapping[str, Sequence[Span]]]:
        """For each sentence, the spans of each column that begin or end inside of a word; empty without such spans."""
        columns = self._select_columns("misaligned ")
        if not self.num_misaligned:
            return []
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, (list(map(_parse_span, spans)) for spans in row), strict=True)) for row in rows]

    @property
    def num_misaligned(self) -> int:
        """The number of spans that begin or end inside of a word."""
        return sum(len(column.words) for column in self._select_columns("misaligned ").values())

    @property
    def input_columns(self) -> dict[str, Texts]:
        """The other columns that the model reads."""
        return self._select_columns("column ")

    def _select_columns(self, prefix: str) -> dict[str, Texts]:
        return {name[len(prefix) :]: column for name, column in self.columns.items() if name.startswith(prefix)}

    @property
    def passage_sizes(self) -> NDArray[np.int64]:
        """The number of sentences of each passage."""
        return np.diff(np.flatnonzero(self.columns["continues"].read(slice(None)) == 0), append=len(self))

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the sentences `rows`. A sentence continues a passage only if its predecessor is selected, too."""
        selected = super().select(rows)
        continues = selected.columns["continues"].array & (np.diff(rows, prepend=-1) == 1)
        selected.columns["continues"] = Numbers("b")
        selected.columns["continues"].add(continues)
        return selected

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return set(self.texts.words.values)

    @property
    def label_counts(self) -> Counter[str]:
        """The number of words with each label, in the first column of labels."""
        return Counter(self.labels.columns[0].words.counts())

    def label_pairs(self) -> NDArray[np.int64]:
        """Return the distinct pairs of a sentence and one of its labels, of all columns of labels, (2, P)."""
        pairs, num_labels = [np.zeros((2, 0), np.int64)], 0
        for name, column in self._select_columns("label ").items():
            if HEAD_KINDS.get(name, "label") == "label":
                pairs.append(column.distinct_pairs() + np.array([[0], [num_labels]]))
                num_labels += len(column.words.values)
        return np.concatenate(pairs, axis=1)

    def __str__(self) -> str:
        return f"{len(self):,} sentences, {len(self.texts.words):,} words"


def _parse_span(text: str) -> Span:
    start, end, label = text.split(" ", 2)
    return Span(label, int(start), int(end))


def read_columns(
    passages: Iterable[list[Sentence]], *, format: Format, names: Mapping[str, str | None],
    input_columns: Sequence[str], group: str, with_spans: Sequence[str],
) -> tuple[Sentences, dict[str, SchemeDetector]]:  # fmt: skip
    """Return passages as columns, and the detectors of the schemes of the columns `with_spans`. `names` maps the names
    of label columns to columns of the file (None: the default of the format). `input_columns` are the other columns
    that the model reads. Raise DataError for a sentence without a column.
    """
    columns = Sentences.empty([*names], input_columns)
    detectors = {name: SchemeDetector() for name in with_spans}
    for passage in passages:
        for index, sentence in enumerate(passage):
            labels = {name: format.labels(sentence, column) for name, column in names.items()}
            key = format.group(sentence, group) if group else ""
            misaligned = {name: format.misaligned(sentence, column) for name, column in names.items()}
            columns.append(sentence, labels, misaligned=misaligned, continues=index > 0, group=key)
            for name, detector in detectors.items():
                values = labels[name]
                for tags in map(dict.values, schemes.layers(values).values()) if format.nested else [values]:
                    detector.feed(tags, sentence.line)
    return columns, detectors


def read_passages(sentences: Iterable[Sentence], recipe: LabelingRecipe) -> Iterator[list[Sentence]]:
    """Yield passages: lists of sentences that are read together. Raise DataError for a sentence that is too long."""

    def check(sentence: Sentence) -> Sentence:
        recipe.check_length(len(sentence.words), sentence.source.name, sentence.line)
        return sentence

    return passages(map(check, sentences), recipe.data.context_words)


def sentence_source(recipe: LabelingRecipe, location: str, *, like: Format | None = None) -> SentenceSource:
    """Return the sentences of a file. Running text is read in the format `like`; without `like`, raise DataError."""
    data = recipe.data
    options: dict[str, Any] = {"encoding": data.encoding, "words": data.words or None, "splitter": data.splitter}
    options |= {"nested": data.nested > 0, "incomplete": data.incomplete}
    options["labeled"] = data.label_columns or [data.label_column or None]
    options["format"] = None if data.format == "auto" else data.format
    source = SentenceSource(location, like=None if like is None else like.name, **options)
    if source.format.name == PlainText.name:
        advice = "with data.format=columns (or conllu, json) the error names the first line that is not in this format"
        raise DataError(f"seems to be running text, which has no labels; {advice}", location)
    return source


def collect_labels(
    counts: Mapping[str, int], detector: SchemeDetector, unit: str, place: str, path: str
) -> tuple[list[str], Scheme | None]:
    """Return the sorted names of labels, and their scheme. Raise DataError for fewer than two labels. `unit` and
    `place`, the plural noun for labeled items and the column of the labels, are for the message.
    """
    if len(counts) < 2:
        name = next(iter(counts), "")
        problem = f'all {counts[name]:,} {unit} have the label "{name}"' if counts else "no label"
        raise DataError(f"nothing to learn: {problem}{place}", path)
    return sorted(counts), detector.result(path)


def make_labels(learned_scheme: str, names: Sequence[str], scheme: Scheme | None) -> Labels:
    """Return the labels `names` in `scheme`; their tags are in `learned_scheme` ("file": in `scheme`)."""
    tag_scheme: Any = None if scheme is None else scheme if learned_scheme == "file" else learned_scheme
    return Labels(names, scheme=scheme, tag_scheme=tag_scheme)


def extend_labels(labels: Labels, tags: Iterable[str]) -> Labels:
    """Return the labels together with new labels for the `tags` whose class is new."""
    classes = {schemes.position(name).label for name in labels.names}
    new = {tag for tag in tags if labels.scheme is None or schemes.position(tag).label not in classes}
    names = new if labels.scheme is None else {name for tag in new for name in schemes.convert([tag], labels.scheme)}
    return Labels(sorted({*labels.names, *names}), scheme=labels.scheme, tag_scheme=labels.tag_scheme)


def best_tags(rows: Sequence[Distribution]) -> list[str]:
    """Return the most probable tag of each word."""
    return [max(shares, key=shares.__getitem__) for shares in rows]


def check_tags(answers: TeacherLabels, labels: Labels) -> None:
    """Raise DataError unless all tags of the teacher are tags of the student, in the same scheme."""
    unknown = sorted(answers.names - labels.tags.ids.keys())
    detector = SchemeDetector(max_violations=1.0)
    for rows in answers.means.values():
        detector.feed(best_tags(rows))
    scheme = detector.result(answers.path) if labels.tag_scheme and not unknown else None
    if unknown or (scheme and labels.tag_scheme and SCHEMES[scheme].distinct != SCHEMES[labels.tag_scheme].distinct):
        problem = f"has the tags {list_names(unknown)}" if unknown else f"has tags in the scheme {scheme}"
        expected = f"the student learns {labels.tag_scheme or list_names(labels.names)}"
        raise DataError(f"{problem}; {expected}{' (head.scheme)' if labels.tag_scheme else ''}", answers.path)


class SentenceData(WordsData[Sentences]):
    """The labeled sentences of a recipe."""

    unit: ClassVar[str] = "words"
    examples: ClassVar[str] = "sentences"

    def __init__(self, recipe: LabelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of labeled sentences")
        if data.context_words > recipe.max_words:
            model = f"this model ({recipe.encoder.kind}) reads up to {recipe.max_words:,} words"
            raise RecipeError(f"data.context_words is {data.context_words:,}; {model}")
        if recipe.tuning.keep_labels and (data.label_columns or data.nested):
            problem = "tuning.keep_labels is for a tagger of one column, of spans that do not overlap"
            remedy = "without tuning.keep_labels, ensue train learns old and new labels from data that have both"
            raise RecipeError(f"{problem}; {remedy}")
        source = sentence_source(recipe, data.train)
        self.format, self.format_name = source.format, source.format.name
        self.columns = data.label_columns
        self.label_column = data.label_column or self.format.default_column
        super().__init__(recipe, run)
        self.fingerprint = source.files.fingerprint()
        first = source.first()
        self.width = len(first.columns) if first is not None and isinstance(source.format, ColumnsFormat) else 0
        """The number of columns of a file whose columns have no names; 0 for other files."""
        for name in self.columns or [self.label_column]:
            if {name, str(self.width) if name == "last" else ""} & set(recipe.features.columns):
                raise RecipeError(f'features.columns names the column of the labels ("{name}")')
        self.advice = f' (column "{self.label_column}"); data.labels names another column'
        rehearsed = [self.extended.origin.fingerprint] if self.extended is not None and recipe.tuning.rehearse else []
        has_documents = not data.valid_fraction and first is not None and first.document is not None
        self.group = data.group or ("document" if has_documents and recipe.is_gradient_free else "")
        key = [self.fingerprint, recipe.max_words, recipe.features.columns, rehearsed, self.group]
        self.split = Split.cached(Sentences, data, key, lambda: self._split(source))
        self.teacher = TeacherLabels(data.teacher, lambda answer: answer.texts, by_word=True) if data.teacher else None

    def _split(self, source: SentenceSource) -> Split[Sentences]:
        label_columns = [name for name in self.columns or [""] if HEAD_KINDS.get(name, "label") == "label"]
        data = self.recipe.data
        sentences, detectors = self._read(source, group=self.group, schemes=label_columns)
        if not data.group and len(sentences.columns["groups"].values) < MIN_DOCUMENTS:
            del sentences.columns["groups"]
        pairs = sentences.label_pairs() if data.division == "labels" else None
        split = Split.of(sentences, data, self.read, examples="sentences", is_random=False, labels=pairs)
        if self.recipe.tuning.rehearse:
            split.notes.insert(0, self._rehearse(split, detectors))
        split.facts["learned"] = {
            name: self._collect_learned(name, split.train, detectors) for name in self.columns or [""]
        }
        if data.nested:
            split.notes += self._remove_deep_layers(split)
        if any(data_set.num_misaligned for data_set in (sentences, split.valid, split.test) if data_set is not None):
            split.notes += filter(None, map(self._describe_borders, dict.fromkeys((data.train, data.valid, data.test))))
        return split

    def _describe_borders(self, location: str) -> str:
        """Return a remark on spans of a file that begin or end inside of words; "" if there are few."""
        if not location:
            return ""
        source = sentence_source(self.recipe, location, like=self.format)
        borders = SpanBorders(source.format, self.columns or [self.recipe.data.label_column or None])
        for sentence in source:
            borders.feed(sentence)
        note = borders.note()
        return f"{note}; such spans are learned as the words that they touch, and count as misses" if note else ""

    def _remove_deep_layers(self, split: Split[Sentences]) -> list[str]:
        """Remove layers beyond `data.nested` from the labels to learn. Return a remark on the number of their spans."""
        limit, learned = self.recipe.data.nested, split.facts["learned"][""]
        removed = {key for _, key, *_ in learned if len(key) - len(key.rstrip(LAYER_SIGN)) >= limit}
        split.facts["learned"][""] = [row for row in learned if row[1] not in removed]
        by_sentence = map(schemes.layers, split.train.labels) if removed else ()
        num_spans = sum(
            len(schemes.spans([*tags[key].values()])) for tags in by_sentence for key in removed & tags.keys()
        )
        note = f"{num_spans:,} spans of the training data are not learned: data.nested={limit} limits layers per class"
        return [note] if num_spans else []

    def read(self, location: str) -> Sentences:
        """Return the sentences of validation or test data, in the format of the training data."""
        return self._read(sentence_source(self.recipe, location, like=self.format))[0]

    def _read(
        self, source: SentenceSource, *, group: str = "", schemes: Sequence[str] = ()
    ) -> tuple[Sentences, dict[str, SchemeDetector]]:
        names: dict[str, str | None] = {name: name for name in self.columns} or {
            "": self.recipe.data.label_column or None
        }
        options: dict[str, Any] = {"input_columns": self.recipe.features.columns, "group": group, "with_spans": schemes}
        read: Any = partial(read_columns, format=source.format, names=names, **options)
        sentences, detectors = read([])
        passages = read_passages((sentence for sentence in source if sentence.words), self.recipe)
        for chunk, detected in ordered_map(read, batched(passages, CHUNK_SENTENCES)):
            sentences.add(chunk)
            for name, detector in detectors.items():
                detector.add(detected[name])
        if not len(sentences):
            raise DataError("no sentences", source.location)
        return sentences, detectors

    def _rehearse(self, split: Split[Sentences], detectors: Mapping[str, SchemeDetector]) -> str:
        """Add predictions of the origin to the spans of training and validation data, and return a remark on counts."""
        assert self.extended is not None
        origin = self.extended.origin
        scheme = None if self.columns else detectors[""].result(self.recipe.data.train)
        if scheme is None or not origin.run.parts.labels.has_spans:
            raise RecipeError("tuning.rehearse requires labels that encode spans")
        classes = {schemes.position(label).label for label in split.train.label_counts}
        tagger = origin.run.entry.pipeline_class.of(origin.run, torch.device("cpu"))
        counts: Counter[str] = Counter()
        for data in filter(None, (split.train, split.valid)):
            extended = Texts()
            for labels, answer in zip(data.labels, tagger.predict(list(data.texts)), strict=True):
                labeled = schemes.spans(labels)
                covered = {word for span in labeled for word in range(span.start, span.end)}
                new = (span for span in schemes.spans(answer.labels) if span.label not in classes)
                added = [span for span in new if covered.isdisjoint(range(span.start, span.end))]
                extended.append(schemes.encode([*labeled, *added], len(labels), scheme) if added else labels)
                counts.update(span.label for span in added)
            data.columns["label "] = extended
        added_spans = ", ".join(f"{count:,} of {label}" for label, count in sorted(counts.items())) or "none"
        return f"spans of {origin.path}, put into the training and validation data: {added_spans}"

    def _collect_learned(self, name: str, train: Sentences, detectors: Mapping[str, SchemeDetector]) -> list[list[Any]]:
        """Return the arguments (kind, key, names, scheme) of the labels to learn from a column, as JSON values."""
        path = self.recipe.data.train
        if self.recipe.data.nested:
            classes = count_head_values("class", zip(train.texts, train.labels, strict=True))
            if not classes:
                raise DataError(f"nothing to learn: no span{self.advice}", path)
            scheme = detectors[""].result(path)
            return [[kind, key, sorted({*counts, OUTSIDE}), scheme] for (kind, key), counts in classes.items()]
        if not self.columns:
            return [["label", "", *collect_labels(train.label_counts, detectors[""], self.unit, self.advice, path)]]
        learned: list[list[Any]] = []
        pairs = zip(train.texts, train.columns[f"label {name}"], strict=True)
        for (kind, key), counts in count_head_values(HEAD_KINDS.get(name, "label"), pairs).items():
            names_and_scheme: tuple[list[str], Scheme | None] = sorted(counts), None
            if kind == "label":
                names_and_scheme = collect_labels(counts, detectors[name], self.unit, f' (column "{name}")', path)
            learned.append([kind, key, *names_and_scheme])
        if not learned:
            raise DataError(f'nothing to learn: no attribute in the column "{name}"', path)
        return learned

    def labels(self) -> TaggerLabels:
        """Return the labels of the training data."""
        tag_scheme = self.recipe.head.scheme
        columns = {
            name: [LabelHead(kind, key, make_labels(tag_scheme, names, scheme)) for kind, key, names, scheme in rows]
            for name, rows in self.split.facts["learned"].items()
        }
        if self.columns:
            return LabelColumns(columns)
        if self.recipe.data.nested:
            return NestedLabels(columns[""])
        learned = columns[""][0].labels
        if self.teacher is not None:
            learned = extend_labels(learned, self.teacher.names)
        return learned if self.extended is None else self.extended.labels(learned)

    def soft_targets(self, labels: Labels) -> NDArray[np.float32] | None:
        """Return the probability of each tag of the training words (N, K); None without a teacher."""
        if self.teacher is None:
            return None
        check_tags(self.teacher, labels)
        train = self.split.train
        ids = np.array([tag for names in train.labels for tag in labels.encode(names)], np.int64)
        targets = (ids[:, None] == np.arange(len(labels))).astype(np.float32)
        return self.teacher.soft_targets(train.texts, targets, train.texts.starts[:-1], labels.tags.ids)

    def parts(self, labels: TaggerLabels) -> TaggerParts:
        """Return the vocabularies and labels of a new model."""
        train = self.split.train
        columns = {name: column.words.values for name, column in train.input_columns.items()}
        lexicon, vectors = self.lexicon(self.recipe, train.texts.words.counts(), columns=columns)
        return TaggerParts(lexicon, vectors, labels, contextual=self.contextual.shapes, tuned=self.tuned)

    def encode(self, sentences: Sentences, parts: TaggerParts) -> LabeledTexts:
        """Return the encoded sentences, the input of the model."""
        values = {name: column.words for name, column in sentences.input_columns.items()}
        encoded = EncodedTexts(parts.lexicon, sentences.texts, values)
        passages = Passages(encoded.words, sentences.passage_sizes)
        subwords = None
        if self.tuned is not None:
            subwords = SubwordTexts(self.tuned.reader(has_text_vector=False), [sentences.texts]).joined(passages.firsts)
        texts = encoded.joined(passages.firsts).with_contextual(self.contextual)
        return LabeledTexts(texts, passages, sentences.labels, sentences.texts, subwords, sentences.misaligned)

    def amount(self, parts: TaggerParts) -> str:
        train, valid, labels = self.split.train, self.split.valid, parts.labels
        none = "all for cross-validation" if self.recipe.is_gradient_free else "none for validation"
        held_out = f"{len(valid.texts.words):,} for validation" if valid else none
        tags = f'{len(labels.names)} labels in column "{self.label_column}"'
        if isinstance(labels, NestedLabels):
            tags = f'{len(labels.learned)} heads for {len(labels):,} tags in column "{self.label_column}"'
        if isinstance(labels, LabelColumns):
            tags = f"columns {', '.join(labels.names)} with {len(labels.learned)} heads for {len(labels):,} tags"
        scheme = f" ({labels.scheme})" if labels.scheme else ""
        return f"{len(train.texts.words):,} words in {len(train):,} sentences, {held_out}; {tags}{scheme}"

    def config(self, parts: TaggerParts) -> dict[str, Any]:
        return {
            "format": self.format.name, "words": self.format.words, "labels": self.recipe.data.labels,
            "width": self.width, "d_vectors": d_vectors(parts.pretrained), "contextual": self.contextual.shapes,
        }  # fmt: skip
