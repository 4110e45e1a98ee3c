"""Outputs and surprisals as lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ensue.data.pairs import Pair, PairSource
from ensue.notices import say_empty
from ensue.tasks.contract.windows import WHOLE, Shard
from ensue.tasks.sequence_to_sequence.outputs import Output, TokenAlignment
from ensue.tasks.sequence_to_sequence.sources import WINDOW, in_windows
from ensue.tasks.sequence_to_sequence.writer import Writer

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
    windows = ([pair] for pair in source) if typed else [source]
    chosen = shard.windows(lambda: in_windows(source))
    n_best, number = writer.search.n_best, chosen.start * WINDOW
    num_empty = 0

    def read(pairs: Iterable[Pair]) -> Iterator[Pair]:
        nonlocal num_empty
        for pair in pairs:
            num_empty += not any(map(str.strip, pair.sources))
            yield pair

    for window in windows:
        answers = writer.answers(read(window), chosen)
        if aligner is not None:
            found = outputs_json(answers, aligner, n_best=n_best)
            yield from (json.dumps(content, ensure_ascii=False) + "\n" for content in found)
            continue
        for _, output in answers:
            number += 1
            yield from _lines(output, number, n_best)
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


def _lines(output: Output, number: int, n_best: int) -> Iterator[str]:
    every = (output, *output.others)
    if n_best > 1:
        for each in every:
            yield f"{number}\t{each.score:.4f}\t{on_one_line(each.text)}\n"
    else:
        yield on_one_line(output.text) + "\n"


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
