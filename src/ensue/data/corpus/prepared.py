"""A text as ids in a folder: shards, their index and the tokenizer. It is written once and read by any training.

Who writes it again has it verified, and what is damaged or missing made anew.

index.json        what the ids are, and for each shard its ids, characters and checksum
tokenizer.json    the tokenizer
train/00000.ids   shards (`token_file.py`); valid/ those of the validation text
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ensue.data.corpus.cache import TextToIds
from ensue.data.corpus.sharded_tokens import ShardedTokens, TokenShard
from ensue.data.corpus.token_file import TokenFile, header_of, write_tokens
from ensue.data.files import locations_in
from ensue.data.sources import TextSource
from ensue.errors import DataError, RunError
from ensue.parsing import ParseError, parse_json
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer

FORMAT = 1
INDEX = "index.json"
PARTS = ("train", "valid")
Encode = Callable[[Iterable[str]], Iterator[Any]]
"""From pieces of a text to the ids of each, in order."""


def is_prepared(location: str) -> bool:
    """Whether a location is a folder of prepared ids. Raises DataError for one among several."""
    names, files = locations_in(location), (INDEX, "tokenizer.json")
    prepared = [name for name in names if name and all((Path(name) / file).is_file() for file in files)]
    if prepared and len(names) > 1:
        raise DataError("ids that `ensue prepare` has written are read alone; expected text", prepared[0])
    return bool(prepared)


class Prepared:
    """A folder of ids. Raises DataError if it is damaged, of another version, or not complete."""

    def __init__(self, folder: str | Path, *, is_whole: bool = True) -> None:
        self.folder = Path(folder)
        self.index = self._index()
        if is_whole and not self.index.get("complete"):
            raise DataError("not complete; the same `ensue prepare` goes on with it", self.folder)

    def _index(self) -> dict[str, Any]:
        path = self.folder / INDEX
        try:
            index = parse_json(path.read_bytes())
            if index["format_version"] != FORMAT:
                raise DataError(f"of another version ({index['format_version']}; this ensue reads {FORMAT})", path)
            shards = [shard for name in PARTS for shard in index["parts"].get(name, [])]
            if not all(map(_is_shard, shards)) or not isinstance(index["tokenizer"], str):
                raise DataError("damaged: not what `ensue prepare` writes", path)
        except (ParseError, KeyError, TypeError, AttributeError, OSError) as error:
            raise DataError(f"damaged: {type(error).__name__} {error}", path) from None
        found: dict[str, Any] = index
        return found

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the ids. Raises DataError if it is not the one that was written."""
        path = self.folder / "tokenizer.json"
        try:
            tokenizer = load_tokenizer(path)
        except RunError as error:
            raise DataError(str(error)) from None
        if digest_of(tokenizer.to_json()) != self.index["tokenizer"]:
            raise DataError("another tokenizer than that of the ids", path)
        return tokenizer

    def tokens(self, part: str) -> TokenFile | None:
        """The ids of "train" or "valid"; None if there are none. Every shard is looked at, and none is read."""
        shards = self.index["parts"].get(part)
        if not shards:
            return None
        found = self.shards(part)
        for shard in found:
            shard.check()
        return ShardedTokens(
            found, unknown=sum(s["unknown"] for s in shards), characters=sum(s["characters"] for s in shards)
        )

    def shards(self, part: str) -> tuple[TokenShard, ...]:
        """The shards of a part."""
        return _shards(self.folder, self.index, part)

    def verify(self) -> int:
        """Reads all shards, and returns how many they are. Raises DataError for the first whose ids have changed."""
        every = [shard for part in PARTS for shard in self.shards(part)]
        for shard in every:
            shard.verify()
        return len(every)

    def fingerprint(self) -> str:
        """A digest of the index, and by its checksums of all ids."""
        return digest_of(self.index)


def prepare(
    folder: Path,
    plan: dict[str, Any],
    texts: dict[str, tuple[TextSource, int, int | None]],
    tokenizer: Tokenizer,
    reads: TextToIds,
    *,
    encode: Encode,
    shard_tokens: int,
    say: Callable[[str], object] = lambda line: None,
) -> Prepared:
    """Writes the ids of the characters [start, stop) of each part's text, by shards of about `shard_tokens`.

    A folder that was left in the middle is gone on with, after its last shard; `plan` is what may not change meanwhile.
    The shards that are there are read, and those that are damaged or missing are made anew. `encode` may work in other
    processes; `say` hears a line now and then. Raises DataError for a folder with another plan or other files, and for
    a disk that is full.
    """
    with _disk_errors_told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise DataError("another process prepares here", folder) from None
        try:
            index = _begun(folder, {**plan, "shard_tokens": shard_tokens,
                                    "tokenizer": digest_of(tokenizer.to_json()), "ids": digest_of(reads.to_json())},
                           tokenizer)  # fmt: skip
            making = _Making(folder, index, reads, encode, shard_tokens)
            making.verify(texts, say)
            if not index.get("complete"):
                for part, (source, start, stop) in texts.items():
                    for shards in making.rest_of(part, source, start, stop):
                        _write(folder, index)
                        ids = sum(shard["tokens"] for shard in shards)
                        characters = sum(shard["characters"] for shard in shards)
                        say(f"{part}: {len(shards):,} shards, {ids:,} ids of {characters:,} characters")
                _write(folder, {**index, "complete": True})
        finally:
            lock.release()
    return Prepared(folder)


