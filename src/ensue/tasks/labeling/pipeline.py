"""The pipeline of a tagger: prediction and evaluation."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged, StringColumn
from ensue.data.examples.formats import rows_with_texts
from ensue.data.files import Data, as_location
from ensue.data.lines import Lines
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.sentences.conllu import EMPTY_FIELD, Conllu
from ensue.data.sentences.sentence import Format, Sentence, SourceText, Surface
from ensue.data.sentences.source import PlainText, SentenceSource, format_class
from ensue.errors import EnsueError, check_fraction, check_integer, check_text_list, list_names
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.labeling import LabelingScores
from ensue.metrics.scores import ScoredItems
from ensue.models.word_features import FormTable
from ensue.nn import Posterior
from ensue.runs.reporter import Reporter
from ensue.stored import copy_with
from ensue.tasks.contract.chunks import UNSHARDED, Shard, chunks
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.labeling.data import SentenceData, read_passages
from ensue.tasks.labeling.description import describe
from ensue.tasks.labeling.page import format_aligned, inspect_sentence
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.tagged_sentence import MAX_PATHS, Confidence, LabeledWord, TaggedSentence, format_paths
from ensue.tasks.labeling.task import LabelPair, Passages, tag_texts, tally_of
from ensue.tasks.words.pipeline import WordLayers, WordPipeline
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.label_columns import LabelColumns, NestedLabels, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.lexicon import UNSPLIT
from ensue.text.schemes import encode, encode_overlapping
from ensue.text.tokens import MAX_UNSPACED, count_without_blanks, tokens

CHUNK_WORDS = 32_768
"""The number of words at which a chunk ends. The sentences of a chunk are sorted by length."""


class LabelsOfSentence(NamedTuple):
    """A sentence with its labels, and with probabilities if they are computed."""

    sentence: Sentence
    labels: list[Any]
    """The label of each word, or a tuple of labels for several columns."""
    confidence: Confidence | None = None
    posterior: Posterior | None = None


class LabelingPipeline(WordPipeline):
    """A trained tagger with its vocabularies."""

    recipe: LabelingRecipe
    labels: TaggerLabels
    column_options: ClassVar[tuple[str, ...]] = ("words", "labels")
    terminal_format: ClassVar[str] = PlainText.name
    n_best: int = 0
    """The number of paths of each sentence that `predict` returns by default."""
    at_least: float = 0.0
    """The minimum probability of a predicted span or tag."""

    def with_search(self, *, n_best: int | None = None, at_least: float | None = None) -> Self:
        """Return a copy of the model with other values of `n_best` and `at_least`; None does not change a value."""
        if n_best is not None:
            check_integer("n_best", n_best, 1, MAX_PATHS)
        if at_least is not None:
            check_fraction("at_least", at_least)
        values = {"n_best": n_best, "at_least": at_least}
        return copy_with(self, **{name: value for name, value in values.items() if value is not None})

    def predict(
        self, texts: Iterable[str | Sequence[str]], *, confidence: bool = False, n_best: int | None = None,
        at_least: float | None = None, progress: bool | Reporter | None = None,
    ) -> Answers[TaggedSentence]:  # fmt: skip
        """Predict the labels of each text.

        Args:
            texts: Strings, which are split into words, or lists of words.
            confidence: Whether the probabilities of labels and spans are computed.
            n_best: The number of `paths` with their probabilities; None: the value of `with_search`.
            at_least: The minimum probability: less probable spans are left out, and less probable tags become "_";
                None: the value of `with_search`.
            progress: True shows a bar on stderr; the method `working` of a `Reporter` receives the completed share.
        """
        if n_best is not None or at_least is not None:
            return self.with_search(n_best=n_best, at_least=at_least).predict(texts, confidence=confidence)
        texts = check_text_list(texts, "texts, or of lists of words")
        sentences, surfaces = zip(*map(self._read_text, texts), strict=True) if texts else ((), ())
        return Answers(map(self._make_tagged, self.label(sentences, confidence=confidence), surfaces))

    def predict_json(self, texts: Sequence[str | Sequence[str]]) -> list[Any]:
        return [answer.as_json() for answer in self.predict(texts, confidence=True)]

    def each_json(self, texts: Sequence[str | Sequence[str]]) -> Iterator[Any]:
        # with `context_words`, the labels of a sentence depend on other texts
        yield from self.predict_json(texts) if self.recipe.data.context_words else super().each_json(texts)

    def inspect(self, text: str | Sequence[str] | Sentence) -> Inspection:
        """Return scores, paths and effects of features for a sentence, as numbers and as a page.

        Args:
            text: A text, a list of words, or a `Sentence`, which is required by a model with other input columns.

        Raises:
            EnsueError: The text has no words, too many words, or lacks an input column, or labels are not one column.
        """
        sentence, surface = (text, Surface.of(text.words)) if isinstance(text, Sentence) else self._read_text(text)
        columns = list(self.reader.lexicon.columns)
        if missing := [name for name in columns if name not in sentence.columns]:
            raise EnsueError(
                f'the model also reads the column "{missing[0]}" of each word, which the text does not have'
            )
        labels = self.labels
        if not isinstance(labels, Labels):
            actual = ", ".join(labels.names) if isinstance(labels, LabelColumns) else "spans that may overlap"
            remedy = "ensue predict --json shows the probability of each label and each span"
            raise EnsueError(f"inspect supports taggers with one label column; this one has {actual}; {remedy}")
        (read,) = self.read_words([sentence.words], {name: sentence.column(name) for name in columns})
        facts = self.facts(encoder=self.recipe.describe(), head=self.recipe.head.kind) | {"words": f"{len(read):,}"}
        return inspect_sentence(self.model, read, labels, surface, facts)

    def label(
        self, sentences: Iterable[Sentence], *, confidence: bool = False, shard: Shard = UNSHARDED,
        of: Callable[[Sentence], Sequence[str]] | None = None,
    ) -> Iterator[LabelsOfSentence]:  # fmt: skip
        """Yield the labels of a stream of sentences, or of a shard of the stream, in order and in constant memory.

        Args:
            sentences: The sentences.
            confidence: Whether probabilities are computed.
            shard: The shard of the chunks of sentences.
            of: Maps a sentence to the labels whose probabilities are computed; None: the predicted labels.
        """

        def num_words(passage: list[Sentence]) -> int:
            return sum(len(sentence.words) + 1 for sentence in passage)  # sentences may be empty

        return self._answer_chunks(
            lambda: chunks(self._group_passages(sentences), num_words, chunk_words=CHUNK_WORDS),
            shard,
            lambda chunk: [sentence.words for passage in chunk for sentence in passage],
            lambda chunk, forms, words: self._label_chunk(chunk, forms, words, confidence, of),
        )

    def _group_passages(self, sentences: Iterable[Sentence]) -> Iterator[list[Sentence]]:
        if self.recipe.data.context_words:
            yield from read_passages(sentences, self.recipe)
            return
        for sentence in sentences:
            if len(sentence.words) > self.max_words:
                self.recipe.check_length(len(sentence.words), sentence.source.name, sentence.line)
            yield [sentence]

    @property
    def nested(self) -> bool:
        """Whether spans may overlap."""
        return isinstance(self.labels, NestedLabels)

    def source(
        self, location: Data | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool = False,
    ) -> SentenceSource:  # fmt: skip
        """Return the reader of the sentences of a file, with the columns of the training data."""
        like = self.config.get("format") if is_labeled else None
        nested, words = self.nested or not is_labeled, self.chosen_columns.get("words", "")
        if isinstance(self.labels, LabelColumns) and "labels" in self.chosen_columns:
            names = list_names(self.labels.names)
            raise EnsueError(f"{self.run}: the labels are in {names}; expected no other columns")
        source = SentenceSource(
            location, format=format, like=like, encoding=encoding, make_format=self.format, nested=nested,
            incomplete=self.recipe.data.incomplete if is_labeled else "refuse",
            convert=None if is_labeled or format is not None else partial(rows_with_texts, text=words),
        )  # fmt: skip
        if words and source.format.name == PlainText.name:
            raise EnsueError(f"{source.location}: plain text has no columns; found the column of words {words}")
        columns = self.labels.names if isinstance(self.labels, LabelColumns) else [self.column(source.format)]
        source.format.is_labeled, source.labeled = is_labeled, columns if is_labeled else ()
        return source

    def format(self, name: str) -> Format:
        """Return the reader and writer of a format, with the columns of the training data if they have this format."""
        trained = self.config.get("words") if name == self.config.get("format") else None
        words = self.chosen_columns.get("words", trained)
        return format_class(name)(words=words, splitter=self.splitter, scheme=self.labels.scheme, nested=self.nested)

    def column(self, format: Format) -> str | None:
        """Return the column or key of the labels in a format; None: the default of the format. The default of spans in
        CoNLL-U is a key of MISC, since the format has no column for spans.
        """
        if "labels" in self.chosen_columns:
            return self.chosen_columns["labels"]
        is_trained = format.name == self.config.get("format")
        column = self.config.get("labels") if is_trained else None
        if format.name == Conllu.name and self.labels.has_spans and not is_trained:
            column = "misc.NER"
        return column if isinstance(column, str) and column else None

    def written(self, answer: LabelsOfSentence, format: Format) -> str:
        """Return the record of a sentence in a format, with the predicted labels in the label column. If a sentence has
        fewer columns than the training data, the labels are a new last column.
        """
        if isinstance(self.labels, LabelColumns):
            return format.write_columns(answer.sentence, answer.labels, self.labels.names)
        column, width = self.column(format), self.config.get("width", 0)
        if not column and format.name == self.config.get("format") and len(answer.sentence.columns) < width:
            column = str(width)
        return format.write(answer.sentence, answer.labels, column)

    def evaluate(
        self, data: Data, *, format: str | None = None, encoding: str = "utf-8", errors: str | Path | None = None,
        overwrite: bool = False, progress: bool | Reporter | None = None,
    ) -> LabelingScores:  # fmt: skip
        """Return the scores on a file of labeled sentences; `format` None: detected. `progress` is as for `predict`.

        `errors` is a file to which wrong predictions are written, as by `report`; `overwrite` replaces such a file.
        """
        if errors is not None:
            pipeline: Any = self
            return pipeline.report(data, format=format, encoding=encoding, errors=errors, overwrite=overwrite).scores
        return tally_of(self.labels).scores_of(
            pair for _, pair in self.label_pairs(data, format, encoding, confidence=False)
        )

    def scored_items(self, location: Data, *, format: str | None = None, encoding: str = "utf-8") -> ScoredItems:
        answers = self.label_pairs(location, format, encoding, confidence=False)
        return tally_of(self.labels).items_of((pair for _, pair in answers), "sentences")

    def label_pairs(
        self, data: Data, format: str | None = None, encoding: str = "utf-8", *, confidence: bool = True
    ) -> Iterator[tuple[LabelsOfSentence, LabelPair]]:
        """Yield the prediction for each labeled sentence, with the correct labels. Raise EnsueError for no words."""
        data = as_location(data, "the data")
        source = self.source(data, format=format, encoding=encoding, is_labeled=True)
        columns: Mapping[str, str | None] = {"": self.column(source.format)}
        if isinstance(self.labels, LabelColumns):
            columns = {name: name for name in self.labels.names}
        words = 0
        for answer in self.label(source, confidence=confidence):
            sentence, predicted, *_ = answer
            by_column = [source.format.labels(sentence, column) for column in columns.values()]
            gold: Any = list(zip(*by_column, strict=True)) if isinstance(self.labels, LabelColumns) else by_column[0]
            words += len(gold)
            misaligned = {name: source.format.misaligned(sentence, column) for name, column in columns.items()}
            place = f"{sentence.source.name}:{sentence.line}"
            yield answer, LabelPair(self.labels.convert_scheme(gold), predicted, misaligned, place)
        if not words:
            raise EnsueError(f"{source.location}: no labeled words")

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        source, batches = self._open_batches(location, format, encoding)
        lines = self._write_lines(source, batches, as_json=as_json, color=color, shard=shard)
        if as_json or self.n_best:
            return lines
        files: LabeledFiles = source.files
        return files.as_one(lines, are_objects=source.format.name == "json", begins=shard.number == 1)

    def _write_lines(
        self, source: SentenceSource, batches: Iterable[Iterable[Sentence]], *, as_json: bool, color: bool, shard: Shard
    ) -> Iterator[str]:
        for answer in chain.from_iterable(self.label(batch, confidence=as_json, shard=shard) for batch in batches):
            if as_json:
                yield json.dumps(self.tagged(answer, source.format).as_json(), ensure_ascii=False) + "\n"
            elif self.n_best:
                yield format_paths(self.tagged(answer, source.format))
            elif color and source.format.name == "text":
                yield format_aligned(self.tagged(answer, source.format)) + "\n"
            else:
                yield self.written(answer, source.format)
        if not as_json and not self.n_best and shard.is_last:
            yield source.rest

    def describe(self) -> ModelDescription:
        return describe(self, self.labels, self.recipe.data.context_words, SentenceData)

    def protocol(self, scores: LabelingScores) -> str:
        max_words = self.recipe.data.context_words
        notes = ["spans are read and counted as conlleval does"] if scores.is_spans else []
        notes = ["each span is scored separately, even if spans overlap"] if self.nested else notes
        notes += [f"the sentences of a document are read together, up to {max_words:,} words"] if max_words else []
        return "; ".join(notes)

    def sentence(self, text: str | Sequence[str], plain: Format) -> Sentence:
        """Return a text, or a list of words, as a `Sentence`. A text is split into words by the splitter of `plain`."""
        return self._read_text(text, plain.splitter)[0]

    def _read_text(self, text: str | Sequence[str], splitter: str | None = None) -> tuple[Sentence, Surface]:
        if not isinstance(text, str):
            if not isinstance(text, Sequence) or not all(isinstance(word, str) for word in text):
                raise EnsueError(f"the model reads texts, or lists of words; found {text!r:.60}")
            surface = Surface.of(text)
            return Sentence(tuple(text), source=SourceText(text=surface.text)), surface
        line = " ".join(text.split("\n"))
        content = line.removesuffix("\r")
        split = tokens(content, splitter or self.splitter)
        words = tuple([token.text for token in split])
        surface = Surface(content, tuple([(token.start, token.end) for token in split]))
        return Sentence(words, line=1, source=SourceText(text=line)), surface

    def tagged(self, answer: LabelsOfSentence, format: Format) -> TaggedSentence:
        """Return a `TaggedSentence` with the offsets of words in the text of `format`."""
        sentence = answer.sentence
        return self._make_tagged(answer, format.surface(sentence) if sentence.line else Surface.of(sentence.words))

    def _make_tagged(self, answer: LabelsOfSentence, surface: Surface) -> TaggedSentence:
        words = zip(answer.sentence.words, answer.labels, surface.offsets, strict=True)
        if isinstance(self.labels, LabelColumns):
            empty = dict.fromkeys(self.labels.names, "")
            labeled = tuple(LabeledWord(word, "", *place, columns=empty).with_label(row) for word, row, place in words)
        else:
            labeled = tuple(LabeledWord(word, label, *place) for word, label, place in words)
        tagged = TaggedSentence(surface.text, labeled, self.labels.has_spans, overlap=self.nested)
        confidence = answer.confidence
        if confidence is not None and not self.labels.has_spans:
            confidence = confidence._replace(labels=[*map(self._remove_below, confidence.labels)])
        return tagged if confidence is None else tagged.with_confidence(confidence)

    def _label_chunk(
        self, passages: list[list[Sentence]], forms: FormTable, words: Ragged, confidence: bool,
        of: Callable[[Sentence], Sequence[str]] | None,
    ) -> Iterator[LabelsOfSentence]:  # fmt: skip
        confidence = confidence or self.n_best > 0 or self.at_least > 0
        chunk = [sentence for passage in passages for sentence in passage]
        columns = self._encode_columns(chunk, words)
        texts: list[list[str]] = []
        if self.contextual.origins or self.subwords is not None:
            texts = [[word for sentence in passage for word in sentence.words] for passage in passages]
        candidates = (sentence.words for sentence in chunk if max(map(len, sentence.words), default=0) > MAX_UNSPACED)
        unsplit = sum(count_without_blanks(word) > MAX_UNSPACED for text in candidates for word in text)
        self.reader.unknown_counts.add(UNSPLIT, unsplit, len(words.values))
        contextual = self.contextual.vectors_on_demand(texts) if self.contextual.origins else ()
        subwords = None if self.subwords is None else self.subwords.texts(texts)
        if len(chunk) == 1 and len(chunk[0].words):
            emissions = self._compute_emissions(forms, words, columns, contextual, subwords)
            path, posterior = self.model.head.decode_sentence(emissions, with_posterior=confidence)
            yield self._answer(chunk[0], path, posterior, of)
            return
        grouped = Passages(words, list(map(len, passages)))
        columns = [column.joined(grouped.firsts) for column in columns]
        paths, posteriors = tag_texts(
            self.model, forms, grouped, columns, contextual, subwords, with_posteriors=confidence
        )
        for sentence, path, posterior in zip_longest(chunk, paths, posteriors):
            yield self._answer(sentence, path, posterior, of)

    def _answer(
        self, sentence: Sentence, path: NDArray[np.int64], posterior: Posterior | None,
        of: Callable[[Sentence], Sequence[str]] | None,
    ) -> LabelsOfSentence:  # fmt: skip
        labels = list(self.labels.decode(path.tolist(), sentence.words))
        if posterior is None:
            return LabelsOfSentence(sentence, labels)
        confidence = Confidence.of(self.labels, of(sentence) if of else labels, posterior, sentence.words, self.n_best)
        if self.at_least and of is None:
            labels = self._remove_improbable(labels, confidence)
            if self.labels.has_spans:
                confidence = Confidence.of(self.labels, labels, posterior, sentence.words, self.n_best)
        return LabelsOfSentence(sentence, labels, confidence, posterior)

    def _remove_below(self, shares: Any) -> Any:
        """Return the probability of a tag, or probabilities by column; None or missing if it is below `at_least`."""
        if isinstance(shares, dict):
            return {name: share for name, share in shares.items() if share >= self.at_least}
        return shares if shares >= self.at_least else None

    def _remove_improbable(self, labels: list[Any], confidence: Confidence) -> list[Any]:
        """Return the labels without spans and tags whose probability is below `at_least`."""

        def probable(tags: Iterable[str], shares: Iterable[float]) -> list[str]:
            return [tag if p >= self.at_least else EMPTY_FIELD for tag, p in zip(tags, shares, strict=True)]

        if isinstance(self.labels, LabelColumns):
            rows = zip(labels, confidence.labels, strict=True)
            return [tuple(probable(row, shares.values())) for row, shares in rows]
        if not self.labels.has_spans:
            return probable(labels, confidence.labels)
        pairs = zip(self.labels.spans(labels), confidence.spans, strict=True)
        write = encode_overlapping if self.nested else encode
        spans = [span for span, p in pairs if p >= self.at_least]
        return [*self.labels.convert_scheme(write(spans, len(labels), "bio"))]

    @torch.inference_mode()
    def _compute_emissions(
        self, forms: FormTable, words: Ragged, columns: Sequence[Ragged], contextual: Sequence[WordLayers],
        subwords: SubwordTexts | None,
    ) -> NDArray[np.float32]:  # fmt: skip
        """Return the emissions (T, K) of a single sentence, with less overhead than `tag_texts`."""
        device, row = forms.vectors.device, np.zeros(1, np.int64)
        numbers, *ids = (
            torch.from_numpy(ids.values[np.newaxis].astype(np.int64)).to(device) for ids in (words, *columns)
        )
        layers = [vectors.batch(row, device) for vectors in contextual]
        x = self.model.features.assemble(forms.vectors, numbers, torch.stack(ids, -1) if ids else None, layers)
        keys = forms.keys[numbers] if self.model.repeats else numbers  # otherwise unused
        batch = None if subwords is None else subwords.batch(row, device)
        return self.model.emissions(x, keys, None, batch)[0].cpu().numpy()

    def _encode_columns(self, chunk: list[Sentence], words: Ragged) -> list[Ragged]:
        """Return the ids of the values of input columns. Raise DataError for a sentence without columns."""
        values = []
        for name in self.reader.lexicon.columns:
            column = StringColumn()
            for sentence in chunk:
                if sentence.words and not sentence.columns:
                    raise sentence.error(f'the model also reads the column "{name}"; found a sentence without columns')
                column.extend(sentence.column(name) if sentence.words else ())
            ids = self.reader.lexicon.encode_column(name, column.values)[column.ids]
            predicate = f'have a value of the column "{name}" that the training data do not have'
            self.reader.unknown_counts.add(predicate, int(np.count_nonzero(ids == 0)), len(ids))
            values.append(Ragged(ids, words.starts))
        return values

    def __repr__(self) -> str:
        parameters = f"{self.num_parameters:,} parameters"
        return self._format_repr(self.recipe.describe(), self.recipe.head.kind, parameters, repr(self.labels))
