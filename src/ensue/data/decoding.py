"""Decompression and decoding of files to text in blocks. Errors name the line and column."""

import codecs
import gzip
import io
import lzma
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from encodings.aliases import aliases
from pathlib import Path
from typing import Any

from ensue.data.files import os_errors
from ensue.errors import DataError, nearest
from ensue.extension import is_address
from ensue.processor import memory
from ensue.version import package_text

BLOCK_BYTES = 1 << 20
MAX_CHARACTERS = 1 << 24
"""The maximum length of a line, a record or a text. It bounds the memory for a file without line ends."""
MAX_COLUMNS = 1 << 14
"""The maximum number of columns in a row, as in spreadsheets."""
MAX_RATIO, RATIO_BYTES = 100, 1 << 21
"""The maximum compression ratio of files above `RATIO_BYTES`, which bounds memory. The ratio of text is 2 to 50."""
COMPRESSED = {".xz", ".gz"}
BOM = "\ufeff"
"""The byte order mark, decoded."""
BOMS = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}
"""The byte order marks of encodings that require one."""
HOST_ENCODINGS = {"idna", "punycode"}
"""Encodings of host names, which Python lists as text encodings. Decoding them takes quadratic time."""

_MIN_NULS = 8
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_UNLIKELY = re.compile(r"(?<=[^\W\d])[^\x00-\x7f\w’](?=[^\W\d])|(?<=[a-zß-ÿ])[À-ÞŒŠŽŸ]")
"""Matches a symbol between two letters, and a capital after a small letter. Both are rare in the right encoding."""
_ZIP = b"PK\x03\x04"
_ZIPPED = {
    b"xl/": "a spreadsheet (Excel, .xlsx); save the sheet as CSV in UTF-8",
    b"opendocument.spreadsheet": "a spreadsheet (OpenDocument, .ods); save the sheet as CSV in UTF-8",
    b"word/": "a Word document (.docx); save it as text in UTF-8",
}
"""Descriptions of formats that are zip archives, by a name of a file in the archive."""
_BINARY = {
    _ZIP: "a zip archive; unpack it first",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel or Word file (.xls, .doc); save it as CSV or text in UTF-8",
    b"PAR1": "a Parquet file; rename it to end in .parquet",
    b"ARROW1": "an Arrow file; save it as CSV or JSON lines", b"%PDF-": "a PDF; save its text in UTF-8",
    b"\x1f\x8b": "compressed by gzip; rename it to end in .gz",
    b"\xfd7zXZ": "compressed by xz; rename it to end in .xz",
    b"BZh": "compressed by bzip2; unpack it, or compress it as .gz or .xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it, or compress it as .gz or .xz",
    b"SQLite format 3\0": "an SQLite database; save the table as CSV or JSON lines", b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image", b"\x93NUMPY": "a numpy array",
}  # fmt: skip
"""Descriptions of binary formats with a remedy, by their first bytes."""


def check_encoding(name: str) -> str:
    """Return the canonical name of a text encoding. Raises DataError for an unknown encoding."""
    try:
        encoding = codecs.lookup(name)
        codecs.getincrementaldecoder(name)().decode(b"")
    except (LookupError, ValueError, TypeError, AssertionError):
        encoding = None
    is_text = encoding is not None and encoding._is_text_encoding  # "hex" and "rot13" are not text encodings
    if encoding is None or not is_text or encoding.name in HOST_ENCODINGS:
        names = {alias.replace("_", "-") for alias in {*aliases, *aliases.values()} - {name}}
        raise DataError(f'unknown encoding "{name[:40]}"{nearest(name[:40], sorted(names))}')
    return encoding.name


def decode(path: Path, encoding: str, *, marked: bool = False) -> Iterator[str]:
    """Yield the text of a file in blocks, with a UTF-8 byte order mark only if `marked`.

    The encoding "" is UTF-8 for files whose encoding the user cannot set. Raises DataError for invalid bytes (with line
    and column), damaged compression, unreadable files, and the address of a data set, which has rows instead of text.
    """
    if is_address(path):
        raise DataError("a data set; ensue prepare --column reads a column of it for language models", path)
    return decode_blocks(read_blocks(path), str(path), encoding, marked=marked)


