"""The pipeline of a cutter, which splits raw text into sentences, tokens and words; a cutter combined with a tagger."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple, Self

import torch

from ensue.data.files import Data
from ensue.data.lines import Lines
from ensue.data.sentences.conllu import Conllu, pieces
from ensue.data.sentences.running_text import CutSentence, RunningText, cut_sentences, running_text
from ensue.data.sentences.sentence import Format, Sentence, SourceText
from ensue.data.sentences.source import SentenceSource
from ensue.errors import EnsueError, check_text_list
from ensue.inspection.notebook import Answers
from ensue.metrics.raw_text import AnalyzedToken, AnalyzedWord, RawTextScores, raw_text_scores
from ensue.runs.directory import RunDirectory, origins_in
from ensue.tasks.contract.chunks import UNSHARDED, Shard
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.tagged_sentence import TaggedSentence

_COLUMNS = AnalyzedWord._fields[1:]


class NumberedSentence(NamedTuple):
    """A sentence with the number of its paragraph and its number in the paragraph, both from 1."""

    paragraph: int
    number: int
    sentence: CutSentence

    def conllu(self) -> str:
        """Return the sentence in CoNLL-U, with its numbers in comments."""
        begins = "# newpar\n" if self.number == 1 else ""
        return f"{begins}# sent_id = {self.paragraph}-{self.number}\n{self.sentence.conllu()}"


def _to_sentence(sentence: CutSentence, conllu: str) -> Sentence:
    """Return the words of a cut sentence as a `Sentence`, whose source is the sentence in CoNLL-U."""
    return Sentence(sentence.words, source=SourceText(text=conllu), document=0)


class CutterPipeline(LabelingPipeline):
    """A trained cutter: a tagger whose words are the characters of texts."""

    column_options: ClassVar[tuple[str, ...]] = ()
    has_tags: ClassVar[bool] = False
    """Whether predicted words have tags, and in JSON the probabilities of tags."""

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Any:
        """Return the trained model of a run, combined with the tagger of words among the origins of the run, if any."""
        pipeline = super().of(run, device)
        for origin in (origin for origin in origins_in(run) if origin.run.entry.pipeline_class is LabelingPipeline):
            pipeline = pipeline.before(LabelingPipeline.of(origin.run, device))
        return pipeline

    def format(self, name: str) -> Format:
        return RunningText()

    def source(
        self, location: Data | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool = False,
    ) -> SentenceSource:  # fmt: skip
        """Return the paragraphs of a raw text or of a treebank."""
        return SentenceSource(location, format=RunningText.name, encoding=encoding)

    def predict(self, texts: Iterable[str]) -> Answers[list[CutSentence]]:  # type: ignore[override]
        """Return the sentences of each text."""
        paragraphs = [[*self.source(Lines([text], ""))] for text in check_text_list(texts, "texts", are_lists=False)]
        labeled = self.label(chain.from_iterable(paragraphs))
        cut = (cut_sentences(answer.sentence, answer.labels) for answer in labeled)
        return Answers(Answers(chain.from_iterable(islice(cut, len(text)))) for text in paragraphs)

    def predict_json(self, texts: Sequence[Any]) -> list[Any]:
        options: Any = {"confidence": True} if self.has_tags else {}
        return [
            {"text": text, "sentences": [sentence.as_json() for sentence in sentences]}
            for text, sentences in zip(texts, self.predict(texts, **options), strict=True)
        ]

    def cut(self, paragraphs: Iterable[Sentence], *, shard: Shard = UNSHARDED) -> Iterator[NumberedSentence]:
        """Yield the sentences of a stream of paragraphs, or of a shard of the stream, in constant memory."""
        paragraph, number = -1, 0
        for answer in self.label(paragraphs, shard=shard):
            if answer.sentence.document != paragraph:
                paragraph, number = answer.sentence.document or 0, 0
            for sentence in cut_sentences(answer.sentence, answer.labels):
                number += 1
                yield NumberedSentence(paragraph + 1, number, sentence)

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        for numbered in self.cut(self._open_source(location, format=None, encoding=encoding), shard=shard):
            yield json.dumps(numbered.sentence.as_json(), ensure_ascii=False) + "\n" if as_json else numbered.conllu()

    def evaluate(self, data: Data, *, encoding: str = "utf-8") -> RawTextScores:  # type: ignore[override]
        """Return the scores on the raw text of a treebank, computed as in the CoNLL 2018 shared task."""
        gold = list(SentenceSource(data, format=Conllu.name, encoding=encoding))
        return raw_text_scores(_analyze(gold), _analyze(self.recut(gold)), with_tags=self.has_tags)

    def recut(self, gold: Sequence[Sentence]) -> Iterator[Sentence]:
        """Yield the sentences that the model predicts for the raw text of the sentences of a treebank."""
        paragraphs = self.source(Lines([running_text(gold)], ""))
        return Conllu().read(Lines((numbered.conllu() for numbered in self.cut(paragraphs)), ""))

    def before(self, tagger: Pipeline) -> "CutterAndTagger":
        """Return the cutter and a tagger as one model. Raise EnsueError unless `tagger` is a tagger of words."""
        if not isinstance(tagger, LabelingPipeline) or isinstance(tagger, CutterPipeline):
            raise EnsueError(f"{tagger.run}: expected a tagger of words after a cutter")
        return CutterAndTagger(self, tagger)

    def with_search(self, *, n_best: int) -> Self:  # type: ignore[override]
        raise EnsueError(f"n_best is {n_best}; a cutter has one result")

    def protocol(self, scores: RawTextScores) -> str:  # type: ignore[override]
        return "scored as in the CoNLL 2018 shared task, from raw text with a blank line between paragraphs"

    def describe(self) -> ModelDescription:
        return Pipeline.describe(self)


class CutterAndTagger(CutterPipeline):
    """A cutter, and a tagger of the words that the cutter returns. The input is raw text, the output is CoNLL-U."""

    has_tags: ClassVar[bool] = True

    def __init__(self, cutter: CutterPipeline, tagger: LabelingPipeline) -> None:
        vars(self).update(vars(cutter))
        self.cutter, self.tagger = cutter, tagger
        if tagger.reader.lexicon.columns:
            column = next(iter(tagger.reader.lexicon.columns))
            raise EnsueError(f'{tagger.run}: the model also reads the column "{column}", which raw text does not have')

    def predict(  # type: ignore[override]
        self, texts: Iterable[str], *, confidence: bool = False
    ) -> Answers[list[TaggedSentence]]:
        """Return the tagged sentences of each text."""
        conllu, cut = Conllu(), super().predict(texts)
        read = (_to_sentence(sentence, sentence.conllu()) for sentences in cut for sentence in sentences)
        labeled = self.tagger.label(read, confidence=confidence)
        tagged = (self.tagger.tagged(answer, conllu) for answer in labeled)
        return Answers(Answers(islice(tagged, len(sentences))) for sentences in cut)

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        """Yield the sentences in CoNLL-U, or a JSON object for each sentence."""
        paragraphs, conllu = self._open_source(location, format=None, encoding=encoding), Conllu()
        read = (_to_sentence(numbered.sentence, numbered.conllu()) for numbered in self.cut(paragraphs, shard=shard))
        for answer in self.tagger.label(read, confidence=as_json):
            if as_json:
                yield json.dumps(self.tagger.tagged(answer, conllu).as_json(), ensure_ascii=False) + "\n"
            else:
                yield self.tagger.written(answer, conllu)

    def recut(self, gold: Sequence[Sentence]) -> Iterator[Sentence]:
        answers = self.tagger.label(super().recut(gold))
        return Conllu().read(Lines((self.tagger.written(answer, Conllu()) for answer in answers), ""))

    def lacking(self, *, least: int = 0) -> str:
        """Return a line on unknown words of the tagger (`Pipeline.lacking`)."""
        return self.tagger.lacking(least=least)


def _analyze(sentences: Iterable[Sentence]) -> list[list[AnalyzedToken]]:
    analyzed = []
    for sentence in sentences:
        rows = zip(sentence.words, *(sentence.column(name) for name in _COLUMNS), strict=True)
        words = iter([AnalyzedWord(*row) for row in rows])
        tokens = pieces(sentence.source.text)
        analyzed.append([AnalyzedToken(token.form, [next(words) for _ in token.words]) for token in tokens])
    return analyzed
