"""The check that the frames of a series are the rows of an image."""

from __future__ import annotations

from ensue.data.frames.series import Series


def check_image(series: Series, *, colors: int, key: str, rows: int = 0) -> None:
    """Raises DataError unless frames are rows of pixels with so many `colors`, which `key` of the recipe sets, and as
    many as `rows` (0: any).
    """
    count, width = series.frames.shape
    if width % colors:
        raise series.error(f"{series.name}: rows of {width:,} numbers are no pixels of {colors:,} numbers each ({key})")
    if rows and count != rows:
        raise series.error(
            f"{series.name}: an image of {count:,} rows; expected {rows:,}, since all images have one size"
        )