def decode_blocks(blocks: Iterable[bytes], name: str, encoding: str, *, marked: bool = False) -> Iterator[str]:
    """Decode blocks of bytes like `decode`. The last block is empty. `name` is the name of the file in messages.

    If the first block with a line end has only `\\r`, as in files of the classic Mac OS, each `\\r` becomes `\\n`.
    """
    decoder = codecs.getincrementaldecoder("utf-8" if encoding in ("", "utf-8-sig") else encoding)()
    line, column, at_start, binary, head, line_end = 1, 1, True, "", b"", ""
    for number, block in enumerate(blocks):
        if number == 0 and (binary := _binary_format(block)) and b"\0" in block:
            raise DataError(binary, name)
        head += block[: 4 - len(head)]
        before = decoder.getstate()
        try:
            text = decoder.decode(block, final=not block)
            if number == 0 and encoding[:5] in ("", "utf-8") and _utf_16(block):
                raise UnicodeDecodeError("utf-8", block, block.index(0), block.index(0) + 1, "UTF-16")
        except UnicodeError as error:
            if binary:
                raise DataError(binary, name) from None
            if not isinstance(error, UnicodeDecodeError) or not head.startswith(BOMS.get(encoding, b"")):
                raise DataError(f"not {encoding.upper()} (no byte order mark at the beginning)", name, line) from None
            decoder.setstate(before)
            num_buffered = len(error.object) - len(block)  # bytes of the previous block
            valid = max(0, error.start - num_buffered)
            text = ""
            with suppress(UnicodeError):  # the buffered bytes may be invalid, too
                text = _strip_mark(decoder.decode(block[:valid]), encoding, at_start)
            raise _decoding_error(name, encoding, error, *_position_after(line, column, text)) from None
        if not line_end:
            line_end = "\n" if "\n" in text else "\r" if "\r" in text[:-1] else ""
        if text:
            text = text.replace("\r", "\n") if line_end == "\r" else text
            plain = _strip_mark(text, encoding, at_start)
            at_start = False
            line, column = _position_after(line, column, plain)
            text = text if marked else plain
        if text:
            yield text


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in blocks; the last block is empty.

    Raises DataError for damaged compression, and for a compression ratio above `MAX_RATIO`, before the first block if
    the ratio of the first `RATIO_BYTES` is too high.
    """
    size, unverified, is_compressed = 0, list[bytes](), path.suffix.lower() in COMPRESSED
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix.lower(), lambda file: file)
    with os_errors(path), path.open("rb") as stored, opener(stored) as file:
        try:
            while block := file.read(BLOCK_BYTES):
                size += len(block)
                unverified.append(block)
                if is_compressed and size > max(RATIO_BYTES, MAX_RATIO * stored.tell()):
                    raise DataError(f"a compression ratio above {MAX_RATIO}; if the file is trusted, unpack it", path)
                if not is_compressed or size > RATIO_BYTES:
                    yield from unverified
                    unverified.clear()
        except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"damaged, or not a {path.suffix} file ({error})", path) from error
    yield from [*unverified, b""]


def load_bytes(path: Path) -> bytes:
    """Return the decompressed bytes of a file. Raises DataError above half of the machine's memory."""
    content, size, limit = [], 0, memory() / 2
    for block in read_blocks(path):
        content.append(block)
        size += len(block)
        if size > limit:
            raise DataError(f"more than {limit:,.0f} bytes, half of this machine's memory", path)
    return b"".join(content)


def load_text(path: Path, encoding: str) -> str:
    """Return the text of a file.

    Raises DataError like `decode`, for a NUL character, and for more than `MAX_CHARACTERS` characters.
    """
    text = join_chunks(decode(path, encoding), str(path))
    if "\0" in text:
        raise DataError("a NUL character; expected text", path)
    return text


def join_chunks(chunks: Iterable[str], name: str) -> str:
    """Join the chunks of a text. Raises DataError for more than `MAX_CHARACTERS` characters."""
    texts, length = [], 0
    for chunk in chunks:
        texts.append(chunk)
        length += len(chunk)
        if length > MAX_CHARACTERS:
            raise DataError(f"more than {MAX_CHARACTERS:,} characters", name)
    return "".join(texts)


