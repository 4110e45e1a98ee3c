"""The tables that the recipes of all tasks share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ensue.models.specification import describe_encoder

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000_000)]
Rows = Annotated[int, Field(ge=1, le=10_000_000)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Budget = Annotated[float, Field(ge=1e-6, le=1e12)]

ORDER = (
    "about",
    "source",
    "measured",
    "task",
    "data",
    "tokenizer",
    "features",
    "tokens",
    "encoder",
    "directions",
    "head",
    "train",
)
"""In which a recipe is written; a table that is not named here comes after `encoder`."""
BUDGETS = ("steps", "epochs", "tokens", "seconds")


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class DataRecipe(Table):
    """Where the data are; each task adds how they are read."""

    @field_validator("train", "valid", "test", mode="after")
    @classmethod
    def _is_text(cls, path: str) -> str:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise ValueError(f"is a path that is not UTF-8, which a recipe cannot hold: {path!r}") from None
        return path

    train: str = ""
    """A file, a folder or a glob; .xz and .gz are read as they are."""
    valid: str = ""
    """The data for validation; empty: a part of the training data."""
    test: str = ""
    """Data that are scored once, at the end."""
    encoding: str = "utf-8"
    """How the files' bytes are read as text."""
    valid_fraction: Share = 0.1
    """Share of the training data that is kept for validation where `valid` is empty: their end, and of a classifier's
    texts, which are often sorted by label, a random part."""


class TrainRecipe(Table):
    """How long and how a model is trained."""

    steps: Count | None = None
    """Budget: optimizer steps."""
    epochs: Budget | None = None
    """Budget: times through the training data."""
    tokens: Count | None = None
    """Budget: tokens that are read in training; of labeled sentences and texts the words."""
    seconds: Budget | None = None
    """Exactly one of these four is the budget. Seconds of training proper; such a run cannot be repeated exactly."""

    batch_size: Rows = 32
    """Rows (stretches of a text, sentences, texts) that are read side by side."""
    accumulate: Rows = 1
    """The batch goes through in this many parts, with the same result and less memory."""

    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with momentum."""
    learning_rate: Amount = 3e-3
    """The largest one, at the end of the warm-up."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls to zero over the budget, or that it does not."""
    warmup: Share = 0.02
    """Share of the budget over which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """On matrices; biases and norms are left alone."""
    beta1: Share = 0.9
    """AdamW's first moment, or SGD's momentum."""
    beta2: Share = 0.99
    """AdamW's second moment; SGD has none."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Largest global norm of the gradient; 0 clips nothing."""

    validations: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """How often the validation data are scored, evenly over the budget."""
    patience: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Stop after this many validations without a better score; 0: never."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints; there is also one at each validation."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """Of weights, batches, dropout and samples."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the matrix products; auto: what is faster on this machine, as its profile says."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(BUDGETS)}; found {' and '.join(given) or 'none'}")
        return self

    @property
    def budget(self) -> str:
        """The name of the budget that is given."""
        return next(name for name in BUDGETS if getattr(self, name) is not None)


class Recipe(Table):
    """The whole document. `about`, `source` and `measured` are for people."""

    what: ClassVar[str]
    """What the model is called: a "language model", a "tagger"."""

    about: str = ""
    """What it is, for people."""
    source: str = ""
    """Where it comes from, for people."""
    measured: str = ""
    """What it reached, for people."""
    task: str
    """What is learned; it decides which tables and keys there are."""
    data: DataRecipe
    train: TrainRecipe

    @property
    def layers(self) -> Any:
        """The table of the encoder that takes most of a step's time; None where there is none."""
        return getattr(self, "encoder", None)

    def describe(self) -> str:
        """The model's layers in words: `lstm 2×256`."""
        return "a model of its own" if self.layers is None else describe_encoder(self.layers)

    def to_toml(self) -> str:
        """All of it, with every default written out: what a run is taken up again by."""
        document = without_none(self.model_dump())
        places = {key: place for place, key in enumerate(ORDER)}
        tables = sorted(document, key=lambda key: places.get(key, places["encoder"]))
        return tomli_w.dumps({key: document[key] for key in tables}, multiline_strings=True)


def without_none(value: Any) -> Any:
    """The document without its empty places, which TOML has not."""
    if isinstance(value, dict):
        return {key: without_none(part) for key, part in value.items() if part is not None}
    return value
