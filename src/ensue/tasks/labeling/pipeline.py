"""A tagger in use: predicts labels, and evaluates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_texts, check_whole
from ensue.data.compact_texts import Ragged, StringColumn
from ensue.data.files import Location, one_location
from ensue.data.lines import Lines
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.sentences.formats import PlainText, format_class
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, joined
from ensue.data.sentences.source import SentenceSource
from ensue.errors import EnsueError
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.labeling import LabelingScores
from ensue.metrics.scores import ScoredItems
from ensue.models.word_features import FormTable
from ensue.nn import Posterior
from ensue.outputs import check_outputs
from ensue.stored import changed
from ensue.tasks.contract.choice import Candidate
from ensue.tasks.contract.chunks import WHOLE, Shard, chunks
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.labeling.data import SentenceData, label_rows, read_passages
from ensue.tasks.labeling.decoding import Passages, tag_texts
from ensue.tasks.labeling.description import describe
from ensue.tasks.labeling.page import aligned, inspect_sentence
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.tagged_sentence import MOST_PATHS, Confidence, LabeledWord, TaggedSentence, listed_paths
from ensue.tasks.labeling.task import Judged, tally_of, with_mistakes
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.tasks.words.pipeline import WordPipeline
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.label_columns import LabelColumns, NestedLabels, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.lexicon import new_value

CHUNK_WORDS = 32_768
"""The number of words that are held and sorted by length. A file of any length is read in constant memory."""


class LabelsOfSentence(NamedTuple):
    """A sentence, its labels (with several columns tuples), and with `confidence` or `n_best` the probabilities."""

    sentence: Sentence
    labels: list[Any]
    confidence: Confidence | None = None
    posterior: Posterior | None = None


class LabelingPipeline(WordPipeline):
    """A tagger with its vocabularies: predicts and evaluates."""

    recipe: LabelingRecipe
    labels: TaggerLabels
    typed: ClassVar[str] = PlainText.name
    n_best: int = 0
    """The number of paths that `predict` gives of each sentence, if it is not asked for another one."""

    def with_search(self, *, n_best: int) -> Self:
        """This model with so many paths of each sentence."""
        check_whole("n_best", n_best, 1, MOST_PATHS)
        return changed(self, n_best=n_best)

    def predict(
        self, texts: Iterable[str | Sequence[str]], *, confidence: bool = False, n_best: int | None = None
    ) -> list[TaggedSentence]:
        """The labels of each text. A text is a string, which is cut into words, or a list of words.

        With `confidence` each word has the probability of its label, and each span its own. With `n_best` there are so
        many `paths` with their probabilities, too.
        """
        if n_best is not None:
            return self.with_search(n_best=n_best).predict(texts, confidence=confidence)
        check_texts(texts, "texts, or of lists of words")
        plain = self.format("text")
        sentences = [self.sentence(text, plain) for text in texts]
        answers = self.label(sentences, confidence=confidence)
        return Answers(self.tagged(answer, plain) for answer in answers)

    def predict_json(self, texts: Sequence[str | Sequence[str]]) -> list[Any]:
        return [found.as_json() for found in self.predict(texts, confidence=True)]

    def each_json(self, texts: Sequence[str | Sequence[str]]) -> Iterator[Any]:
        # sentences that are read together have to be labeled together
        yield from self.predict_json(texts) if self.recipe.data.context_words else super().each_json(texts)

    def inspect(self, text: str | Sequence[str] | Sentence) -> Inspection:
        """Look into the model with a sentence, as numbers and as a page: scores, paths, effects of parts of
        words.

        A model that reads other columns needs a `Sentence` that has them. Raises EnsueError for a text without words,
        with too many words, or without a column that the model reads.
        """
        plain = self.format("text")
        sentence = text if isinstance(text, Sentence) else self.sentence(text, plain)
        wanted = list(self.reader.lexicon.columns)
        if missing := [name for name in wanted if name not in sentence.columns]:
            raise EnsueError(
                f'the model also reads the column "{missing[0]}" of each word, which the text does not have'
            )
        labels = self.labels
        if not isinstance(labels, Labels):
            found = ", ".join(labels.names) if isinstance(labels, LabelColumns) else "spans that may overlap"
            raise EnsueError(f"inspect shows a tagger of one column; this one has {found}")
        (read,) = self.read_words([sentence.words], {name: sentence.column(name) for name in wanted})
        surface = plain.surface(sentence) if isinstance(text, str) else joined(sentence.words)
        facts = self.facts(encoder=self.recipe.describe(), head=self.recipe.head.kind) | {"words": f"{len(read):,}"}
        return inspect_sentence(self.model, read, labels, surface, facts)

    def label(
        self,
        sentences: Iterable[Sentence],
        *,
        confidence: bool = False,
        shard: Shard = WHOLE,
        of: Callable[[Sentence], Sequence[str]] | None = None,
    ) -> Iterator[LabelsOfSentence]:
        """The labels of a stream of sentences of any length, or of a part of it, in order, in constant memory.

        The probabilities are those of these labels, or of the labels `of` a sentence.
        """

        def num_words(passage: list[Sentence]) -> int:
            return sum(len(sentence.words) + 1 for sentence in passage)  # sentences may be empty

        return self._answered(
            lambda: chunks(read_passages(sentences, self.recipe), num_words, most_words=CHUNK_WORDS),
            shard,
            lambda chunk: [sentence.words for passage in chunk for sentence in passage],
            lambda chunk, forms, words: self._label_chunk(chunk, forms, words, confidence, of),
        )

    def candidates(
        self, location: Location, *, format: str | None = None, encoding: str = "utf-8"
    ) -> Iterator[Candidate]:
        """The residual is the mean surprisal of the labels that the model gives, one number."""
        source = self.source(location, format=format, encoding=encoding)
        for answer in self.label(source, confidence=True):
            tagged = self.tagged(answer, source.format)
            shares = [] if answer.confidence is None else answer.confidence.labels
            values = [value for of in shares for value in (of.values() if isinstance(of, dict) else [of])]
            share = float(np.exp(np.mean(np.log(np.maximum(values or [1.0], 1e-9)))))
            spans = tuple((span.start, span.end, span.label) for span in tagged.spans)
            if not self.labels.has_spans:
                spans = tuple((word.start, word.end, word.label) for word in tagged)
            yield Candidate((tagged.text,), (), spans, share, np.array([-np.log(share)], np.float32))

    @property
    def nested(self) -> bool:
        """Whether spans may overlap."""
        return isinstance(self.labels, NestedLabels)

    def source(
        self,
        location: Location | Lines,
        *,
        format: str | None = None,
        encoding: str = "utf-8",
        is_labeled: bool = False,
    ) -> SentenceSource:
        """The sentences of a file, with the columns of the training data."""
        like = self.config.get("format") if is_labeled else None
        made, nested = self.format, self.nested
        return SentenceSource(location, format=format, like=like, encoding=encoding, made=made, nested=nested)

    def format(self, name: str) -> Format:
        """The reader and writer of a format; with the columns of the training data, if these have the same format."""
        words = self.config.get("words") if name == self.config.get("format") else None
        scheme = self.labels.scheme or "bio"
        return format_class(name)(words=words, splitter=self.splitter, scheme=scheme, nested=self.nested)

    def column(self, format: Format) -> str | None:
        """The column or key of the labels in a format; None for the format's default."""
        wanted = self.config.get("labels") if format.name == self.config.get("format") else None
        return wanted if isinstance(wanted, str) and wanted else None

    def written(self, answer: LabelsOfSentence, format: Format) -> str:
        """The text of the sentence in a file of that format, with its labels in their column.

        If a file has fewer columns than the training data, its last column is no label, and the labels are a new last
        column.
        """
        if isinstance(self.labels, LabelColumns):
            return format.write_columns(answer.sentence, answer.labels, self.labels.names)
        column, width = self.column(format), self.config.get("width", 0)
        if not column and format.name == self.config.get("format") and len(answer.sentence.columns) < width:
            column = str(width)
        return format.write(answer.sentence, answer.labels, column)

    def evaluate(
        self, data: Location, *, format: str | None = None, encoding: str = "utf-8", errors: str | Path | None = None,
        overwrite: bool = False,
    ) -> LabelingScores:  # fmt: skip
        """The scores on a file of labeled sentences. The words whose label is wrong are written to the table `errors`.

        Raises EnsueError if that cannot be written, is read, or is there already, unless `overwrite`.
        """
        answers = self._answers(data, format, encoding)
        if errors is None:
            return tally_of(self.labels).scores_of(judged for _, judged in answers)
        check_outputs([data, self.run or ""], files=[errors], overwrite=overwrite)
        return tally_of(self.labels).scores_of(with_mistakes(answers, Path(errors)))

    def scored_items(self, location: Location, *, format: str | None = None, encoding: str = "utf-8") -> ScoredItems:
        answers = self._answers(location, format, encoding)
        return tally_of(self.labels).items_of((judged for _, judged in answers), "sentences")

    def _answers(self, data: Location, format: str | None, encoding: str) -> Iterator[tuple[Sentence, Judged]]:
        """Labeled sentences with their right and their predicted labels. Raises EnsueError if no word has a label."""
        data = one_location(data, "the data")
        source = self.source(data, format=format, encoding=encoding, is_labeled=True)
        columns: Mapping[str, str | None] = {"": self.column(source.format)}
        if isinstance(self.labels, LabelColumns):
            columns = {name: name for name in self.labels.names}
        words = 0
        for sentence, said, *_ in self.label(source):
            right: Sequence[Any]
            if isinstance(self.labels, LabelColumns):
                right = label_rows(source.format, sentence, self.labels.names)
            else:
                right = source.format.labels(sentence, columns[""])
            words += len(right)
            misaligned = {name: source.format.misaligned(sentence, column) for name, column in columns.items()}
            place = f"{sentence.source.name}:{sentence.line}"
            yield sentence, Judged.of(self.labels, right, said, misaligned, place)
        if not words:
            raise EnsueError(f"{source.location}: no labeled word in it")

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        source, parts = self._in_parts(location, format, encoding)
        lines = self._lines(source, parts, as_json=as_json, color=color, shard=shard)
        if as_json or self.n_best:
            return lines
        files: LabeledFiles = source.files
        return files.as_one(lines, are_objects=source.format.name == "json", begins=shard.number == 1)

    def _lines(
        self, source: SentenceSource, parts: Iterable[Iterable[Sentence]], *, as_json: bool, color: bool, shard: Shard
    ) -> Iterator[str]:
        for answer in chain.from_iterable(self.label(part, confidence=as_json, shard=shard) for part in parts):
            if as_json:
                yield json.dumps(self.tagged(answer, source.format).as_json(), ensure_ascii=False) + "\n"
            elif self.n_best:
                yield listed_paths(self.tagged(answer, source.format))
            elif color and source.format.name == "text":
                yield aligned(self.tagged(answer, source.format)) + "\n"
            else:
                yield self.written(answer, source.format)
        if not as_json and not self.n_best and shard.is_last:
            yield source.rest

    def describe(self) -> ModelDescription:
        return describe(self, self.labels, self.recipe.data.context_words, SentenceData)

    def protocol(self, scores: LabelingScores) -> str:
        most = self.recipe.data.context_words
        parts = ["spans are read and counted as conlleval does"] if scores.is_spans else []
        parts = ["every span counts by itself, also where spans overlap"] if self.nested else parts
        parts += [f"the sentences of a document are read together, up to {most:,} words"] if most else []
        return "; ".join(parts)

    def sentence(self, text: str | Sequence[str], plain: Format) -> Sentence:
        """A text as a `Sentence`: a string is cut into words by the format `plain`, a list of words is not."""
        if not isinstance(text, str):
            if not isinstance(text, Sequence) or not all(isinstance(word, str) for word in text):
                raise EnsueError(f"predict takes texts, or lists of words; found {text!r:.60}")
            return Sentence(tuple(text), source=SourceLines(text=joined(text).text))
        return next(plain.read(Lines([" ".join(text.split("\n"))], "")), Sentence((), source=SourceLines(text=text)))

    def tagged(self, answer: LabelsOfSentence, format: Format) -> TaggedSentence:
        """The answer as a `TaggedSentence`, with the places of words in the text by `format`."""
        sentence = answer.sentence
        surface = format.surface(sentence) if sentence.line else joined(sentence.words)
        words = zip(sentence.words, answer.labels, surface.offsets, strict=True)
        if isinstance(self.labels, LabelColumns):
            empty = dict.fromkeys(self.labels.names, "")
            labeled = tuple(LabeledWord(word, "", *place, columns=empty).with_label(row) for word, row, place in words)
        else:
            labeled = tuple(LabeledWord(word, label, *place) for word, label, place in words)
        found = TaggedSentence(surface.text, labeled, self.labels.has_spans, overlap=self.nested)
        return found if answer.confidence is None else found.judged(answer.confidence)

    def _label_chunk(
        self,
        passages: list[list[Sentence]],
        forms: FormTable,
        words: Ragged,
        confidence: bool,
        of: Callable[[Sentence], Sequence[str]] | None,
    ) -> Iterator[LabelsOfSentence]:
        confidence = confidence or self.n_best > 0
        chunk = [sentence for passage in passages for sentence in passage]
        columns = self._columns(chunk, words)
        texts = [[w for part in together for w in part.words] for together in passages]
        contextual = self.contextual.computed(texts)
        subwords = None if self.subwords is None else self.subwords.texts(texts)
        if len(chunk) == 1 and len(chunk[0].words):
            emissions = self._emissions_of_one(forms, words, columns, contextual, subwords)
            path, posterior = self.model.head.one(emissions, with_posterior=confidence)
            yield self._answer(chunk[0], path, posterior, of)
            return
        found = Passages(words, list(map(len, passages)))
        columns = [column.joined(found.firsts) for column in columns]
        paths, posteriors = tag_texts(
            self.model, forms, found, columns, contextual, subwords, with_posteriors=confidence
        )
        for sentence, path, posterior in zip_longest(chunk, paths, posteriors):
            yield self._answer(sentence, path, posterior, of)

    def _answer(
        self,
        sentence: Sentence,
        path: NDArray[np.int64],
        posterior: Posterior | None,
        of: Callable[[Sentence], Sequence[str]] | None,
    ) -> LabelsOfSentence:
        labels = list(self.labels.decode(path.tolist(), sentence.words))
        if posterior is None:
            return LabelsOfSentence(sentence, labels)
        said = of(sentence) if of else labels
        return LabelsOfSentence(
            sentence, labels, Confidence.of(self.labels, said, posterior, sentence.words, self.n_best), posterior
        )

    @torch.inference_mode()
    def _emissions_of_one(
        self,
        forms: FormTable,
        words: Ragged,
        columns: Sequence[Ragged],
        contextual: Sequence[LayersOfTexts],
        subwords: SubwordTexts | None,
    ) -> NDArray[np.float32]:
        """The emissions (T, K) of a single sentence, with few calls of torch."""
        device = forms.vectors.device
        numbers = torch.from_numpy(words.values.astype(np.int64)).to(device).unsqueeze(0)
        given = np.stack([column.values for column in columns], -1) if columns else np.zeros((words.lengths[0], 0))
        layers = [part.batch(np.zeros(1, np.int64), device) for part in contextual]
        x = self.model.features.in_place(
            forms.vectors, numbers, torch.from_numpy(given.astype(np.int64)).to(device)[None], layers
        )
        read = None if subwords is None else subwords.batch(np.zeros(1, np.int64), device)
        emissions: NDArray[np.float32] = self.model.emissions(x, forms.keys[numbers], None, read)[0].cpu().numpy()
        return emissions

    def _columns(self, chunk: list[Sentence], words: Ragged) -> list[Ragged]:
        """The other columns of a chunk, in the order in which the model reads them."""
        found = []
        for name in self.reader.lexicon.columns:
            column = StringColumn()
            for sentence in chunk:
                if sentence.words and not sentence.columns:
                    raise sentence.error(f'the model also reads the column "{name}", which plain words do not have')
                column.extend(sentence.column(name) if sentence.words else ())
            ids = self.reader.lexicon.encode_column(name, column.values)[column.ids]
            self.reader.lacking.add(new_value(name), int(np.count_nonzero(ids == 0)), len(ids))
            found.append(Ragged(ids, words.starts))
        return found

    def __repr__(self) -> str:
        parameters = f"{self.num_parameters:,} parameters"
        return self._described(self.recipe.describe(), self.recipe.head.kind, parameters, repr(self.labels))
