"""Prepared token ids of a text in a folder: shards, their index and the tokenizer.

Another call of `prepare` verifies the folder, and replaces damaged and missing shards.

index.json        the settings (`plan`), and the numbers of ids and characters and the checksum of each shard
tokenizer.json    the tokenizer
train/00000.ids   the shards of the training text (`data/mapped_file.py`)
valid/00000.ids   the shards of the validation text

A shard is mapped at first use. The number of mapped shards is bounded by the limit of open files.
"""

import errno
import json
import os
import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ensue.cache import json_digest
from ensue.data.corpus.cache import TextToIds
from ensue.data.files import locations_in
from ensue.data.mapped_file import FAULT_BYTES, RELEASE_BYTES, TokenFile, check_tokens, header_of, write_tokens
from ensue.data.sources import TextSource
from ensue.errors import DataError, RunError
from ensue.parsing import ParseError, parse_json, read_bounded
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

MAX_OPEN_TEXTS = 4
"""A text maps at most 1 / MAX_OPEN_TEXTS of the process's limit of open files, since several texts may be open."""
MAX_FILES = 1 << 13
"""The maximum number of mapped shards. The system limits maps, too: 65,530 in a process by default on Linux."""


class TokenShard(NamedTuple):
    """A file of ids (`write_tokens`), their number, and their CRC-32."""

    path: Path
    tokens: int
    crc: int

    def open(self) -> TokenFile:
        """Map the ids, which are verified when they are read. Raises DataError for a missing or changed file."""
        self.check()
        with _shard_errors(self.path):
            return TokenFile.open(self.path, checks=True)

    def check(self) -> None:
        """Raise DataError if the file is missing or truncated, or has another header."""
        with _shard_errors(self.path):
            header, size = header_of(self.path), self.path.stat().st_size
        if (header.tokens, header.crc) != (self.tokens, self.crc) or size not in header.sizes:
            raise DataError("a shard that has changed since the text was prepared", self.path)

    def verify(self) -> None:
        """Read the entire file. Raises DataError if it has changed."""
        self.check()
        check_tokens(self.path)


@contextmanager
def _shard_errors(path: Path) -> Iterator[None]:
    """Raise DataError for an OSError within a `with` block."""
    try:
        yield
    except OSError as error:
        remedy = "; `ulimit -n 4096` raises the limit" if error.errno == errno.EMFILE else ""
        raise DataError(f"a shard that cannot be read: {error.strerror or error}{remedy}", path) from None


class _MappedShards:
    """A cache of mapped shards, which closes the least recently used shard first."""

    def __init__(self, shards: tuple[TokenShard, ...]) -> None:
        self._open = lru_cache(_max_open_files(len(shards)))(lambda number: shards[number].open())
        self._touched: WeakSet[TokenFile] = WeakSet()
        self._mapped_bytes = 0
        """An estimate of the mapped bytes in memory, of all shards."""

    def read(self, number: int, start: int, stop: int) -> NDArray[np.int64]:
        file = self._open(number)
        result = file.read(start, stop)
        self._touched.add(file)
        self._mapped_bytes += result.nbytes + 2 * FAULT_BYTES
        if self._mapped_bytes >= RELEASE_BYTES:
            for touched in self._touched:
                touched.release()
            self._touched.clear()
            self._mapped_bytes = 0
        return result


