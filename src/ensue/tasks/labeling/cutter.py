"""A cutter in use: from raw text to sentences, tokens and words, and with a tagger behind it to CoNLL-U."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from ensue.arguments import check_texts
from ensue.data.files import Location
from ensue.data.lines import Lines
from ensue.data.sentences.conllu import Conllu, pieces
from ensue.data.sentences.running_text import CutSentence, RunningText, cut_sentences, running_text
from ensue.data.sentences.sentence import Format, Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import is_stream, stream_lines
from ensue.errors import EnsueError
from ensue.inspection.notebook import Answers
from ensue.metrics.raw_text import AnalyzedToken, AnalyzedWord, RawTextScores, raw_text_scores
from ensue.tasks.contract.chunks import WHOLE, Shard
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.tagged_sentence import TaggedSentence

_COLUMNS = AnalyzedWord._fields[1:]


class NumberedSentence(NamedTuple):
    """A sentence, the number of its paragraph, and its own number in it, from 1."""

    paragraph: int
    number: int
    sentence: CutSentence

    def conllu(self) -> str:
        """The sentence in CoNLL-U, with the comments on its place."""
        begins = "# newpar\n" if self.number == 1 else ""
        return f"{begins}# sent_id = {self.paragraph}-{self.number}\n{self.sentence.conllu()}"


class CutterPipeline(LabelingPipeline):
    """A cutter: its words are the characters of texts."""

    def format(self, name: str) -> Format:
        return RunningText()

    def source(
        self, location: Location | Lines, *, format: str | None = None, encoding: str = "utf-8",
        is_labeled: bool = False,
    ) -> SentenceSource:  # fmt: skip
        """The paragraphs of raw text, or those of a treebank."""
        return SentenceSource(location, format=RunningText.name, encoding=encoding)

    def predict(self, texts: Iterable[str]) -> list[list[CutSentence]]:  # type: ignore[override]
        """The sentences of each text."""
        check_texts(texts, "texts")
        return Answers(Answers(found.sentence for found in self.cut(self.source(Lines([text], "")))) for text in texts)

    def predict_json(self, texts: Sequence[Any]) -> list[Any]:
        return [
            {"text": text, "sentences": [sentence.as_json() for sentence in found]}
            for text, found in zip(texts, self.predict(texts), strict=True)
        ]

    def cut(self, paragraphs: Iterable[Sentence], *, shard: Shard = WHOLE) -> Iterator[NumberedSentence]:
        """The sentences of a stream of paragraphs, in constant memory."""
        paragraph, number = -1, 0
        for answer in self.label(paragraphs, shard=shard):
            if answer.sentence.document != paragraph:
                paragraph, number = answer.sentence.document or 0, 0
            for found in cut_sentences(answer.sentence, answer.labels):
                number += 1
                yield NumberedSentence(paragraph + 1, number, found)

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        for found in self.cut(self.paragraphs(location, encoding), shard=shard):
            yield json.dumps(found.sentence.as_json(), ensure_ascii=False) + "\n" if as_json else found.conllu()

    def paragraphs(self, location: str, encoding: str) -> SentenceSource:
        """The paragraphs of a file or of a stream."""
        lines = stream_lines(location, encoding) if is_stream(location) else location
        return self.source(lines, encoding=encoding)

    def evaluate(self, data: Location, *, encoding: str = "utf-8") -> RawTextScores:  # type: ignore[override]
        """The scores on the raw text of a treebank, as the CoNLL 2018 shared task counts."""
        gold = _treebank(data, encoding)
        return raw_text_scores(_analyzed(gold), _analyzed(self.again(gold)), with_tags=False)

    def again(self, gold: Sequence[Sentence]) -> Iterator[Sentence]:
        """The sentences that are found in the text of others."""
        found = self.cut(self.source(Lines([running_text(gold)], "")))
        return Conllu().read(Lines((one.conllu() for one in found), ""))

    def before(self, tagger: Pipeline) -> CutterAndTagger:
        """The two as one. Raises EnsueError for a model that is no tagger of words."""
        if not isinstance(tagger, LabelingPipeline) or isinstance(tagger, CutterPipeline):
            raise EnsueError(f"{tagger.run}: behind a cutter a tagger is expected")
        return CutterAndTagger(self, tagger)

    def with_search(self, *, n_best: int) -> Self:
        raise EnsueError(f"n_best is {n_best}, but a cutter has one answer")

    def protocol(self, scores: RawTextScores) -> str:  # type: ignore[override]
        return "counted as the CoNLL 2018 shared task does, from raw text with a blank line between paragraphs"

    def describe(self) -> ModelDescription:
        return Pipeline.describe(self)


class CutterAndTagger:
    """A cutter with a tagger behind it: raw text in, CoNLL-U out."""

    def __init__(self, cutter: CutterPipeline, tagger: LabelingPipeline) -> None:
        self.cutter, self.tagger = cutter, tagger
        if tagger.reader.lexicon.columns:
            column = next(iter(tagger.reader.lexicon.columns))
            raise EnsueError(f'{tagger.run}: the model also reads the column "{column}", which raw text does not have')

    def predict(self, texts: Iterable[str], *, confidence: bool = False) -> list[list[TaggedSentence]]:
        """The tagged sentences of each text."""
        check_texts(texts, "texts")
        plain = Conllu()
        return Answers(
            Answers(
                self.tagger.tagged(answer, plain)
                for answer in self.tagger.label(self._cut(self.cutter.source(Lines([text], ""))), confidence=confidence)
            )
            for text in texts
        )

    def _cut(self, paragraphs: Iterable[Sentence], *, shard: Shard = WHOLE) -> Iterator[Sentence]:
        """The sentences of a stream of paragraphs, as they are read from CoNLL-U."""
        found = self.cutter.cut(paragraphs, shard=shard)
        return Conllu().read(Lines((one.conllu() for one in found), ""))

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        """The sentences in CoNLL-U, or each as JSON."""
        plain, sentences = Conllu(), self._cut(self.cutter.paragraphs(location, encoding), shard=shard)
        for answer in self.tagger.label(sentences, confidence=as_json):
            if as_json:
                yield json.dumps(self.tagger.tagged(answer, plain).as_json(), ensure_ascii=False) + "\n"
            else:
                yield self.tagger.written(answer, plain)

    def evaluate(self, data: Location, *, encoding: str = "utf-8") -> RawTextScores:
        """The scores on the raw text of a treebank, as the CoNLL 2018 shared task counts."""
        gold, plain = _treebank(data, encoding), Conllu()
        said = (self.tagger.written(answer, plain) for answer in self.tagger.label(self.cutter.again(gold)))
        return raw_text_scores(_analyzed(gold), _analyzed(plain.read(Lines(said, ""))))

    def protocol(self, scores: RawTextScores) -> str:
        """How `evaluate` has counted these scores."""
        return self.cutter.protocol(scores)

    def each_json(self, texts: Iterable[str]) -> Iterator[Any]:
        """Each text with its sentences, and the probability of what the tagger says, as JSON values."""
        for text in texts:
            (sentences,) = self.predict([text], confidence=True)
            yield {"text": text, "sentences": [sentence.as_json() for sentence in sentences]}

    def lacking(self, *, least: int = 0) -> str:
        """A line about what the tagger does not know of the words so far."""
        return self.tagger.lacking(least=least)


def _treebank(location: Location, encoding: str) -> list[Sentence]:
    """The sentences of a treebank. Raises DataError if it is none."""
    return list(SentenceSource(location, format=Conllu.name, encoding=encoding))


def _analyzed(sentences: Iterable[Sentence]) -> list[list[AnalyzedToken]]:
    """The tokens of sentences in CoNLL-U, and their words with what is said of them."""
    found = []
    for sentence in sentences:
        rows = zip(sentence.words, *(sentence.column(name) for name in _COLUMNS), strict=True)
        words = iter([AnalyzedWord(*row) for row in rows])
        tokens = pieces(sentence.source.text)
        found.append([AnalyzedToken(token.form, [next(words) for _ in token.words]) for token in tokens])
    return found
