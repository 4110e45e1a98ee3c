"""The base class of pipelines that generate a text for each source: search, ensembles, surprisal, scores, lines."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, Unpack

import numpy as np

from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair, PairSource
from ensue.decode.candidates import Candidate
from ensue.decode.search import BeamSearch, Hypothesis, SearchOptions
from ensue.errors import EnsueError, check_field_names
from ensue.inspection.notebook import Shown
from ensue.metrics.generation import GenerationScores, compare_texts, score_texts, scored_items
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.runs import reporter
from ensue.stored import copy_with
from ensue.tasks.contract.chunks import ALL_CHUNKS, UNSHARDED, Shard
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.sequence_to_sequence import task as sequences
from ensue.tasks.sequence_to_sequence.task import Sources
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokens import are_unsplit


class TokenAlignment(NamedTuple):
    """An alignment of the tokens of an output with the tokens of a source."""

    source: tuple[str, ...]
    output: tuple[str, ...]
    positions: tuple[int, ...]
    """For each output token, the index of the source token with the largest attention weight."""

    def as_json(self) -> dict[str, Any]:
        """Return the alignment as JSON values."""
        return {"source_tokens": list(self.source), "tokens": list(self.output), "alignment": list(self.positions)}


@dataclass(frozen=True, repr=False)
class Output(Shown):
    """An output for a source.

    Attributes:
        text: The text.
        score: Σ ln P / length^α. Outputs are ranked by their score.
        log_probability: Σ ln P of the tokens and the end symbol, in nats.
        is_complete: False if the output was truncated at the maximum length.
        others: The next best outputs.
        ids: The ids of the tokens, without the end symbol.
        lacks: The glossary targets that are missing in the text, and the forbidden targets in the text, marked by `!`.
    """

    text: str
    score: float
    log_probability: float
    is_complete: bool = True
    others: "tuple[Output, ...]" = field(default=(), repr=False)
    ids: tuple[int, ...] = field(default=(), repr=False)
    lacks: tuple[str, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the output as JSON values, without `others`."""
        return {
            "text": self.text, "score": round(self.score, 6), "log_probability": round(self.log_probability, 6),
            "is_complete": self.is_complete, **({"lacks": list(self.lacks)} if self.lacks else {}),
        }  # fmt: skip

    def _rows(self) -> list[dict[str, Any]]:
        ranked = enumerate((self, *self.others), start=1)
        return [{**({"rank": rank} if self.others else {}), **output.as_json()} for rank, output in ranked]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.text!r} ({self.score:.3f})"


def symbols_of(coder: PairCoder, columns: Sequence[str], *, is_source: bool = False) -> Callable[[int], str]:
    """Return a function from ids of sources or outputs to symbols, including words that are copied from `columns`."""
    side, words = coder.source if is_source else coder.target, coder.unknown_words(columns)
    copied = {id: word for word, id in words.items()}
    return lambda id: copied.get(id) or symbol_of(side, id)


def symbol_of(tokenizer: TokenizerWithSpecials, id: int) -> str:
    """Return the symbol of an id for display. A subword inside of a word begins with a dot, and a space is ␣."""
    symbol = tokenizer.symbol(id)
    if tokenizer.tokenizer.kind in ("bpe", "numbered") and symbol[:1].isalnum():
        return f"·{symbol}"
    return symbol.strip() or {" ": "␣", "\n": "⏎"}.get(symbol, "␣")


def score_table(scores: dict[str, dict[str, Any]]) -> list[str]:
    """Return a table in Markdown of the scores by data, with the signatures of BLEU."""
    names = {name for row in scores.values() for name in row}
    columns = {name: column for name, column in GenerationScores.on_card.items() if name in names}
    lines = reporter.score_table(scores, columns)
    signatures = {row["signature"] for row in scores.values() if "signature" in row}
    return [*lines, *(f"\n{signature}" for signature in signatures)]


def sample_lines(outputs: Iterable[tuple[str, str, str]]) -> str:
    """Return a line for each source with its output and its reference."""
    return "\n".join(f"{_clip(source)} → {_clip(text)} ({_clip(reference)})" for source, text, reference in outputs)


