"""From a file to a stream of text: decompression, decoding, and errors with their place."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from encodings.aliases import aliases
from pathlib import Path
from typing import BinaryIO, cast

from ensue.data.files import readable
from ensue.errors import DataError, nearest
from ensue.hub import PREFIX
from ensue.processor import memory

BLOCK_BYTES = 1 << 20
MAX_CHARACTERS = 1 << 24
"""A longer line, record or text is an error: a quote that is not closed or a file without line ends must not fill the
memory."""
MAX_COLUMNS = 1 << 14
"""A row with more columns is an error. A spreadsheet has so many at most."""
MAX_RATIO, RATIO_BYTES = 100, 1 << 21
"""A file that is compressed more than `MAX_RATIO` to one is an error from so many bytes on: a few kilobytes must not
fill memory and time. Text is compressed 2 to 50 to one."""
COMPRESSED = {".xz", ".gz"}
MARK = "\ufeff"
"""The byte order mark, decoded."""
MARKS = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
"""The byte order marks with which a text in these encodings begins."""
OF_HOSTS = {"idna", "punycode"}
"""Encodings of host names. Python lists them with those of texts; their time grows with the square of the length."""

_AS_CSV = "a spreadsheet ({}); save the sheet as CSV in UTF-8"
_ZIP = b"PK\x03\x04"
_ZIPPED = {
    b"xl/": _AS_CSV.format("Excel, .xlsx"),
    b"opendocument.spreadsheet": _AS_CSV.format("OpenDocument, .ods"),
    b"word/": "a Word document (.docx); save it as text in UTF-8",
}
_BINARY = {
    _ZIP: "a zip archive; unpack it first",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel or Word file (.xls, .doc); save it as CSV or text in UTF-8",
    b"PAR1": "a Parquet file; ensue prepare reads it for language models; labeled data: name it .parquet",
    b"ARROW1": "an Arrow file; save it as CSV or JSON lines",
    b"%PDF-": "a PDF; save its text in UTF-8",
    b"\x1f\x8b": "compressed by gzip; with a name that ends in .gz it is read",
    b"\xfd7zXZ": "compressed by xz; with a name that ends in .xz it is read",
    b"BZh": "compressed by bzip2; unpack it, or compress it as .gz or .xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it, or compress it as .gz or .xz",
    b"SQLite format 3\0": "an SQLite database; save the table as CSV or JSON lines",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x93NUMPY": "a numpy array",
}
"""Binary formats by their first bytes (a zip by what is in it), with what a person may do."""


def checked_encoding(name: str) -> str:
    """The canonical name of an encoding. Raises DataError if there is none of that name that turns bytes into text."""
    try:
        encoding = codecs.lookup(name)
        codecs.getincrementaldecoder(name)().decode(b"")
    except (LookupError, ValueError, TypeError, AssertionError):
        encoding = None
    is_text = encoding is not None and encoding._is_text_encoding  # "hex" and "rot13", which Python lists too, are not
    if encoding is None or not is_text or encoding.name in OF_HOSTS:
        known = {alias.replace("_", "-") for alias in {*aliases, *aliases.values()}}
        raise DataError(f'unknown encoding "{name[:40]}"{nearest(name[:40], sorted(known))}')
    return encoding.name


def decoded(path: Path, encoding: str, *, marked: bool = False) -> Iterator[str]:
    """The text of a file in blocks, exactly as it is; unless `marked`, without a UTF-8 byte order mark at its start.

    Raises DataError for bytes that `encoding` does not allow (with line and column), damaged compression, unreadable
    files, and a data set, which has rows in place of text.
    """
    if str(path).startswith(PREFIX):
        raise DataError("a data set; ensue prepare --column reads a column of it for language models", path)
    return text_of(blocks(path), str(path), encoding, marked=marked)


def text_of(blocks: Iterable[bytes], name: str, encoding: str, *, marked: bool = False) -> Iterator[str]:
    """`decoded` for bytes in blocks, of which the last one is empty; `name` is for messages."""
    decoder = codecs.getincrementaldecoder("utf-8" if encoding == "utf-8-sig" else encoding)()
    line, column, at_start, binary, opening = 1, 1, True, "", b""
    for number, block in enumerate(blocks):
        if number == 0 and (binary := _binary_format(block)) and b"\0" in block:
            raise DataError(binary, name)
        opening += block[: 4 - len(opening)]
        before = decoder.getstate()
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            if binary:
                raise DataError(binary, name) from None
            if not isinstance(error, UnicodeDecodeError) or not opening.startswith(MARKS.get(encoding, b"")):
                raise DataError(f"not {encoding.upper()} (it begins without a byte order mark)", name, line) from None
            decoder.setstate(before)
            valid = max(0, error.start - (len(error.object) - len(block)))  # the decoder may have kept some bytes
            text = ""
            with suppress(UnicodeError):  # what stands before may be wrong by itself
                text = _without_mark(decoder.decode(block[:valid]), encoding, at_start)
            raise _undecodable(name, encoding, error, *_advance(line, column, text)) from None
        if text:
            plain = _without_mark(text, encoding, at_start)
            at_start = False
            line, column = _advance(line, column, plain)
            text = text if marked else plain
        if text:
            yield text


def blocks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file in blocks, the last one empty."""
    size = 0
    with _reading(path), _open(path) as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            if path.suffix.lower() in COMPRESSED and size > max(RATIO_BYTES, MAX_RATIO * path.stat().st_size):
                raise DataError(f"compressed more than {MAX_RATIO} to 1; unpack it if this is what you want", path)
            yield block
    yield b""


