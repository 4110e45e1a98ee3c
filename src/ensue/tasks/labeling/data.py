"""The labeled sentences of a recipe: read, checked, and encoded for a tagger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Columns, Numbers, StringColumn, Texts
from ensue.data.parallel import batched, in_order
from ensue.data.sentences.columns import Columns as ColumnsFormat
from ensue.data.sentences.formats import PlainText
from ensue.data.sentences.sentence import Format, Sentence, passages
from ensue.data.sentences.source import SentenceSource
from ensue.data.sentences.span_borders import SpanBorders
from ensue.errors import DataError, RecipeError, listed
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import Split
from ensue.tasks.labeling.decoding import LabeledTexts, Passages
from ensue.tasks.labeling.model import TaggerParts
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.task import SENTENCES
from ensue.tasks.words.data import EncodedTexts, WordsData
from ensue.tasks.words.model import d_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.tasks.words.teacher import Shares, Told
from ensue.text.label_columns import KIND_OF, LabelColumns, Learned, NestedLabels, TaggerLabels, learned_values
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import DEEPER, OUTSIDE, SCHEMES, Scheme, Span, convert, encode, layers, position, spans


class WordLabels(Sequence[list[Any]]):
    """The labels of the words of each sentence: strings, or of `several` columns tuples with a value for each."""

    def __init__(self, columns: Sequence[Texts], *, several: bool) -> None:
        self.columns, self.several = columns, several

    def _of(self, values: Sequence[Sequence[str]]) -> list[Any]:
        return list(zip(*values, strict=True)) if self.several else list(values[0])

    def __getitem__(self, row: int) -> list[Any]:  # type: ignore[override]  # a sentence at a time
        return self._of([column[row] for column in self.columns])

    def __iter__(self) -> Iterator[list[Any]]:
        return map(self._of, zip(*self.columns, strict=True))

    def __len__(self) -> int:
        return len(self.columns[0])


class Sentences(Columns):
    """The sentences of a file: words, labels, other columns, and whether each goes on with the passage before it."""

    @classmethod
    def none(cls, labels: Sequence[str], columns: Sequence[str]) -> Self:
        """No sentence yet, for labels in these columns ("" for the only one), and the other columns."""
        values = {name: Texts() for name in [*(f"label {name}" for name in labels), *(f"column {c}" for c in columns)]}
        values |= {f"misaligned {name}": Texts() for name in labels}
        return cls({"words": Texts(), **values, "goes_on": Numbers("b"), "groups": StringColumn()})

    def append(
        self,
        sentence: Sentence,
        labels: Mapping[str, Sequence[str]],
        *,
        misaligned: Mapping[str, Sequence[Span]],
        goes_on: bool = False,
        group: str = "",
    ) -> None:
        """Append a sentence, which has these labels in each column, and these spans that break words."""
        self.texts.append(sentence.words)
        for name, values in labels.items():
            self.columns[f"label {name}"].append(values)
            self.columns[f"misaligned {name}"].append([f"{a} {b} {label}" for label, a, b in misaligned[name]])
        for name, column in self.values.items():
            column.append(sentence.column(name))
        self.columns["goes_on"].extend([goes_on])
        self.columns["groups"].extend([group])

    @property
    def texts(self) -> Texts:
        """Their words."""
        return self.columns["words"]  # type: ignore[no-any-return]

    @property
    def labels(self) -> WordLabels:
        """The labels of each sentence."""
        columns = self._named("label ")
        return WordLabels(list(columns.values()), several="" not in columns)

    @property
    def misaligned(self) -> Sequence[Mapping[str, Sequence[Span]]]:
        """For each sentence, by column, the spans that begin or end inside of a word; empty if there are none."""
        columns = self._named("misaligned ")
        if not any(len(column.words) for column in columns.values()):
            return []
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, (list(map(_span, spans)) for spans in row), strict=True)) for row in rows]

    @property
    def num_misaligned(self) -> int:
        """How many spans begin or end inside of a word."""
        return sum(len(column.words) for column in self._named("misaligned ").values())

    @property
    def values(self) -> dict[str, Texts]:
        """The other columns that the model reads."""
        return self._named("column ")

    def _named(self, prefix: str) -> dict[str, Texts]:
        return {name[len(prefix) :]: column for name, column in self.columns.items() if name.startswith(prefix)}

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many sentences each passage has."""
        return np.diff(np.flatnonzero(self.columns["goes_on"].read(slice(None)) == 0), append=len(self))

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the sentences in these rows. A sentence goes on with a passage if the one before is there, too."""
        part = super().select(rows)
        goes_on = part.columns["goes_on"].array & (np.diff(rows, prepend=-1) == 1)
        part.columns["goes_on"] = Numbers("b")
        part.columns["goes_on"].add(goes_on)
        return part

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return set(self.texts.words.values)

    @property
    def label_counts(self) -> Counter[str]:
        """How many words have each label, in the first column of labels."""
        return Counter(self.labels.columns[0].words.counts())

    def __str__(self) -> str:
        return f"{len(self):,} sentences, {len(self.texts.words):,} words"


def _span(text: str) -> Span:
    start, end, label = text.split(" ", 2)
    return Span(label, int(start), int(end))


@dataclass(frozen=True)
class ReadSentences:
    """From sentences to their columns, for any process. `schemes` are the columns of labels that may write spans."""

    format: Format
    labels: Sequence[str]
    """The columns of labels; "" for the only one, which is `column`, None the format's default."""
    column: str | None
    values: Sequence[str]
    group: str
    schemes: Sequence[str] = ()

    def __call__(self, passages: Iterable[list[Sentence]]) -> tuple[Sentences, dict[str, SchemeDetector]]:
        """Raise DataError for a sentence without such a column."""
        columns = Sentences.none(self.labels, self.values)
        detectors = {name: SchemeDetector() for name in self.schemes}
        for passage in passages:
            for place, sentence in enumerate(passage):
                labels = {name: self.format.labels(sentence, name or self.column) for name in self.labels}
                group = self.format.group(sentence, self.group) if self.group else ""
                cut = {name: self.format.misaligned(sentence, name or self.column) for name in self.labels}
                columns.append(sentence, labels, misaligned=cut, goes_on=place > 0, group=group)
                for name, detector in detectors.items():
                    values = labels[name]
                    for tags in [layer.tags for layer in layers(values).values()] if self.format.nested else [values]:
                        detector.feed(tags, sentence.line)
        return columns, detectors


