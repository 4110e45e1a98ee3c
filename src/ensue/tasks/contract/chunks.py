"""How much is read at once: the longest text or series that a model reads whole, and chunks of a stream of texts.

So a file of any length is read in constant memory. Many processes or machines can work on shards of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ensue.data.sources import is_stream, stream_name
from ensue.errors import DataError, EnsueError
from ensue.models.specification import TransformerEncoder, WordsEncoderSpecification

MOST_ATTENDED = 20_000
"""The most positions for attention, whose time grows with their square."""


MOST_GENERATED = 1 << 28
"""The most numbers that are generated at once, a gigabyte."""


def check_generated(numbers: int) -> None:
    """Raises EnsueError if these are more numbers than a model generates at once."""
    if numbers > MOST_GENERATED:
        raise EnsueError(f"{numbers:,} numbers in all; up to {MOST_GENERATED:,} are generated at once")


def most_read(encoder: WordsEncoderSpecification, otherwise: int) -> int:
    """The most positions that it reads; `otherwise` is the bound of layers without attention."""
    if not isinstance(encoder, TransformerEncoder):
        return otherwise
    return min(MOST_ATTENDED, encoder.context) if encoder.positions == "learned" else MOST_ATTENDED


def check_read(
    what: str,
    count: int,
    most: int,
    encoder: WordsEncoderSpecification,
    *,
    table: str,
    advice: str,
    path: str,
    line: int,
) -> None:
    """Raises DataError, with file and line, if `count` is more than `most`. `what` names the text and its units."""
    if count <= most:
        return
    is_context = isinstance(encoder, TransformerEncoder) and most == encoder.context
    bound = f"{most:,} ({table}.context)" if is_context else f"{most:,}"
    unit, _, things = what.partition(" of ")
    message = f"{unit} of {count:,} {things}; this model ({encoder.kind}) reads up to {bound}: {advice}"
    raise DataError(message, path or None, line or None)


Item = TypeVar("Item")
MOST = 1_000_000
EVERY = range(1 << 62)
"""The chunks of a whole."""


def chunks(
    items: Iterable[Item],
    num_words: Callable[[Item], int] = lambda item: 0,
    *,
    most_words: int = 1,
    most_items: int | None = None,
) -> Iterator[list[Item]]:
    """The items in order, in lists. A list ends with the item that brings it to `most_words` words or `most_items`."""
    chunk: list[Item] = []
    words = 0
    for item in items:
        chunk.append(item)
        words += num_words(item)
        if words >= most_words or len(chunk) == most_items:
            yield chunk
            chunk, words = [], 0
    if chunk:
        yield chunk


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `count` parts. What all parts say, in their order, is what the whole says, byte for
    byte: a part consists of whole chunks, and what is computed in a chunk does not depend on where it is computed.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str | None, location: str) -> Shard:
        """The shard "i/N" of a location; None: all of it. Raises EnsueError for another text, and for a stream."""
        if text is None:
            return WHOLE
        found = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
        shard = cls(*map(int, found.groups())) if found else cls(0, 0)
        if not 1 <= shard.number <= shard.count <= MOST:
            raise EnsueError(f'--shard takes i/N with i from 1 to N, such as 3/8; found "{text}"')
        if is_stream(location):
            raise EnsueError(f"--shard needs a file, whose chunks are counted first; found {stream_name(location)}")
        return shard

    @property
    def is_last(self) -> bool:
        """Whether it is the last part, which also has what stands behind the last text."""
        return self.number == self.count

    def chunks(self, whole: Callable[[], Iterable[object]]) -> range:
        """The numbers of its chunks, from 0. Those of the whole are counted, unless it is the whole."""
        if self.count == 1:
            return EVERY
        total = sum(1 for _ in whole())
        return range(total * (self.number - 1) // self.count, total * self.number // self.count)

    def items(self, whole: Callable[[], Iterable[Item]]) -> Iterator[Item]:
        """Its items, where each item is a chunk."""
        chosen = self.chunks(whole)
        return islice(iter(whole()), chosen.start, None if self.is_last else chosen.stop)


WHOLE = Shard()
