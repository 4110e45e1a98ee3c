"""A pale color for each label, always the same. Exported programs carry this file, which imports nothing."""

from __future__ import annotations

import colorsys
import zlib


def color_of(label: str) -> str:
    """The color of a label in hexadecimal. Labels of a span scheme have the color of their class."""
    name = label.partition("-")[2] or label
    hue = zlib.crc32(name.encode()) % 360 / 360
    red, green, blue = colorsys.hls_to_rgb(hue, 0.85, 0.65)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
