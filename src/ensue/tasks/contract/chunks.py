"""Limits of the length of an input, chunks of a stream of texts, shards of a file, and progress.

With chunks, a file of any length is read in constant memory. Processes or machines can work on shards of a file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from ensue.data.decoding import COMPRESSED
from ensue.data.files import files_of
from ensue.data.lines import ON_PROGRESS
from ensue.data.sources import is_stream, stream_name
from ensue.errors import DataError, EnsueError
from ensue.models.specification import TransformerEncoder, WordsEncoderSpecification

if TYPE_CHECKING:
    from ensue.runs.reporter import Reporter

MAX_ATTENTION_TOKENS = 20_000
"""The maximum number of positions for attention, whose time grows with the square of the number."""
MAX_GENERATED_NUMBERS = 1 << 28
"""The maximum number of float32 numbers that a model generates at once: a gigabyte."""


def check_generated(numbers: int) -> None:
    """Raise EnsueError if a model would generate more than `MAX_GENERATED_NUMBERS` numbers at once."""
    if numbers > MAX_GENERATED_NUMBERS:
        raise EnsueError(f"a model generates up to {MAX_GENERATED_NUMBERS:,} numbers at once; found {numbers:,}")


def max_positions(encoder: WordsEncoderSpecification, default: int) -> int:
    """Return the maximum number of positions of an encoder; `default` for layers without attention."""
    if not isinstance(encoder, TransformerEncoder):
        return default
    return min(MAX_ATTENTION_TOKENS, encoder.context) if encoder.positions == "learned" else MAX_ATTENTION_TOKENS


def check_num_units(
    text_and_unit: str, count: int, limit: int, encoder: WordsEncoderSpecification, *, table: str, advice: str,
    path: str, line: int,
) -> None:  # fmt: skip
    """Raise DataError, with file and line, if `count` is above `limit`; `text_and_unit`: such as "a text of words"."""
    if count <= limit:
        return
    is_context = isinstance(encoder, TransformerEncoder) and limit == encoder.context
    bound = f"{limit:,} ({table}.context)" if is_context else f"{limit:,}"
    text, _, unit = text_and_unit.partition(" of ")
    message = f"{text} of {count:,} {unit}; this model ({encoder.kind}) reads up to {bound}: {advice}"
    raise DataError(message, path or None, line or None)


Item = TypeVar("Item")
MAX_SHARDS = 1_000_000
MIN_PROGRESS_STEP, MAX_PROGRESS = 0.001, 0.99
"""The minimum increase between two reports of progress from 0 to 1, and the maximum progress before the end."""
ALL_CHUNKS = range(1 << 62)
"""The indices of all chunks of an input with an unknown number of chunks."""


def chunks(
    items: Iterable[Item], num_words: Callable[[Item], int] = lambda item: 0, *, chunk_words: int = 1,
    chunk_items: int | None = None,
) -> Iterator[list[Item]]:  # fmt: skip
    """Yield lists of items. A list ends when it has at least `chunk_words` words, or `chunk_items` items."""
    chunk: list[Item] = []
    words = 0
    for item in items:
        chunk.append(item)
        words += num_words(item)
        if words >= chunk_words or len(chunk) == chunk_items:
            yield chunk
            if (advance := ON_PROGRESS.get()) is not None:
                advance("texts", len(chunk))
            chunk, words = [], 0
    if chunk:
        yield chunk


@contextmanager
def report_progress(name: str, location: Any, progress: "bool | Reporter | None", **totals: float) -> Iterator[None]:
    """Report the progress of the computation in the block to `progress.working` (True: to a new `ProgressBar`).

    `totals` are the numbers of units to complete in the block, by default the bytes of the files of a `location`. If a
    file is compressed, only the beginning and the end of the computation are reported.
    """
    if not progress:
        yield
        return
    from ensue.runs.reporter import ProgressBar  # noqa: PLC0415 (it imports torch, recipes do not)

    reporter, done, reported = ProgressBar() if progress is True else progress, 0.0, 0.0
    if not totals:
        with suppress(EnsueError, OSError, TypeError):
            sizes = (inf if path.suffix.lower() in COMPRESSED else path.stat().st_size for path in files_of(location))
            totals = {"bytes": sum(sizes), "share": 1.0}

    def advance(unit: str, count: float) -> None:
        nonlocal done, reported
        done = min(MAX_PROGRESS, done + count / max(1, totals.get(unit, inf)))
        if done >= reported + MIN_PROGRESS_STEP:
            reported = done
            reporter.working(name, done)

    token = ON_PROGRESS.set(advance)
    try:
        reporter.working(name, 0.0)
        yield
    finally:
        ON_PROGRESS.reset(token)
        reporter.working(name, 1.0)


def with_progress(method: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument `progress` (see `report_progress`) to the method `predict` or `evaluate` of a pipeline. If
    `progress` is a callback, not a bool or a `Reporter`, the method itself receives the callback.
    """
    data_name = list(signature(method).parameters)[1]

    @wraps(method)
    def wrapper(self: Any, *arguments: Any, progress: Any = None, **options: Any) -> Any:
        if not progress or callable(progress):
            return method(self, *arguments, **options | ({"progress": progress} if progress else {}))
        data = arguments[0] if arguments else options.pop(data_name)
        data = [*data] if isinstance(data, Iterator) else data
        totals = {"texts": len(data)} if method.__name__ == "predict" and isinstance(data, Sized) else {}
        with report_progress(method.__name__, data, progress, **totals):
            return method(self, data, *arguments[1:], **options)

    return wrapper


@dataclass(frozen=True)
class Shard:
    """Shard `number` (from 1) of `count` shards. A shard consists of complete chunks, and the output for a chunk does
    not depend on the shard. So the concatenated outputs of all shards have the bytes of the complete output.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str | None, location: str) -> "Shard":
        """Return the shard of a text "i/N", or `UNSHARDED` for None. Raise EnsueError for another text or a stream."""
        if text is None:
            return UNSHARDED
        match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
        shard = cls(*map(int, match.groups())) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.count <= MAX_SHARDS:
            raise EnsueError(f'--shard takes i/N with i from 1 to N, such as 3/8; found "{text}"')
        if is_stream(location):
            raise EnsueError(f"--shard needs a file, whose chunks are counted first; found {stream_name(location)}")
        return shard

    @property
    def is_last(self) -> bool:
        """Whether this is the last shard."""
        return self.number == self.count

    def chunks(self, all_chunks: Callable[[], Iterable[object]]) -> range:
        """Return the range of chunk indices. All chunks are counted, unless there is one shard."""
        if self.count == 1:
            return ALL_CHUNKS
        total = sum(1 for _ in all_chunks())
        return range(total * (self.number - 1) // self.count, total * self.number // self.count)

    def items(self, all_items: Callable[[], Iterable[Item]]) -> Iterator[Item]:
        """Yield the items of the shard. A shard may begin and end at any item."""
        shard = self.chunks(all_items)
        return islice(all_items(), shard.start, None if self.is_last else shard.stop)


UNSHARDED = Shard()
"""The only shard, if the input is not split."""
