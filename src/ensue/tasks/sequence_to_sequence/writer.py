"""The base of pipelines that write a text for each source: search, ensembles, surprisal, scores; outputs as lines."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, Unpack

import numpy as np

from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair, PairSource
from ensue.decode.candidates import Candidate
from ensue.decode.hypotheses import Hypothesis
from ensue.decode.search import SearchOptions
from ensue.errors import EnsueError
from ensue.metrics.generation import GenerationScores, compare_texts, score_texts, scored_items
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.notices import say_empty
from ensue.stored import changed
from ensue.tasks.contract.chunks import EVERY, WHOLE, Shard
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.sequence_to_sequence.decoding import mean_surprisals, most_tokens, outputs, search_of
from ensue.tasks.sequence_to_sequence.outputs import Output, TokenAlignment
from ensue.tasks.sequence_to_sequence.task import CHUNK, Sources, in_chunks, most_written
from ensue.text.scripts import are_unsplit
from ensue.text.special_tokens import TokenizerWithSpecials


class WithTargets(Protocol):
    """A source with the texts that are right for it, of which there may be none."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The texts."""

    def _replace(self, *, targets: tuple[str, ...]) -> Self: ...


ItemT = TypeVar("ItemT", bound=WithTargets)


class WriterAdapter(ABC):
    """A change of the sources that a `Writer` reads, of its search, or of its outputs."""

    name: ClassVar[str]
    """The name in messages."""

    def adapted(self, item: Any) -> Any:
        """Return the source that the model reads in place of `item`."""
        return item

    @abstractmethod
    def written(self, writer: Any, items: Sequence[Any]) -> list[Output]:
        """Return the outputs for some sources; `writer` is the writer without this adapter."""

    def warning(self) -> str:
        """Return a line about the outputs so far; "" if there is nothing to warn of."""
        return ""