MAX_LINE_CHARACTERS = 100


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[: MAX_LINE_CHARACTERS - 3]}..."


ItemT = TypeVar("ItemT", bound=Any)
"""A source: a named tuple whose field `targets` has its references, or is empty."""


class WriterAdapter(ABC):
    """A wrapper of a `Writer`, which changes sources, the search, or outputs."""

    name: ClassVar[str]
    """The name of the adapter in messages."""

    def adapt(self, item: Any) -> Any:
        """Return the source that the writer reads for `item`."""
        return item

    @abstractmethod
    def generate_outputs(self, writer: Any, items: Sequence[Any]) -> list[Output]:
        """Return the outputs of sources; `writer` is the writer without this adapter."""

    def warning(self) -> str:
        """Return a warning about the outputs so far; "" without a warning."""
        return ""


class Writer(Predictor, Generic[ItemT]):
    """A pipeline that generates a text for each source. Runs with equal tokens can form an ensemble."""

    unit: str
    """The name of a source in messages."""

    recipe: Any
    adapters: tuple[WriterAdapter, ...] = ()
    """The adapters; the last adapter is the outermost."""

    def init_generation(self, target: TokenizerWithSpecials, ratio: float) -> None:
        """Initialize generation, after `Pipeline.__init__`. `ratio` is the number of target tokens per source token."""
        self.models: tuple[TextModel, ...] = (self.model,)
        self.recipes: tuple[Any, ...] = (self.recipe,)
        self.target, self.ratio = target, ratio
        self.search = sequences.search_of(self.recipe.search, target)

    @property
    @abstractmethod
    def ensemble_key(self) -> Any:
        """The properties that are equal in all runs of an ensemble, as JSON values."""

    @property
    def max_output_tokens(self) -> int | None:
        """The maximum number of output tokens of all models; None: no limit."""
        return sequences.max_output_tokens(*(recipe.decoder for recipe in self.recipes))

    @abstractmethod
    def sources(self, items: Sequence[ItemT]) -> Sources:
        """Return the encoded sources. Raise DataError for a source that is too long."""

    @abstractmethod
    def encode(self, items: Sequence[tuple[ItemT, str]]) -> tuple[Sources, Ragged]:
        """Return the encoded sources, and a target of each source. Raise DataError for a text that is too long."""

    def texts_of(self, item: ItemT) -> Sequence[str]:
        """Return the texts of a source; empty for a source that is not a text."""
        return ()

    def decode(self, ids: Sequence[int], item: ItemT) -> str:
        """Return the text of output ids."""
        return self.target.decode(ids)

    def with_search(self, **changes: Unpack[SearchOptions]) -> Self:
        """Return a copy with changed fields of `BeamSearch`. Raise EnsueError for unknown names and invalid values."""
        check_field_names("a search", changes, BeamSearch)
        return copy_with(self, search=replace(self.search, **changes))

    def with_adapter(self, adapter: WriterAdapter, *, is_innermost: bool = False) -> Self:
        """Return a copy with an outermost or innermost adapter, which replaces an adapter of the same class."""
        others = [other for other in self.adapters if type(other) is not type(adapter)]
        return copy_with(self, adapters=(adapter, *others) if is_innermost else (*others, adapter))

    def lacking(self, *, least: int = 0) -> str:
        return "; ".join(filter(None, (adapter.warning() for adapter in self.adapters)))

    def with_others(self, *others: Self) -> Self:
        """Return an ensemble, which has the search of this model. Raise EnsueError for models with other tokens."""
        for other in others:
            if other.ensemble_key != self.ensemble_key:
                raise EnsueError(f"{other.run}: has other tokens than {self.run}; expected runs with the same tokens")
        ensemble = copy(self)
        ensemble.models = (*self.models, *(model for other in others for model in other.models))
        ensemble.recipes = (*self.recipes, *(recipe for other in others for recipe in other.recipes))
        ensemble.ratio = max([self.ratio, *(other.ratio for other in others)])
        return ensemble

    def answers(self, items: Iterable[ItemT], chosen: range = ALL_CHUNKS) -> Iterator[tuple[ItemT, Output]]:
        """Yield each source with its output, in order and in constant memory. `chosen` are the chunks of a shard."""
        for chunk in islice(sequences.in_chunks(items), chosen.start, chosen.stop):
            yield from zip(chunk, self.generate_outputs(chunk), strict=True)

    def generate_outputs(self, items: Sequence[ItemT]) -> list[Output]:
        """Return the outputs of sources, through all adapters. The output of an empty source is empty."""
        item_texts = [[*self.texts_of(item)] for item in items]
        if empty := {number for number, texts in enumerate(item_texts) if texts and not "".join(texts).strip()}:
            others = [item for number, item in enumerate(items) if number not in empty]
            outputs = iter(self.generate_outputs(others) if others else ())
            return [Output("", 0.0, 0.0) if number in empty else next(outputs) for number, _ in enumerate(items)]
        if self.adapters:
            *inner, outermost = self.adapters
            return outermost.generate_outputs(copy_with(self, adapters=tuple(inner)), items)
        return list(map(self.output, items, self.hypotheses(self.sources(items))))

    def hypotheses(self, sources: Sources, *, record: list[Candidate] | None = None) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source. For a single source, all candidates are added to `record`."""
        models, search, limits = self.models, self.search, self.limits(sources)
        return sequences.find_outputs(models, sources, search, target=self.target, limits=limits, record=record)

    def limits(self, sources: Sources) -> list[int]:
        """Return the maximum length of the output of each source."""
        return sequences.output_limits(sources, self.ratio, self.search, self.max_output_tokens)

    def output(self, item: ItemT, hypotheses: Sequence[Hypothesis]) -> Output:
        """Return the output of the best hypothesis, with the outputs of other hypotheses in `others`."""
        best, *others = (
            Output(self.decode(ids, item), score, log_probability, is_complete, ids=ids)
            for ids, score, log_probability, is_complete, _ in hypotheses
        )
        return replace(best, others=tuple(others))

    def surprisal(self, items: Iterable[ItemT]) -> Iterator[tuple[ItemT, str, float, int]]:
        """Yield (source, target, surprisal in nats, number of tokens) for each target of each source, in order."""
        for chunk in sequences.in_chunks((item, target) for item in items for target in item.targets):
            sources, targets = self.encode(chunk)
            nats = np.zeros(len(chunk))
            begin_id = self.target.begin_id
            for rows, token_nats in sequences.mean_surprisals(self.models, sources, targets, begin_id=begin_id):
                nats[rows] = token_nats.double().sum(1).cpu().numpy()
            for (item, target), total, tokens in zip(chunk, nats, targets.lengths, strict=True):
                yield item, target, float(total), int(tokens)

    def score_pairs(self, pairs: Sequence[ItemT], *, compare: Self | None = None) -> GenerationScores:
        """Return the scores of outputs for sources with references. `compare` is a model for a significance test."""
        texts, references, nats = self._generate_and_score(pairs)
        tokenize = self._choose_tokenization(references)
        scores = score_texts(texts, references, tokenize=tokenize, nats=nats)
        if compare is None:
            return scores
        others = [output.text for _, output in compare.answers(pairs)]
        return replace(scores, comparison=compare_texts(texts, others, references, tokenize=tokenize))

    def score_items(self, items: Sequence[ItemT]) -> ScoredItems:
        """Return the scores of each source, for a significance test."""
        texts, references, nats = self._generate_and_score(items)
        return scored_items(texts, references, tokenize=self._choose_tokenization(references), nats=nats)[0]

    def _generate_and_score(
        self, items: Sequence[ItemT]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[float, int]]]:
        """Return outputs, references, and the surprisal and the number of tokens of each first reference."""
        if not items:
            raise EnsueError(f"there is nothing to score: no {self.unit}")
        texts = [output.text for _, output in self.answers(items)]
        firsts = [item._replace(targets=item.targets[:1]) for item in items]
        return texts, [item.targets for item in items], [row[2:] for row in self.surprisal(firsts)]

    def _choose_tokenization(self, references: Sequence[Sequence[str]]) -> str:
        """Return sacrebleu's tokenization: "char" if most texts have no spaces, "none" for words, else "13a"."""
        texts = [reference for source_references in references for reference in source_references]
        if are_unsplit(texts) or 2 * sum(" " in text for text in texts) < len(texts):
            return "char"
        return "none" if self.target.tokenizer.kind == "words" else "13a"

    def describe_search(self) -> str:
        """Return a description of the search."""
        search = self.search
        name = "greedy" if search.width == 1 else f"beam {search.width}, length penalty {search.length_penalty:g}"
        return name + (f", {len(self.models)} models together" if len(self.models) > 1 else "")

    def protocol(self, scores: GenerationScores) -> str:
        search = self.describe_search()
        if "tok:char" in scores.signature:
            return f"{search}; BLEU and edits of characters, since most references have no blanks"
        return f"{search}; BLEU of the tokens in the file" if "tok:none" in scores.signature else search


