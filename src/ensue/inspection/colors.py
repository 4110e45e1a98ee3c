"""Pale colors of labels, from a hash of their names. Exported programs have a copy of this file."""

import colorsys
import zlib


def choose_color(label: str) -> str:
    """Return the color of a label in hexadecimal. The labels B-PER and I-PER have the color of PER."""
    hue = zlib.crc32((label.partition("-")[2] or label).encode()) % 360 / 360
    red, green, blue = colorsys.hls_to_rgb(hue, 0.85, 0.65)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