def split_lines(chunks: Iterable[str], name: str) -> Iterator[str]:
    """Yield the lines of a text with their line ends. Raises DataError for a line above `MAX_CHARACTERS` characters."""
    open_line, size, number = list[str](), 0, 1
    for chunk in chunks:
        if end := chunk.rfind("\n") + 1:
            lines = io.StringIO("".join([*open_line, chunk[:end]]), newline="\n").readlines()
            open_line, size, number = [], 0, number + len(lines)
            yield from lines
        if end < len(chunk):
            open_line.append(chunk[end:])
            size += len(chunk) - end
        if size > MAX_CHARACTERS:
            problem = f"a line of more than {MAX_CHARACTERS:,} characters; expected a line end"
            raise DataError(problem, name, number)
    if open_line:
        yield "".join(open_line)


def _strip_mark(text: str, encoding: str, at_start: bool) -> str:
    return text.removeprefix(BOM) if at_start and encoding[:5] in ("", "utf-8") else text


def _position_after(line: int, column: int, text: str) -> tuple[int, int]:
    lines = text.count("\n")
    return line + lines, len(text) - text.rfind("\n") if lines else column + len(text)


def _decoding_error(name: str, encoding: str, error: UnicodeDecodeError, line: int, column: int) -> DataError:
    byte = error.object[error.start]
    problem = f"not {encoding.upper() or 'UTF-8'} (byte 0x{byte:02x} in column {column})"
    if not encoding:
        return DataError(f"{problem}; save the file as UTF-8", name, line)
    option, value = "give its encoding with --encoding", "..."
    likely = _utf_16(error.object) or (_likely_encoding(error) if encoding.startswith("utf-8") else None)
    if likely is not None:
        option, value = f"for {likely[1]} try --encoding {likely[0]}", likely[0]
    training = f" (in training --set data.encoding={value})"
    return DataError(f"{problem}; {option}{training}", name, line, options={training: ""})


def _utf_16(data: bytes) -> tuple[str, str] | None:
    """Return the kind of UTF-16 and its description; None for other bytes.

    Without a mark, UTF-16 is recognized by NULs (upper bytes of ASCII characters), most at even or odd positions.
    """
    if data[:2] in BOMS["utf-16"]:
        return "utf-16", "UTF-16"
    rare, (count, name) = sorted([(data[::2].count(0), "utf-16-be"), (data[1::2].count(0), "utf-16-le")])
    text = data[: 1 << 14].decode(name, "ignore") if count >= max(4 * rare[0], len(data) / 50, _MIN_NULS) else "\0"
    return None if _CONTROL.search(text) else (name, "UTF-16 without a byte order mark")


def _likely_encoding(error: UnicodeDecodeError) -> tuple[str, str] | None:
    """Return the encoding whose usual letters are most frequent around the error, and its description, or None."""
    start = max(error.object.rfind(b"\n", 0, error.start) + 1, error.start - (1 << 13))  # the error is in the sample
    sample = error.object[start : start + (1 << 14)]
    sample = sample[: sample.rfind(b"\n", error.start - start) + 1] or sample
    shares: dict[tuple[str, str] | None, float] = {None: 0.1}
    for name, (description, letters) in tomllib.loads(package_text("data/detection/encodings.toml")).items():
        with suppress(UnicodeDecodeError, LookupError):  # a codec may be missing, or its import may fail
            text = sample.decode(name)
            words = [word for word in re.findall(r"\w+", text) if not word.isascii()]
            is_latin = 2 * sum(any(map(str.isascii, word)) for word in words) >= len(words)
            is_possible = (letters[0] < "\u0250") == is_latin and (is_latin or len(words) > 2)
            signs = [sign for sign in _UNLIKELY.sub("\x80", text) if sign > "\x7f"]
            share = is_possible * sum(map(letters.count, signs)) / max(1, len(signs))
            if not _CONTROL.search(text):
                shares[name, description] = max(share * (10 if len(text) < len(sample) else 1), (name == "cp1252") / 5)
    return max(shares, key=lambda key: shares[key])


def _binary_format(start: bytes) -> str:
    """Describe the binary format that begins with these bytes, with a remedy; "" for other formats."""
    description = next((description for magic, description in _BINARY.items() if start.startswith(magic)), "")
    if description == _BINARY[_ZIP]:
        return next((inner for name, inner in _ZIPPED.items() if name in start), description)
    return description