Aligner = Callable[[Sequence[tuple[Pair, Output]]], list[TokenAlignment | None]]
"""A function from sources and outputs to their alignments."""
CHUNK_OUTPUTS = 256
"""The number of outputs that are aligned at a time."""


def output_lines(
    writer: Writer[Pair], source: PairSource, *, is_interactive: bool, aligner: Aligner | None = None,
    shard: Shard = UNSHARDED,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of `ensue predict`, in order. If `is_interactive`, each source is answered before the next source
    is read. With an `aligner`, a line is a JSON object. With `n_best` above 1 a line has the number of the source, the
    score and the text. Otherwise a line is a text.
    """
    chunks = ([pair] for pair in source) if is_interactive else [source]
    chunk_range = shard.chunks(lambda: sequences.in_chunks(source))
    n_best, number = writer.search.n_best, chunk_range.start * sequences.CHUNK_SOURCES
    for chunk in chunks:
        answers = writer.answers(chunk, chunk_range)
        if aligner is not None:
            objects = outputs_json(answers, aligner, n_best=n_best)
            yield from (json.dumps(content, ensure_ascii=False) + "\n" for content in objects)
            continue
        for _, output in answers:
            number += 1
            for ranked in (output, *output.others) if n_best > 1 else ():
                yield f"{number}\t{ranked.score:.4f}\t{on_one_line(ranked.text)}\n"
            if n_best == 1:
                yield on_one_line(output.text) + "\n"


def outputs_json(answers: Iterator[tuple[Pair, Output]], aligner: Aligner, *, n_best: int) -> Iterator[dict[str, Any]]:
    """Yield each source with its outputs and their alignment, as JSON values."""
    while chunk := list(islice(answers, CHUNK_OUTPUTS)):
        for (pair, output), alignment in zip(chunk, aligner(chunk), strict=True):
            content = {"source": list(pair.sources) if len(pair.sources) > 1 else pair.sources[0], **output.as_json()}
            if n_best > 1:
                content["outputs"] = [ranked.as_json() for ranked in (output, *output.others)]
            if alignment is not None:
                content |= alignment.as_json()
            yield content


def on_one_line(text: str) -> str:
    """Replace each line end and tab of a text by a space."""
    return text.translate(dict.fromkeys(map(ord, "\r\n\t"), " "))


def score_lines(writer: Writer[Pair], source: PairSource, *, as_json: bool) -> Iterator[str]:
    """Yield a line for each target: its surprisal in nats, its number of tokens and its text, or a JSON object."""
    for pair, target, nats, tokens in writer.surprisal(source):
        if as_json:
            yield json.dumps(surprisal_json(pair, target, nats, tokens), ensure_ascii=False)
        else:
            yield f"{nats:.4f}\t{tokens}\t{on_one_line(target)}"


def surprisal_json(pair: Pair, target: str, nats: float, tokens: int) -> dict[str, Any]:
    """Return the surprisal of a target as JSON values."""
    source = pair.sources[0] if len(pair.sources) == 1 else list(pair.sources)
    return {"source": source, "target": target, "nats": round(nats, 6), "tokens": tokens}
