"""Series with their captions, read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ensue.data.frames.series import Series
from ensue.tasks.captioning.recipe import CaptioningRecipe
from ensue.tasks.contract.chunks import MOST_ATTENDED, check_read, most_read
from ensue.tasks.frames.data import check_image

LEAVE = "cut it, or leave it out"


class Captioned(NamedTuple):
    """A series and the captions that are right for it, of which there may be none."""

    series: Series
    targets: tuple[str, ...] = ()


def captioned(series: Iterable[Series], separator: str) -> Iterator[Captioned]:
    """Series with their captions. If a file comes several times in a row, these are captions of one image."""
    for _, group in groupby(series, key=lambda one: (one.name, one.place)):
        several = list(group)
        yield Captioned(several[0], tuple(caption for one in several for caption in captions_of(one, separator)))


def captions_of(series: Series, separator: str) -> tuple[str, ...]:
    """The captions of a series, between which the separator stands. Raises DataError for none, and for an empty one."""
    if series.per_frame:
        raise series.error(f"{series.name}: a label for each frame; expected a caption of the whole")
    if not series.labels:
        advice = "data.labels names their column in a table of paths"
        raise series.error(f"{series.name}: no caption; {advice}")
    (whole,) = series.labels
    captions = tuple(part.strip() for part in (whole.split(separator) if separator else [whole]))
    if not all(captions):
        raise series.error(f"{series.name}: an empty caption")
    return captions


def check_looked_at(series: Series, recipe: CaptioningRecipe, rows: int) -> None:
    """Raises DataError unless an image has the `rows` (0: any) and the colors that the model reads."""
    if recipe.reads_images:
        check_image(series, colors=recipe.grid.colors, key="grid.colors", rows=rows)


def check_caption(series: Series, tokens: int, recipe: CaptioningRecipe) -> None:
    """Raises DataError, with its file, if a caption has more tokens than the decoder reads."""
    path, line = series.place
    most = most_read(recipe.decoder, MOST_ATTENDED)
    check_read(
        "a caption of tokens", tokens, most, recipe.decoder, table="decoder", advice=LEAVE, path=path, line=line or 0
    )
