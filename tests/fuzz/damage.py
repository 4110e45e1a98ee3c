"""Damage of bytes and text: truncated, duplicated, exchanged, altered, or with odd content."""

from collections.abc import Callable
from random import Random

BITS = [
    b"\0", b"\r", b"\r\n", b"\n", b"\n\n", b"\n\n\n\n", b"\t", b"\t\t", b" ", b"\xff", b"\xc3", b"\xef\xbb\xbf",
    b"\xff\xfe", b"\xed\xa0\x80", b'"', b"'", b",", b";", b"|", b"=", b"_", b"#", b"{", b"}", b"[", b"]", b":", b"\\",
    b"\\u0000", b"\\ud800", b"\\", b"null", b"NaN", b"1e999", b"-1", b"Infinity", b"true", b'{"a":' * 50, b"[" * 400,
    b"[" * 100_000, b"9" * 30, b"9" * 5000, b"1.1", b"0-1", b"3-2", b"1-9999999999", b"\x0b", b"\x0c", b"\x1c",
    b"\x85", b"\xe2\x80\xa8", b"\xe2\x80\x8f", b"\xcc\x81" * 40, b"\xf0\x9f\x98\x80",
    b"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9", b"__label__", b"__label__\t", b"B-", b"I-LOC", b"O", b"S-X",
    b"-DOCSTART- -X- O O\n", b"# newdoc\n", b"SpaceAfter=No", b"\x1b[31m", b"x" * 5000, b"x" * 140_000, b"x " * 3000,
    b'"' * 7, b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"PK\x03\x04", b"\x1a",
]  # fmt: skip


def damaged(choose: Random, content: bytes, *, max_changes: int = 4) -> bytes:
    """Return the content after some damage, or unchanged."""
    for _ in range(choose.randint(0, max_changes)):
        content = choose.choice(DAMAGES)(choose, content)
    return content


def _stretch(choose: Random, content: bytes) -> tuple[int, int]:
    start = choose.randint(0, len(content))
    return start, min(len(content), start + int(choose.expovariate(1 / 20)) + 1)


def _inserted(choose: Random, content: bytes) -> bytes:
    start, _ = _stretch(choose, content)
    return content[:start] + choose.choice(BITS) + content[start:]


def _replaced(choose: Random, content: bytes) -> bytes:
    start, end = _stretch(choose, content)
    return content[:start] + choose.choice(BITS) + content[end:]


def _removed(choose: Random, content: bytes) -> bytes:
    start, end = _stretch(choose, content)
    return content[:start] + content[end:]


def _doubled(choose: Random, content: bytes) -> bytes:
    start, end = _stretch(choose, content)
    return content[:start] + content[start:end] * choose.choice([2, 3, 50]) + content[end:]


def _flipped(choose: Random, content: bytes) -> bytes:
    if not content:
        return content
    index = choose.randrange(len(content))
    return content[:index] + bytes([content[index] ^ 1 << choose.randrange(8)]) + content[index + 1 :]


def _cut(choose: Random, content: bytes) -> bytes:
    return content[: _stretch(choose, content)[0]]


def _beheaded(choose: Random, content: bytes) -> bytes:
    return content[_stretch(choose, content)[0] :]


def _exchanged(choose: Random, content: bytes) -> bytes:
    """Replace a sequence by another everywhere."""
    return content.replace(choose.choice(BITS[:30]), choose.choice(BITS[:30]))


def _other_lines(choose: Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    match choose.randrange(5):
        case 0:
            choose.shuffle(lines)
        case 1:
            lines.insert(choose.randrange(len(lines)), choose.choice(lines))
        case 2:
            del lines[choose.randrange(len(lines))]
        case 3:
            lines = lines[:1] * choose.choice([1, 2, 300])
        case 4:
            index = choose.randrange(len(lines))
            fields = lines[index].rstrip(b"\n").split(b"\t")
            choose.shuffle(fields)
            lines[index] = b"\t".join(fields) + b"\n"
    return b"".join(lines)


def _nothing_left(choose: Random, content: bytes) -> bytes:
    return choose.choice([b"", b"\n", b" ", b"\r", b"\0", *BITS])


DAMAGES: list[Callable[[Random, bytes], bytes]] = [
    *[_inserted, _replaced, _removed, _doubled, _flipped, _other_lines] * 3, _cut, _beheaded, _exchanged, _nothing_left,
]  # fmt: skip
