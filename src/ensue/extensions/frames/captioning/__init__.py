"""Captioning: a text for an image, or for another series of vectors."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ensue.extensions.frames.models.frame_specification import CaptionAttention, GridSpecification
from ensue.extensions.frames.tasks import Column, FramesData, FramesRecipe, FramesTrain
from ensue.models.specification import EncoderSpecification, NoEncoder, PairTokens, TextHead, describe_encoder
from ensue.recipe.tables import TokenizerRecipe
from ensue.tasks.entry import TaskEntry
from ensue.tasks.sequence_to_sequence.recipe import SearchTable


class CaptionData(FramesData):
    """The table `[data]` of a model that writes captions."""

    labels: Column = "caption"
    """The column of a table of paths with the caption. A path that comes several times has several captions."""
    separator: str = ""
    """The character between several captions of one image; empty: it has one."""


class CaptionTrain(FramesTrain):
    """The table `[train]` of a model that writes captions."""

    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Validation images whose captions are shown at each validation."""


class CaptioningRecipe(FramesRecipe):
    """The recipe of a model that writes captions."""

    what: ClassVar[str] = "captioner"
    reads: ClassVar[str] = "images with captions"

    task: Literal["captioning"] = "captioning"
    data: CaptionData = CaptionData()
    tokenizer: TokenizerRecipe = TokenizerRecipe(kind="words")
    grid: GridSpecification = GridSpecification()
    encoder: EncoderSpecification = NoEncoder(kind="none")
    tokens: PairTokens = PairTokens()
    decoder: EncoderSpecification
    attention: CaptionAttention = CaptionAttention()
    head: TextHead = TextHead()
    search: SearchTable = SearchTable()
    train: CaptionTrain

    @property
    def reads_images(self) -> bool:
        """Whether a series is an image, which becomes a grid."""
        return self.grid.kind != "none"

    def describe(self) -> str:
        """A description such as `grid 16-32-64-128 → lstm 1×256`."""
        grid = [f"grid {'-'.join(map(str, self.grid.channels))}"] if self.reads_images else []
        encoder = [] if isinstance(self.encoder, NoEncoder) else [describe_encoder(self.encoder)]
        return " → ".join([*grid, *encoder, describe_encoder(self.decoder)])

    @property
    def layers(self) -> Any:
        return self.decoder


TASK = TaskEntry(
    recipe=CaptioningRecipe,
    pipeline_tag="image-to-text",
    parts="ensue.extensions.frames.captioning.model:CaptionerParts",
    job="ensue.extensions.frames.captioning.job:CaptioningJob",
    pipeline="ensue.extensions.frames.captioning.pipeline:CaptioningPipeline",
    commands=("predict", "evaluate", "inspect", "score"),
    judged_by=("nats_per_token",),
    files=("frames.json", "tokenizer.json"),
)