def _max_open_files(requested: int) -> int:
    if resource is None:
        return min(requested, 512)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    needed = MAX_OPEN_TEXTS * min(requested, MAX_FILES)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), limits[1]))
            soft = min(needed, hard)
    return max(1, min(needed, soft) // MAX_OPEN_TEXTS)


class ShardedTokens(TokenFile):
    """The concatenated ids of all shards, in reverse order if `backwards`."""

    def __init__(
        self, shards: tuple[TokenShard, ...], *, unknown: int, characters: int, cache: _MappedShards | None = None,
        backwards: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(np.zeros(0, np.uint8), unknown=unknown, characters=characters)
        self.shards, self.backwards, self._cache = shards, backwards, cache or _MappedShards(shards)
        self.ends = np.cumsum([shard.tokens for shard in shards], dtype=np.int64)
        self._size = int(self.ends[-1]) if shards else 0

    def __len__(self) -> int:
        return self._size

    def reversed(self) -> "ShardedTokens":
        counts = {"unknown": self.unknown, "characters": self.characters}
        return ShardedTokens(self.shards, cache=self._cache, backwards=not self.backwards, **counts)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        assert 0 <= start <= stop <= len(self), f"[{start}, {stop}) of {len(self)} ids"
        return self._read(len(self) - stop, len(self) - start)[::-1] if self.backwards else self._read(start, stop)

    def read_rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        rows = [self.read(start, start + length) for start in starts.tolist()]
        return np.stack(rows) if rows else np.zeros((0, length), np.int64)

    def _read(self, start: int, stop: int) -> NDArray[np.int64]:
        slices = []
        while start < stop:
            number = bisect_right(self.ends, start)
            first = int(self.ends[number]) - self.shards[number].tokens
            end = min(stop, int(self.ends[number]))
            slices.append(self._cache.read(number, start - first, end - first))
            start = end
        return slices[0] if len(slices) == 1 else np.concatenate([np.zeros(0, np.int64), *slices])

    def __repr__(self) -> str:
        return f"ShardedTokens({len(self):,} ids in {len(self.shards):,} shards)"


FORMAT_VERSION = 1
INDEX = "index.json"
SPLITS = ("train", "valid")
Encode = Callable[[Iterable[str]], Iterator[Any]]
"""A function from chunks of a text to the ids of each chunk, in order."""


def is_prepared(location: str) -> bool:
    """Return whether a location is a folder of prepared ids. Raises DataError if it is one of several locations."""
    names, files = locations_in(location), (INDEX, "tokenizer.json")
    prepared = [name for name in names if name and all(os.path.isfile(f"{name}/{file}") for file in files)]
    if prepared and len(names) > 1:
        raise DataError("a folder of `ensue prepare` cannot be read with other data; expected text", prepared[0])
    return bool(prepared)


class PreparedTokens:
    """A folder of prepared ids.

    Raises DataError if the folder is damaged, has another version, or, unless `may_be_incomplete`, is incomplete.
    """

    def __init__(self, folder: str | Path, *, may_be_incomplete: bool = False) -> None:
        self.folder = Path(folder)
        path = self.folder / INDEX
        try:
            index: dict[str, Any] = parse_json(read_bounded(path))
            if (version := index["format_version"]) != FORMAT_VERSION:
                raise DataError(f"unsupported format version {version}; expected {FORMAT_VERSION}", path)
            shards = [shard for name in SPLITS for shard in index["parts"].get(name, [])]
            if not all(map(_is_shard, shards)) or not isinstance(index["tokenizer"], str):
                raise DataError("damaged: not an index of `ensue prepare`", path)
        except (ParseError, KeyError, TypeError, AttributeError, OSError) as error:
            raise DataError(f"damaged: {type(error).__name__} {error}", path) from None
        self.index = index
        if not (may_be_incomplete or self.index.get("complete")):
            raise DataError("incomplete; the same `ensue prepare` continues it", self.folder)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the ids. Raises DataError if its file is missing, damaged or changed."""
        path = self.folder / "tokenizer.json"
        try:
            tokenizer = load_tokenizer(path)
        except RunError as error:
            raise DataError(str(error)) from None
        if json_digest(tokenizer.to_json()) != self.index["tokenizer"]:
            raise DataError("not the tokenizer of the ids", path)
        return tokenizer

    def tokens(self, split: str) -> TokenFile | None:
        """Return the ids of "train" or "valid"; None if there are no ids. The headers of all shards are checked."""
        shards = self.index["parts"].get(split)
        if not shards:
            return None
        files = self.shards(split)
        for shard in files:
            shard.check()
        unknown, characters = (sum(shard[key] for shard in shards) for key in ("unknown", "characters"))
        return ShardedTokens(files, unknown=unknown, characters=characters)

    def shards(self, split: str) -> tuple[TokenShard, ...]:
        """Return the shards of "train" or "valid"."""
        return _shards(self.folder, self.index, split)

    def verify(self) -> int:
        """Read all shards, and return their number. Raises DataError for the first shard that has changed."""
        shards = [shard for split in SPLITS for shard in self.shards(split)]
        for shard in shards:
            shard.verify()
        return len(shards)

    def fingerprint(self) -> str:
        """Return a digest of the index, which contains the checksums of all ids."""
        return json_digest(self.index)


def prepare(
    folder: Path, plan: dict[str, Any], texts: dict[str, tuple[TextSource, int, int | None]], tokenizer: Tokenizer,
    to_ids: TextToIds, *, encode: Encode, shard_tokens: int, notify: Callable[[str], object] = lambda line: None,
) -> PreparedTokens:  # fmt: skip
    """Write the ids of the text of each split, in shards of about `shard_tokens` ids.

    An incomplete folder with an equal `plan`, the settings as JSON values, is completed. Existing shards are verified,
    and damaged or missing shards are replaced. `texts` has the source of each split, and the range of its characters.
    `notify` receives messages about progress. Raises DataError for another plan, other files, or no access.
    """
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise DataError("another `ensue prepare` writes to this folder", folder) from None
        try:
            digests = {"tokenizer": json_digest(tokenizer.to_json()), "ids": json_digest(to_ids.to_json())}
            index = _open_index(folder, {**plan, "shard_tokens": shard_tokens, **digests}, tokenizer)
            writer = _ShardWriter(folder, index, to_ids, encode, shard_tokens)
            writer.verify(texts, notify)
            if not index.get("complete"):
                for split, (source, start, stop) in texts.items():
                    for shards in writer.add_shards(split, source, start, stop):
                        _write_index(folder, index)
                        ids = sum(shard["tokens"] for shard in shards)
                        characters = sum(shard["characters"] for shard in shards)
                        notify(f"{split}: {len(shards):,} shards, {ids:,} ids of {characters:,} characters")
                _write_index(folder, {**index, "complete": True})
        finally:
            lock.release()
    return PreparedTokens(folder)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Raise DataError for a full disk or denied access within a `with` block."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError("the disk is full; free some space and repeat the command", folder) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.EEXIST):
            raise DataError(f"cannot be written ({error.strerror})", error.filename or folder) from None
        raise


def _open_index(folder: Path, plan: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    if (folder / INDEX).exists():
        prepared = PreparedTokens(folder, may_be_incomplete=True)
        for key, value in json.loads(json.dumps(plan)).items():
            if (old := prepared.index.get(key)) != value:
                problem = f"prepared with other settings: {key} was {old!r:.120}, and is now {value!r:.120}"
                raise DataError(f"{problem}; choose another --out", folder)
        try:
            assert prepared.tokenizer
        except DataError:
            save_tokenizer(tokenizer, folder / "tokenizer.json")  # the plan has the digest of this tokenizer
        return prepared.index
    names = {entry.name for entry in folder.iterdir()} - {".lock", "tokenizer.json", f"{INDEX}.partial"}
    if other := next((name for name in sorted(names) if not name.endswith(".partial")), ""):
        raise DataError(f"not empty (found {other}); choose another --out", folder)
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    index = {"format_version": FORMAT_VERSION, **plan, "parts": {}}
    _write_index(folder, index)
    return index


@dataclass(frozen=True)
class _ShardWriter:
    """A writer of shards, which adds them to the index."""

    folder: Path
    index: dict[str, Any]
    to_ids: TextToIds
    encode: Encode
    shard_tokens: int

    def verify(self, texts: dict[str, tuple[TextSource, int, int | None]], notify: Callable[[str], object]) -> None:
        """Verify the existing shards, and replace damaged shards. Raises DataError if the text has changed."""
        if count := sum(map(len, self.index["parts"].values())):
            notify(f"reading the {count:,} existing shards")
        for split, (source, first, _) in texts.items():
            entries, stop = self.index["parts"].get(split, ()), first
            for shard, entry in zip(_shards(self.folder, self.index, split), entries, strict=True):
                start, stop = stop, stop + entry["characters"]
                try:
                    shard.verify()
                except DataError as error:
                    notify(f"{error}; the shard is replaced")
                    (self.folder / split).mkdir(exist_ok=True)
                    if self._write_shard(shard.path, self._encode(source, start, stop)) != entry:
                        shard.path.unlink()
                        problem = "the ids of the text have changed since this shard was written"
                        raise DataError(f"{problem}; choose another --out", shard.path) from None

    def add_shards(self, split: str, source: TextSource, start: int, end: int | None) -> Iterator[list[dict[str, Any]]]:
        shards = self.index["parts"].setdefault(split, [])
        begin = start + sum(shard["characters"] for shard in shards)
        if end is not None and begin >= end:
            return
        encoded = self._encode(source, begin, end)
        folder = self.folder / split
        folder.mkdir(exist_ok=True)
        while shard := self._write_shard(folder / f"{len(shards):05}.ids", _take_shard(encoded, self.shard_tokens)):
            shards.append(shard)
            yield shards

    def _encode(self, source: TextSource, start: int, stop: int | None) -> Iterator[tuple[Any, int]]:
        """Yield the ids of each chunk of a text, and the number of its characters."""
        lengths = deque[int]()  # lengths of the chunks that `encode` has read ahead

        def read() -> Iterator[str]:
            for chunk in source.chunks(start, stop):
                lengths.append(len(chunk))
                yield chunk

        return ((ids, lengths.popleft()) for ids in self.encode(read()))

    def _write_shard(self, path: Path, encoded: Iterable[tuple[Any, int]]) -> dict[str, Any]:
        partial = path.with_name(path.name + ".partial")
        try:
            size, unknown_id = self.to_ids.vocabulary_size, self.to_ids.unknown_id
            write_tokens(partial, encoded, vocabulary_size=size, unknown_id=unknown_id)
            header = header_of(partial)
            if not header.tokens and not header.characters:
                return {}
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        counts = {"tokens": header.tokens, "unknown": header.unknown, "characters": header.characters}
        return {"file": path.name, **counts, "crc32": header.crc}


def _take_shard(encoded: Iterator[tuple[Any, int]], shard_tokens: int) -> Iterator[tuple[Any, int]]:
    count = 0
    for ids, characters in encoded:
        count += len(ids)
        yield ids, characters
        if count >= shard_tokens:
            return


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    partial = folder / f"{INDEX}.partial"
    partial.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / INDEX)


def _shards(folder: Path, index: dict[str, Any], split: str) -> tuple[TokenShard, ...]:
    shards = index["parts"].get(split, [])
    return tuple(TokenShard(folder / split / s["file"], s["tokens"], s["crc32"]) for s in shards)


def _is_shard(shard: dict[str, Any]) -> bool:
    numbers = [shard[name] for name in ("tokens", "unknown", "characters", "crc32")]
    are_valid = all(type(number) is int and number >= 0 for number in numbers)
    return re.fullmatch(r"[0-9]{5,}\.ids", shard["file"]) is not None and are_valid
