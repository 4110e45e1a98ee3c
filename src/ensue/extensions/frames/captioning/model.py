"""The parts of a captioner: what its images look like, and the tokenizer of its captions; series with captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field

from ensue.extensions.frames.captioning import CaptioningRecipe
from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.models.captioner import Captioner, build_captioner
from ensue.extensions.frames.tasks.data import check_image
from ensue.extensions.frames.tasks.model import FrameParts, read_frames_seen
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, SizeOrZero
from ensue.tasks.contract.chunks import MOST_ATTENDED, check_read, most_read
from ensue.text.special_tokens import TokenizerWithSpecials


class CaptioningConfig(Config):
    """`config.json`."""

    target_size: Size
    rows: SizeOrZero
    """The rows of an image; 0: the source is no image, and may have any number of frames."""
    ratio: Annotated[float, Field(gt=0, lt=1e9)]
    """Tokens for a frame, which hardly a training caption exceeds."""


@dataclass(frozen=True)
class CaptionerParts(FrameParts):
    """The parts of a captioner."""

    config: ClassVar[type[Config]] = CaptioningConfig
    target: TokenizerWithSpecials
    rows: int

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        target = run.read_json("tokenizer.json", TokenizerWithSpecials.from_json)
        size, expected = target.vocabulary_size, run.config["target_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(read_frames_seen(run), target, run.config["rows"])

    def files(self) -> dict[str, Any]:
        return {**super().files(), "tokenizer.json": self.target.to_json()}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [f"ensue predict {path} FILE > captions", f"ensue evaluate {path} FILE --json"]

    def build(self, recipe: CaptioningRecipe) -> Captioner:
        return build_captioner(
            self.features(recipe), recipe.grid, recipe.encoder, recipe.directions, recipe.tokens, recipe.decoder,
            recipe.attention, recipe.head, rows=self.rows, target_size=self.target.vocabulary_size,
        )  # fmt: skip


class Captioned(NamedTuple):
    """A series and the captions that are right for it, of which there may be none."""

    series: Series
    targets: tuple[str, ...] = ()


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


def check_looked_at(series: Series, rows: int, recipe: CaptioningRecipe) -> None:
    """Raises DataError unless an image has the `rows` (0: any) and the colors that the model reads."""
    if recipe.reads_images:
        check_image(series, colors=recipe.grid.colors, key="grid.colors", rows=rows)


def check_caption(series: Series, tokens: int, recipe: CaptioningRecipe) -> None:
    """Raises DataError, with its file, if a caption has more tokens than the decoder reads."""
    path, line = series.place
    most = most_read(recipe.decoder, MOST_ATTENDED)
    check_read(
        "a caption of tokens",
        tokens,
        most,
        recipe.decoder,
        table="decoder",
        advice="cut it, or leave it out",
        path=path,
        line=line or 0,
    )