class Writer(Predictor, Generic[ItemT]):
    """A text model with its tokenizer. Several runs with the same tokens can answer together."""

    unit: str
    """The name of a source."""

    recipe: Any
    adapters: tuple[WriterAdapter, ...] = ()
    """The adapters, the outermost last."""

    def begin_writing(self, target: TokenizerWithSpecials, ratio: float) -> None:
        """Sets up writing, after `Pipeline.__init__`; `ratio` target tokens for each of the source are enough."""
        self.models: tuple[TextModel, ...] = (self.model,)
        self.recipes: tuple[Any, ...] = (self.recipe,)
        self.target, self.ratio = target, ratio
        self.search = search_of(self.recipe.search, target)

    @property
    @abstractmethod
    def alike(self) -> Any:
        """Properties that all runs of an ensemble share, as JSON values."""

    @property
    def most_written(self) -> int | None:
        """The most tokens that all models write; None: any number."""
        return most_written(*(recipe.decoder for recipe in self.recipes))

    @abstractmethod
    def sources(self, items: Sequence[ItemT]) -> Sources:
        """The sources as the models read them. Raises DataError for one that is too long."""

    @abstractmethod
    def encoded(self, items: Sequence[tuple[ItemT, str]]) -> tuple[Sources, Ragged]:
        """The sources and the ids of a target of each, with the end. Raises DataError for what is too long."""

    def texts_of(self, item: ItemT) -> Sequence[str]:
        """Return the texts of a source; none if the source is no text."""
        return ()

    def decoded(self, ids: Sequence[int], item: ItemT) -> str:
        """The text that is written for a source."""
        return self.target.decode(ids)

    def with_search(self, **changes: Unpack[SearchOptions]) -> Self:
        """A copy with another search, by the names of `BeamSearch`. Raises EnsueError for other names."""
        names = [field.name for field in fields(self.search)]
        for name in changes.keys() - names:
            raise EnsueError(f'a search has no "{name}"; expected one of {", ".join(names)}')
        return changed(self, search=replace(self.search, **changes))

    def with_adapter(self, adapter: WriterAdapter, *, is_innermost: bool = False) -> Self:
        """Return a copy with an adapter around the others, or within them, in place of one of the same class."""
        others = [each for each in self.adapters if type(each) is not type(adapter)]
        return changed(self, adapters=(adapter, *others) if is_innermost else (*others, adapter))

    def lacking(self, *, least: int = 0) -> str:
        return "; ".join(filter(None, (adapter.warning() for adapter in self.adapters)))

    def with_others(self, *others: Self) -> Self:
        """An ensemble with this model's search, within the limits of all. Raises EnsueError for other tokens."""
        for other in others:
            if other.alike != self.alike:
                raise EnsueError(f"{other.run}: other tokens than {self.run}; runs of an ensemble have the same ones")
        together = copy(self)
        together.models = (*self.models, *(model for other in others for model in other.models))
        together.recipes = (*self.recipes, *(recipe for other in others for recipe in other.recipes))
        together.ratio = max(self.ratio, *(other.ratio for other in others))
        return together

    def answers(self, items: Iterable[ItemT], chosen: range | None = None) -> Iterator[tuple[ItemT, Output]]:
        """Each source with the output for it, in order, in constant memory; or those of some chunks."""
        wanted = EVERY if chosen is None else chosen
        for place, chunk in enumerate(in_chunks(items)):
            if place >= wanted.stop:
                return
            if place >= wanted.start:
                yield from zip(chunk, self.written(chunk), strict=True)

    def written(self, items: Sequence[ItemT]) -> list[Output]:
        """Return the outputs for some sources."""
        if self.adapters:
            *inner, outermost = self.adapters
            return outermost.written(changed(self, adapters=tuple(inner)), items)
        return list(map(self.output, items, self.hypotheses(self.sources(items))))

    def hypotheses(self, sources: Sources, *, record: list[Candidate] | None = None) -> list[list[Hypothesis]]:
        """The best hypotheses of each source. All that the search considered is added to `record`, for one source."""
        limits = self.limits(sources)
        return outputs(self.models, sources, self.search, target=self.target, limits=limits, record=record)

    def limits(self, sources: Sources) -> list[int]:
        """The most tokens of the output for each source."""
        return most_tokens(sources, self.ratio, self.search, self.most_written)

    def output(self, item: ItemT, hypotheses: Sequence[Hypothesis]) -> Output:
        """Return the best hypothesis for a source as an output, with the others in it."""
        best, *others = (
            Output(self.decoded(one.ids, item), one.score, one.log_probability, one.is_complete, ids=one.ids)
            for one in hypotheses
        )
        return replace(best, others=tuple(others))

    def surprisal(self, items: Iterable[ItemT]) -> Iterator[tuple[ItemT, str, float, int]]:
        """Each source and each of its targets with the surprisal in nats and the number of tokens; in order."""
        for chunk in in_chunks((item, target) for item in items for target in item.targets):
            sources, written = self.encoded(chunk)
            nats = np.zeros(len(chunk))
            for rows, found in mean_surprisals(self.models, sources, written, begin_id=self.target.begin_id):
                nats[rows] = found.double().sum(1).cpu().numpy()
            for (item, target), total, tokens in zip(chunk, nats, written.lengths, strict=True):
                yield item, target, float(total), int(tokens)

    def score_pairs(self, pairs: Sequence[ItemT], *, compare: Self | None = None) -> GenerationScores:
        """The scores of the outputs for these sources, all of whose targets are references."""
        texts, wanted, found = self._answered(pairs)
        tokenize = self._tokenization(wanted)
        scores = score_texts(texts, wanted, tokenize=tokenize, nats=found)
        if compare is None:
            return scores
        theirs = [output.text for _, output in compare.answers(pairs)]
        return replace(scores, comparison=compare_texts(texts, theirs, wanted, tokenize=tokenize))

    def items_scored(self, items: Sequence[ItemT]) -> ScoredItems:
        """These scores, with the sources that they are made of."""
        texts, wanted, found = self._answered(items)
        return scored_items(texts, wanted, tokenize=self._tokenization(wanted), nats=found)[0]

    def _answered(self, items: Sequence[ItemT]) -> tuple[list[str], list[tuple[str, ...]], list[tuple[float, int]]]:
        """The outputs for sources, all targets of each, and the surprisal of the first with its number of tokens."""
        if not items:
            raise EnsueError(f"there is nothing to score: no {self.unit}")
        texts = [output.text for _, output in self.answers(items)]
        firsts = [item._replace(targets=item.targets[:1]) for item in items]
        found = [(nats, tokens) for _, _, nats, tokens in self.surprisal(firsts)]
        return texts, [item.targets for item in items], found

    def _tokenization(self, references: Sequence[Sequence[str]]) -> str:
        """How sacrebleu cuts texts: into characters if most have no blank, by blanks if the model does, else 13a."""
        texts = [reference for given in references for reference in given]
        if are_unsplit(texts) or 2 * sum(" " in text for text in texts) < len(texts):
            return "char"
        return "none" if self.target.tokenizer.kind == "words" else "13a"

    def protocol_of_search(self) -> str:
        """How outputs are found."""
        search = self.search
        how = "greedy" if search.width == 1 else f"beam {search.width}, length penalty {search.length_penalty:g}"
        return how + (f", {len(self.models)} models together" if len(self.models) > 1 else "")

    def protocol(self, scores: GenerationScores) -> str:
        how, cut = self.protocol_of_search(), ""
        if "tok:char" in scores.signature:
            cut = "; BLEU and edits of characters, since most references have no blanks"
        elif "tok:none" in scores.signature:
            cut = "; BLEU of the file's own tokens"
        return f"{how}{cut}"


