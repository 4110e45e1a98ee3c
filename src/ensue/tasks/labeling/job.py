"""The job of training a tagger of words: reads and checks sentences, and writes its part of the card."""

from __future__ import annotations

from typing import Any, ClassVar

from ensue.data.compact_texts import StringColumn
from ensue.data.sentences.sentence import contexts
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, RecipeError
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.labeling.contexts import Contexts
from ensue.tasks.labeling.model import TaggerParts
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.sentences import Sentences, num_columns, sentence_source
from ensue.tasks.labeling.tags_job import TagsJob
from ensue.tasks.labeling.task import LabeledTexts
from ensue.tasks.words.encoded_texts import EncodedTexts
from ensue.tasks.words.job import WordsJob
from ensue.tasks.words.length import check_length, most_words
from ensue.tasks.words.pretrained import with_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.scheme_detection import SchemeDetector


class LabelingJob(TagsJob[Sentences], WordsJob[Tagger, Sentences]):
    """Trains a tagger of words."""

    unit: ClassVar[str] = "words"
    examples: ClassVar[str] = "sentences"
    drawn: ClassVar[bool] = False
    recipe: LabelingRecipe
    parts: TaggerParts

    def __init__(self, recipe: LabelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of labeled sentences")
        if data.context_words > (most := most_words(recipe)):
            model = f"this model ({recipe.encoder.kind}) reads up to {most:,} words"
            raise RecipeError(f"data.context_words is {data.context_words:,}; {model}")
        source = sentence_source(recipe, data.train)
        self.format = source.format
        self.label_column = data.labels or self.format.default_column
        self.begin_from(run)
        self.fingerprint = source.files.fingerprint()
        self.width = num_columns(source)
        if {self.label_column, str(self.width) if self.label_column == "last" else ""} & set(recipe.features.columns):
            raise RecipeError(f'features.columns names the column of the labels ("{self.label_column}")')
        detector = SchemeDetector()
        self.train, self.valid, self.valid_from = self.split(self._read(source, detector, group=data.group))
        self.test_data = self.read(data.test) if data.test else None
        self.parts = self._parts(detector) if run is None else with_vectors(run.parts, run, recipe.features.vectors)
        self.begin_task()

    def _read(self, source: SentenceSource, detector: SchemeDetector | None = None, *, group: str = "") -> Sentences:
        """All sentences with words; a sentence without words has nothing to learn or score."""
        found = Sentences(columns={name: StringColumn() for name in self.recipe.features.columns})
        with_words = (sentence for sentence in source if sentence.words)
        for context in contexts(with_words, self.recipe.data.context_words):
            for place, sentence in enumerate(context):
                check_length(len(sentence.words), self.recipe, sentence.source.name, sentence.line)
                labels = source.format.labels(sentence, self.recipe.data.labels or None)
                of = source.format.group(sentence, group) if group else ""
                found.append(sentence, labels, goes_on=place > 0, group=of)
                if detector is not None:
                    detector.feed(labels, sentence.line)
        if not len(found):
            raise DataError("no sentence in it", source.location)
        return found

    def read(self, location: str) -> Sentences:
        return self._read(sentence_source(self.recipe, location, like=self.format))

    def _parts(self, detector: SchemeDetector) -> TaggerParts:
        labels = self.tags(detector, f' (column "{self.label_column}"); data.labels names another column')
        pretrained = self.pretrained()
        columns = {name: column.values for name, column in self.train.columns.items()}
        lexicon = self.lexicon_with(pretrained, self.train.texts.words.counts(), columns=columns)
        vectors = None if pretrained is None else pretrained.vectors
        return TaggerParts(lexicon, vectors, labels, contextual=self.contextual.shapes, tuned=self.tuned)

    def encoded(self, sentences: Sentences) -> LabeledTexts:
        encoded = EncodedTexts(self.parts.lexicon, sentences.texts, sentences.columns)
        found = Contexts(encoded.words, sentences.sizes)
        subwords = None
        if self.tuned is not None:
            subwords = SubwordTexts(self.tuned.reader(whole=False), [sentences.texts]).joined(found.firsts)
        texts = encoded.joined(found.firsts).with_contextual(self.contextual)
        return LabeledTexts(texts, found, sentences.labels, subwords)

    @property
    def data(self) -> str:
        words, labels = len(self.train.texts.words), self.parts.labels
        valid = f"{len(self.valid.texts.words):,} for validation" if self.valid else "none for validation"
        found = f'{len(labels.names)} labels in column "{self.label_column}"'
        scheme = f" ({labels.scheme})" if labels.scheme else ""
        return f"{words:,} words in {len(self.train):,} sentences, {valid}; {found}{scheme}"

    @property
    def notes(self) -> list[str]:
        return [*self.notes_on_labels()]

    def config(self) -> dict[str, Any]:
        return {
            "format": self.format.name,
            "words": self.format.words,
            "labels": self.recipe.data.labels,
            "width": self.width,
            **super().config(),
        }

    @property
    def example(self) -> str:
        return "" if self.recipe.features.columns else "Janet will back the bill"

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}` ({self.format.name}), {self.train}", f"- validation: {self.valid_from}"]
        if self.valid:
            lines[-1] += f", {self.valid}"
        if self.test_data:
            lines.append(f"- test: `{data.test}`, {self.test_data}")
        return lines

    def python(self) -> list[str]:
        return [f'print(model.predict(["{self.example}"]))'] if self.example else super().python()
