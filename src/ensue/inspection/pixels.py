"""Images in a page: pixels as a PNG, which needs no other library."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import numpy as np
from numpy.typing import NDArray


def data_address(image: NDArray[np.float32]) -> str:
    """The address under which a page has an image (rows, columns, 1 or 3 colors), with values from 0 to 1."""
    return f"data:image/png;base64,{b64encode(png((image.clip(0, 1) * 255).round().astype(np.uint8))).decode()}"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG of pixels (rows, columns, 1 or 3 colors)."""
    rows, columns, colors = pixels.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", columns, rows, 8, {1: 0, 3: 2}[colors], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