Aligner = Callable[[Sequence[tuple[Pair, Output]]], list[TokenAlignment | None]]
"""The alignment of each source with its output."""
ALIGNED = 256
"""Outputs that are aligned at a time."""


def output_lines(
    writer: Writer[Pair], source: PairSource, *, typed: bool, aligner: Aligner | None = None, shard: Shard = WHOLE
) -> Iterator[str]:
    """A line for each source, in order: its output, or with `n_best` above 1 a line for each output: the number of the
    source, the score, the text; with an `aligner` a JSON object. Sources that are `typed` are answered one by one.
    """
    chunks = ([pair] for pair in source) if typed else [source]
    chosen = shard.chunks(lambda: in_chunks(source))
    n_best, number = writer.search.n_best, chosen.start * CHUNK
    num_empty = 0

    def read(pairs: Iterable[Pair]) -> Iterator[Pair]:
        nonlocal num_empty
        for pair in pairs:
            num_empty += not any(map(str.strip, pair.sources))
            yield pair

    for chunk in chunks:
        answers = writer.answers(read(chunk), chosen)
        if aligner is not None:
            found = outputs_json(answers, aligner, n_best=n_best)
            yield from (json.dumps(content, ensure_ascii=False) + "\n" for content in found)
            continue
        for _, output in answers:
            number += 1
            for each in (output, *output.others) if n_best > 1 else ():
                yield f"{number}\t{each.score:.4f}\t{on_one_line(each.text)}\n"
            if n_best == 1:
                yield on_one_line(output.text) + "\n"
    say_empty(num_empty, source.location)


def outputs_json(answers: Iterator[tuple[Pair, Output]], aligner: Aligner, *, n_best: int) -> Iterator[dict[str, Any]]:
    """Each source with its output, or with its best outputs, and the alignment, as JSON values."""
    while part := list(islice(answers, ALIGNED)):
        for (pair, output), alignment in zip(part, aligner(part), strict=True):
            content = {"source": list(pair.sources) if len(pair.sources) > 1 else pair.sources[0], **output.as_json()}
            if n_best > 1:
                content["outputs"] = [each.as_json() for each in (output, *output.others)]
            if alignment is not None:
                content |= alignment.as_json()
            yield content


def on_one_line(text: str) -> str:
    """The text with a blank in place of each line end and tab."""
    return text.replace("\r", " ").replace("\n", " ").replace("\t", " ")


def score_lines(writer: Writer[Pair], source: PairSource, *, as_json: bool) -> Iterator[str]:
    """A line for each pair: the nats of the target, its tokens, the target; or a JSON object."""
    for pair, target, nats, tokens in writer.surprisal(source):
        if as_json:
            yield json.dumps(surprisal_json(pair, target, nats, tokens), ensure_ascii=False)
        else:
            yield f"{nats:.4f}\t{tokens}\t{on_one_line(target)}"


def surprisal_json(pair: Pair, target: str, nats: float, tokens: int) -> dict[str, Any]:
    """The surprisal of a target as JSON values."""
    source = pair.sources[0] if len(pair.sources) == 1 else list(pair.sources)
    return {"source": source, "target": target, "nats": round(nats, 6), "tokens": tokens}