@contextmanager
def _disk_errors_told(folder: Path) -> Iterator[None]:
    """Tells in one line that nothing can be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError("the disk is full; free some space, and the same command goes on", folder) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.EEXIST):
            raise DataError(f"cannot be written ({error.strerror})", error.filename or folder) from None
        raise


def _begun(folder: Path, plan: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The index of a folder that was left in the middle, or a new one."""
    if (folder / INDEX).exists():
        index = Prepared(folder, is_whole=False).index
        for key, asked in json.loads(json.dumps(plan)).items():
            if index.get(key) != asked:
                raise DataError(
                    f"prepared otherwise: {key} was {index.get(key)!r:.120}, asked for {asked!r:.120}; choose another "
                    "--out",
                    folder,
                )
        try:
            assert Prepared(folder, is_whole=False).tokenizer
        except DataError:
            save_tokenizer(tokenizer, folder / "tokenizer.json")  # which is that of the ids, by its digest
        return index
    names = {entry.name for entry in folder.iterdir()} - {".lock", "tokenizer.json", f"{INDEX}.partial"}
    if other := next((name for name in sorted(names) if not name.endswith(".partial")), ""):
        raise DataError(f"not empty (it holds {other}); choose another --out", folder)
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    index = {"format_version": FORMAT, **plan, "parts": {}}
    _write(folder, index)
    return index


@dataclass(frozen=True)
class _Making:
    """How shards are made, and the index of those that are there."""

    folder: Path
    index: dict[str, Any]
    reads: TextToIds
    encode: Encode
    shard_tokens: int

    def verify(self, texts: dict[str, tuple[TextSource, int, int | None]], say: Callable[[str], object]) -> None:
        """Reads the shards that are there, and makes anew those that are not as they were written.

        Raises DataError if the text has other ids now.
        """
        if count := sum(map(len, self.index["parts"].values())):
            say(f"reading the {count:,} shards that are there")
        for part, (source, stop, _) in texts.items():
            known = self.index["parts"].get(part, ())
            for shard, entry in zip(_shards(self.folder, self.index, part), known, strict=True):
                start, stop = stop, stop + entry["characters"]  # noqa: PLW2901  # it goes on from here
                try:
                    shard.verify()
                except DataError as error:
                    say(f"{error}; it is made anew")
                    (self.folder / part).mkdir(exist_ok=True)
                    pieces = _Pieces(source.chunks(start, stop))
                    if self._written(shard.path, pieces.of(self.encode(pieces))) != entry:
                        shard.path.unlink()
                        raise DataError("the text has other ids now; choose another --out", shard.path) from None

    def rest_of(self, part: str, source: TextSource, start: int, stop: int | None) -> Iterator[list[dict[str, Any]]]:
        """Writes the shards of a part that are not there, adds each to the index, and yields all of the part."""
        shards = self.index["parts"].setdefault(part, [])
        read = start + sum(shard["characters"] for shard in shards)
        if stop is not None and read >= stop:
            return
        pieces = _Pieces(source.chunks(read, stop))
        encoded = pieces.of(self.encode(pieces))
        (self.folder / part).mkdir(exist_ok=True)
        while shard := self._written(self.folder / part / f"{len(shards):05}.ids", _some(encoded, self.shard_tokens)):
            shards.append(shard)
            yield shards

    def _written(self, path: Path, pieces: Iterable[tuple[Any, int]]) -> dict[str, Any]:
        """Writes a shard, and returns its entry of the index; {} if there is nothing to write."""
        partial = path.with_name(path.name + ".partial")
        try:
            write_tokens(partial, pieces, vocabulary_size=self.reads.vocabulary_size, unknown_id=self.reads.unknown_id)
            header = header_of(partial)
            if not header.tokens and not header.characters:
                return {}
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return {"file": path.name, "tokens": header.tokens, "unknown": header.unknown,
                "characters": header.characters, "crc32": header.crc}  # fmt: skip


class _Pieces:
    """Pieces of a text, with the lengths of those that were taken and not written yet."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self.chunks = chunks
        self.lengths: list[int] = []

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks:
            self.lengths.append(len(chunk))
            yield chunk

    def of(self, encoded: Iterable[Any]) -> Iterator[tuple[Any, int]]:
        """The ids of the pieces, which come in their order, with their lengths."""
        return ((ids, self.lengths.pop(0)) for ids in encoded)


def _some(pieces: Iterator[tuple[Any, int]], most: int) -> Iterator[tuple[Any, int]]:
    """Pieces until they have `most` ids or more."""
    count = 0
    for ids, characters in pieces:
        count += len(ids)
        yield ids, characters
        if count >= most:
            return


def _write(folder: Path, index: dict[str, Any]) -> None:
    partial = folder / f"{INDEX}.partial"
    partial.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / INDEX)


def _shards(folder: Path, index: dict[str, Any], part: str) -> tuple[TokenShard, ...]:
    shards = index["parts"].get(part, [])
    return tuple(TokenShard(folder / part / s["file"], s["tokens"], s["crc32"]) for s in shards)


def _is_shard(shard: dict[str, Any]) -> bool:
    """Whether an entry of the index names a file beside it, with counts."""
    numbers = [shard[name] for name in ("tokens", "unknown", "characters", "crc32")]
    return re.fullmatch(r"[0-9]{5,}\.ids", shard["file"]) is not None and all(
        type(number) is int and number >= 0 for number in numbers
    )


def digest_of(value: Any) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