def whole_bytes(path: Path) -> bytes:
    """The decompressed bytes of a file, all at once. Raises DataError for more than half of the machine's memory."""
    found, size, most = [], 0, memory() / 2
    for block in blocks(path):
        found.append(block)
        size += len(block)
        if size > most:
            raise DataError(f"more than {most:,.0f} bytes, half of this machine's memory", path)
    return b"".join(found)


def whole_text(path: Path, encoding: str) -> str:
    """The text of a file. Raises DataError like `decoded`, for a NUL character, and for more than `MAX_CHARACTERS`."""
    text = joined(decoded(path, encoding), str(path))
    if "\0" in text:
        raise DataError("a NUL character; expected text", path)
    return text


def joined(parts: Iterable[str], name: str) -> str:
    """The parts of a text as one. Raises DataError for more than `MAX_CHARACTERS`."""
    found, length = [], 0
    for part in parts:
        found.append(part)
        length += len(part)
        if length > MAX_CHARACTERS:
            raise DataError(f"more than {MAX_CHARACTERS:,} characters", name)
    return "".join(found)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with readable(path):
        try:
            yield
        except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"damaged, or no {path.suffix} file ({error})", path) from error


def _open(path: Path) -> BinaryIO:
    match path.suffix.lower():
        case ".xz":
            return cast(BinaryIO, lzma.open(path))
        case ".gz":
            return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


def _without_mark(text: str, encoding: str, at_start: bool) -> str:
    return text.removeprefix(MARK) if at_start and encoding.startswith("utf-8") else text


def _advance(line: int, column: int, text: str) -> tuple[int, int]:
    """Line and column (both from 1) behind `text`."""
    lines = text.count("\n")
    return line + lines, len(text) - text.rfind("\n") if lines else column + len(text)


def _undecodable(name: str, encoding: str, error: UnicodeDecodeError, line: int, column: int) -> DataError:
    byte = error.object[error.start]
    what = f"not {encoding.upper()} (byte 0x{byte:02x} in column {column})"
    if (line, column) == (1, 1) and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        advice = "--encoding utf-16", " (in training --set data.encoding=utf-16)", " reads it"
    elif encoding.startswith("utf-8") and _fits(error.object, "cp1252"):
        advice = "Windows' Western European is --encoding cp1252", " (in training --set data.encoding=cp1252)", ""
    else:
        advice = "name the file's own with --encoding", " (in training --set data.encoding=...)", ""
    option, training, rest = advice
    return DataError(f"{what}; {option}{training}{rest}", name, line, options={training: ""})


def _fits(block: bytes, encoding: str) -> bool:
    """Whether these bytes are text in that encoding, without control characters other than of lines and columns."""
    try:
        return not any(ord(sign) < 32 and sign not in "\t\n\r\f\v" for sign in block.decode(encoding))
    except UnicodeDecodeError:
        return False


def _binary_format(start: bytes) -> str:
    """The kind of a file that begins with these bytes of a known binary format, and what to do; "" for another file."""
    what = next((what for magic, what in _BINARY.items() if start.startswith(magic)), "")
    if what == _BINARY[_ZIP]:
        inside = (what for part, what in _ZIPPED.items() if part in start)
        what = next(inside, what)
    return what
