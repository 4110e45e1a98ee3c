"""The parts of a captioner: what its images look like, and the tokenizer of its captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ensue.models.build_frames import build_captioner
from ensue.models.captioner import Captioner
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, SizeOrZero
from ensue.tasks.captioning.recipe import CaptioningRecipe
from ensue.tasks.frames.model import FrameParts, read_frames_seen
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