def read_passages(sentences: Iterable[Sentence], recipe: LabelingRecipe) -> Iterator[list[Sentence]]:
    """Return lists of sentences that are read together, in training and in use. Raises DataError for one that is too
    long.
    """

    def checked(sentence: Sentence) -> Sentence:
        recipe.check_length(len(sentence.words), sentence.source.name, sentence.line)
        return sentence

    return passages(map(checked, sentences), recipe.data.context_words)


def sentence_source(recipe: LabelingRecipe, location: str, *, like: Format | None = None) -> SentenceSource:
    """Return the sentences of a file, read with the settings of the recipe; `like` is the format of the training data.

    A file that looks like running text is read in the format of the training data. A file of a single sentence in
    columns looks like that.
    """
    data = recipe.data
    options: dict[str, Any] = {"encoding": data.encoding, "words": data.words or None, "splitter": data.splitter}
    options["nested"] = data.nested > 0
    source = SentenceSource(
        location,
        format=None if data.format == "auto" else data.format,
        like=None if like is None else like.name,
        **options,
    )
    if source.format.name == PlainText.name:
        advice = "with data.format=columns (or conllu, json) it is read as that, and a wrong line is named"
        raise DataError(f"it looks like running text, which has no labels; {advice}", location)
    return source


def label_rows(format: Format, sentence: Sentence, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """For each word the values of several columns. Raises DataError (file:line) if there is no such column."""
    return list(zip(*(format.labels(sentence, name) for name in columns), strict=True))


def trained_labels(
    counts: Mapping[str, int], detector: SchemeDetector, unit: str, place: str, path: str
) -> tuple[list[str], Scheme | None]:
    """Return the names of these labels, and their scheme. Raises DataError, which says `place`, if there are no two."""
    if len(counts) < 2:
        only = next(iter(counts), "")
        problem = f'all {counts[only]:,} {unit} have the label "{only}"' if counts else "no label"
        raise DataError(f"nothing to learn: {problem}{place}", path)
    return sorted(counts), detector.result(path)


def labels_in(wanted: str, names: Sequence[str], scheme: Scheme | None) -> Labels:
    """Return these labels, whose spans are learned in the scheme `wanted`."""
    tag_scheme: Any = None if scheme is None else scheme if wanted == "file" else wanted
    return Labels(names, scheme=scheme, tag_scheme=tag_scheme)


def with_tags(labels: Labels, tags: Iterable[str]) -> Labels:
    """Return the labels and those that a file would have for other tags: plain labels, or spans of new classes."""
    known = {position(name).label for name in labels.names}
    new = {tag for tag in tags if labels.scheme is None or position(tag).label not in known}
    named = new if labels.scheme is None else {name for tag in new for name in convert([tag], labels.scheme)}
    together = sorted({*labels.names, *named})
    return Labels(together, scheme=labels.scheme, tag_scheme=labels.tag_scheme)


def best_tags(rows: Sequence[Shares]) -> list[str]:
    """Return the most probable tag of each word."""
    return [max(shares, key=shares.__getitem__) for shares in rows]


def check_tags(answers: Told, labels: Labels) -> None:
    """Raise DataError unless the answers are about these tags, in their scheme."""
    wrong = sorted(answers.names - labels.tags.ids.keys())
    detector = SchemeDetector(tolerated=1.0)
    for rows in answers.means.values():
        detector.feed(best_tags(rows))
    scheme = detector.result(answers.path) if labels.tag_scheme and not wrong else None
    if wrong or (scheme and labels.tag_scheme and SCHEMES[scheme].different != SCHEMES[labels.tag_scheme].different):
        what = f"speaks of the tags {listed(wrong)}" if wrong else f"speaks of tags in the scheme {scheme}"
        wanted = f"the student learns {labels.tag_scheme or listed(labels.names)}"
        raise DataError(f"{what}; {wanted}{' (head.scheme)' if labels.tag_scheme else ''}", answers.path)


def is_free(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a span has no word of others."""
    return all(span.end <= other.start or other.end <= span.start for other in others)


class SentenceData(WordsData[Sentences]):
    """The labeled sentences of a recipe."""

    unit: ClassVar[str] = "words"
    examples: ClassVar[str] = "sentences"

    def __init__(self, recipe: LabelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of labeled sentences")
        if data.context_words > recipe.most_read:
            model = f"this model ({recipe.encoder.kind}) reads up to {recipe.most_read:,} words"
            raise RecipeError(f"data.context_words is {data.context_words:,}; {model}")
        if recipe.tuning.keep_labels and (data.label_columns or data.nested):
            raise RecipeError("tuning.keep_labels is for a tagger of one column, of spans that do not overlap")
        source = sentence_source(recipe, data.train)
        self.format, self.form = source.format, source.format.name
        self.columns = data.label_columns
        self.label_column = data.label_column or self.format.default_column
        super().__init__(recipe, run)
        self.fingerprint = source.files.fingerprint()
        first = source.first() if isinstance(source.format, ColumnsFormat) else None
        self.width = 0 if first is None else len(first.columns)
        """The number of columns, if they have numbers and no names."""
        for name in self.columns or [self.label_column]:
            if {name, str(self.width) if name == "last" else ""} & set(recipe.features.columns):
                raise RecipeError(f'features.columns names the column of the labels ("{name}")')
        self.advice = f' (column "{self.label_column}"); data.labels names another column'
        rehearsed = [self.kept.origin.fingerprint] if self.kept is not None and recipe.tuning.rehearse else []
        key = [self.fingerprint, recipe.most_read, recipe.features.columns, rehearsed]
        self.split = Split.kept(Sentences, data, key, lambda: self._split(source))
        self.answers = Told(data.teacher, lambda answer: answer.texts, of_words=True) if data.teacher else None

    def _split(self, source: SentenceSource) -> Split[Sentences]:
        """Return all sentences, read from files, and the labels that are learned."""
        learned_as_labels = [name for name in self.columns or [""] if KIND_OF.get(name, "label") == "label"]
        data = self.recipe.data
        sentences, detectors = self._read(source, group=data.group, schemes=learned_as_labels)
        split = Split.of(sentences, data, self.read, examples="sentences", drawn=False)
        if self.recipe.tuning.rehearse:
            split.notes.insert(0, self._rehearse(split, detectors))
        split.facts["learned"] = {name: self._learned(name, split.train, detectors) for name in self.columns or [""]}
        if data.nested:
            split.notes += self._without_deeper(split)
        if any(part.num_misaligned for part in (sentences, split.valid, split.test) if part is not None):
            split.notes += filter(None, map(self._borders, dict.fromkeys((data.train, data.valid, data.test))))
        return split

    def _borders(self, location: str) -> str:
        """Return a remark on the spans of some data that begin or end inside of words; "" if they are few."""
        if not location:
            return ""
        source = sentence_source(self.recipe, location, like=self.format)
        borders = SpanBorders(source.format, self.columns or [self.recipe.data.label_column or None])
        for sentence in source:
            borders.feed(sentence)
        note = borders.note()
        return f"{note}; such spans are learned as the words that they touch, and count as misses" if note else ""

    def _without_deeper(self, split: Split[Sentences]) -> list[str]:
        """Take the layers that are too deep out of what is learned, and count their spans."""
        most, parts = self.recipe.data.nested, split.facts["learned"][""]
        deeper = {key for _, key, *_ in parts if len(key) - len(key.rstrip(DEEPER)) >= most}
        learned = [part for part in parts if part[1] not in deeper]
        split.facts["learned"][""] = learned
        of_sentences = map(layers, split.train.labels) if deeper else ()
        num_spans = sum(len(of[key].spans()) for of in of_sentences for key in deeper & of.keys())
        what = f"of the training data are not learned: data.nested={most} layers of a class"
        return [f"{num_spans:,} spans {what}"] if num_spans else []

    def read(self, location: str) -> Sentences:
        """Validation or test data, in the format of the training data."""
        return self._read(sentence_source(self.recipe, location, like=self.format))[0]

    def _read(
        self, source: SentenceSource, *, group: str = "", schemes: Sequence[str] = ()
    ) -> tuple[Sentences, dict[str, SchemeDetector]]:
        """Return all sentences with words; a sentence without words has nothing to learn or score."""
        labels, values = self.columns or [""], self.recipe.features.columns
        column = self.recipe.data.label_column or None
        reader = ReadSentences(source.format, labels, column, values, group, schemes)
        sentences, detectors = Sentences.none(labels, values), {name: SchemeDetector() for name in schemes}
        passages = read_passages((sentence for sentence in source if sentence.words), self.recipe)
        for part, detected in in_order(reader, batched(passages, SENTENCES)):
            sentences.add(part)
            for name, detector in detectors.items():
                detector.add(detected[name])
        if not len(sentences):
            raise DataError("no sentence in it", source.location)
        return sentences, detectors

    def _rehearse(self, split: Split[Sentences], detectors: Mapping[str, SchemeDetector]) -> str:
        """Add the origin's spans to training and validation data; return their counts. RecipeError without spans."""
        assert self.kept is not None
        origin = self.kept.origin
        scheme = None if self.columns else detectors[""].result(self.recipe.data.train)
        if scheme is None or not origin.run.parts.labels.has_spans:
            raise RecipeError("tuning.rehearse is for labels that write spans")
        classes = {position(label).label for label in split.train.label_counts}
        tagger = origin.run.entry.pipeline_class.of(origin.run, torch.device("cpu"))
        counts: Counter[str] = Counter()
        for part in filter(None, (split.train, split.valid)):
            together = Texts()
            for labels, answer in zip(part.labels, tagger.predict(list(part.texts)), strict=True):
                labeled = spans(labels)
                added = [span for span in spans(answer.labels) if span.label not in classes and is_free(span, labeled)]
                together.append(encode([*labeled, *added], len(labels), scheme) if added else labels)
                counts.update(span.label for span in added)
            part.columns["label "] = together
        added_spans = ", ".join(f"{count:,} of {label}" for label, count in sorted(counts.items())) or "none"
        return f"spans of {origin.path}, put into the training and validation data: {added_spans}"

    def _learned(self, name: str, train: Sentences, detectors: Mapping[str, SchemeDetector]) -> list[list[Any]]:
        """Return a column's learned parts: kind, key, names of labels, scheme. Raises DataError for less than two
        labels.
        """
        path = self.recipe.data.train
        if self.recipe.data.nested:
            classes = learned_values("class", zip(train.texts, train.labels, strict=True))
            if not classes:
                raise DataError(f"nothing to learn: no span{self.advice}", path)
            scheme = detectors[""].result(path)
            return [[kind, key, sorted({*counts, OUTSIDE}), scheme] for (kind, key), counts in classes.items()]
        if not self.columns:
            return [["label", "", *trained_labels(train.label_counts, detectors[""], self.unit, self.advice, path)]]
        learned: list[list[Any]] = []
        values = train.columns[f"label {name}"]
        for (kind, key), counts in learned_values(
            KIND_OF.get(name, "label"), zip(train.texts, values, strict=True)
        ).items():
            if kind == "label":
                place = f' (column "{name}")'
                learned.append([kind, key, *trained_labels(counts, detectors[name], self.unit, place, path)])
            else:
                learned.append([kind, key, sorted(counts), None])
        if not learned:
            raise DataError(f'nothing to learn: no attribute in the column "{name}"', path)
        return learned

    def labels(self) -> TaggerLabels:
        """Return the labels of the training data."""
        wanted = self.recipe.head.scheme
        columns = {
            name: [Learned(kind, key, labels_in(wanted, names, scheme)) for kind, key, names, scheme in parts]
            for name, parts in self.split.facts["learned"].items()
        }
        if self.columns:
            return LabelColumns(columns)
        if self.recipe.data.nested:
            return NestedLabels(columns[""])
        learned = columns[""][0].labels
        if self.answers is not None:
            learned = with_tags(learned, self.answers.names)
        return learned if self.kept is None else self.kept.labels(learned)

    def soft_targets(self, labels: Labels) -> NDArray[np.float32] | None:
        """Return the probability of each tag of the training words (N, K), one sentence after another; None without a
        teacher. A sentence that the teacher does not label has the labels of its file.

        Raises:
            DataError: The teacher labels none of these sentences, or has other tags.
        """
        if self.answers is None:
            return None
        check_tags(self.answers, labels)
        train = self.split.train
        ids = np.array([tag for of in train.labels for tag in labels.encode(of)], np.int64)
        targets = (ids[:, None] == np.arange(len(labels))).astype(np.float32)
        return self.answers.put(train.texts, targets, train.texts.starts[:-1], labels.tags.ids)

    def parts(self, labels: TaggerLabels) -> TaggerParts:
        """Return the parts of a new model."""
        train = self.split.train
        columns = {name: column.words.values for name, column in train.values.items()}
        lexicon, vectors = self.lexicon(self.recipe, train.texts.words.counts(), columns=columns)
        return TaggerParts(lexicon, vectors, labels, contextual=self.contextual.shapes, tuned=self.tuned)

    def encoded(self, sentences: Sentences, parts: TaggerParts) -> LabeledTexts:
        """Return the sentences as the model reads them."""
        values = {name: column.words for name, column in sentences.values.items()}
        encoded = EncodedTexts(parts.lexicon, sentences.texts, values)
        passages = Passages(encoded.words, sentences.sizes)
        subwords = None
        if self.tuned is not None:
            subwords = SubwordTexts(self.tuned.reader(whole=False), [sentences.texts]).joined(passages.firsts)
        texts = encoded.joined(passages.firsts).with_contextual(self.contextual)
        return LabeledTexts(texts, passages, sentences.labels, sentences.texts, subwords, sentences.misaligned)

    def amount(self, parts: TaggerParts) -> str:
        train, valid, labels = self.split.train, self.split.valid, parts.labels
        held_out = f"{len(valid.texts.words):,} for validation" if valid else "none for validation"
        what = f'{len(labels.names)} labels in column "{self.label_column}"'
        if isinstance(labels, NestedLabels):
            what = f'{len(labels.learned)} heads for {len(labels):,} tags in column "{self.label_column}"'
        if isinstance(labels, LabelColumns):
            what = f"columns {', '.join(labels.names)} with {len(labels.learned)} heads for {len(labels):,} tags"
        scheme = f" ({labels.scheme})" if labels.scheme else ""
        return f"{len(train.texts.words):,} words in {len(train):,} sentences, {held_out}; {what}{scheme}"

    def config(self, parts: TaggerParts) -> dict[str, Any]:
        return {
            "format": self.format.name, "words": self.format.words, "labels": self.recipe.data.labels,
            "width": self.width, "d_vectors": d_vectors(parts.pretrained), "contextual": self.contextual.shapes,
        }  # fmt: skip

    @property
    def example(self) -> str:
        return "" if self.recipe.features.columns else "Janet will back the bill"

    def python(self) -> list[str]:
        return [f'print(model.predict(["{self.example}"]))'] if self.example else []
