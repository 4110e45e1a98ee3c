"""The recipe and the entry of the task. This module does not import torch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ensue.extensions.frames.recipe import CLASSIFICATION, FrameClassificationRecipe
from ensue.models.specification import Table
from ensue.recipe.tables import SOLVER_KEYS


class MiniRocketHead(Table):
    """The table `[head]`: the features of a series, and the logistic regression on them."""

    num_features: Annotated[int, Field(ge=84, le=100_000)] = 9_996
    """The number of features of a series, rounded down to a multiple of the 84 kernels."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every label has the same total weight in the loss, however rare it is."""


class MiniRocketRecipe(FrameClassificationRecipe):
    """The recipe of a classifier of frames by MiniRocket."""

    what: ClassVar[str] = "classifier of frames by MiniRocket"
    begins: ClassVar[bool] = False
    unused_keys: ClassVar[tuple[str, ...]] = SOLVER_KEYS

    task: Literal["frame-classification-minirocket"] = "frame-classification-minirocket"  # type: ignore[assignment]
    head: MiniRocketHead = MiniRocketHead()  # type: ignore[assignment]

    def training_problems(self) -> Iterator[str]:
        yield from super().training_problems()
        is_random = any(getattr(self.features, key) for key in ("noise", "dropout", "shift", "stretch", "filter"))
        if self.encoder.kind != "none" or is_random:
            yield 'needs encoder.kind = "none" and features without random changes or a filter'

    def describe(self) -> str:
        return f"MiniRocket with {self.head.num_features:,} features"


TASK = replace(
    CLASSIFICATION, recipe=MiniRocketRecipe, parts="ensue.extensions.minirocket.classification:MiniRocketParts",
    job="ensue.extensions.minirocket.classification:MiniRocketJob",
    pipeline="ensue.extensions.minirocket.classification:MiniRocketPipeline", commands=("predict", "evaluate"),
)  # fmt: skip
