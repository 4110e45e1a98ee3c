"""The tables that the recipes of all tasks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import tomli_w
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ensue.data.files import locations_in, one_location
from ensue.models.specification import Path, Share, Table, describe_encoder

Count = Annotated[int, Field(ge=1, le=1_000_000_000_000)]
Rows = Annotated[int, Field(ge=1, le=10_000_000)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Budget = Annotated[float, Field(ge=1e-6, le=1e12)]

ORDER = (
    "about",
    "source",
    "measured",
    "task",
    "needs",
    "data",
    "tokenizer",
    "target_tokenizer",
    "features",
    "vectors",
    "tokens",
    "encoder",
    "directions",
    "decoder",
    "attention",
    "head",
    "search",
    "train",
    "tuning",
)
"""The order of tables in a written recipe. A table that is not named here comes after `encoder`."""
BUDGETS = ("steps", "epochs", "tokens", "seconds")


def _one(value: Any) -> Any:
    are_texts = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    return one_location(value) if are_texts else value


def _listed(location: str) -> str | list[str]:
    return location if len(names := locations_in(location)) == 1 else names


DataPath = Annotated[Path, BeforeValidator(_one), PlainSerializer(_listed)]
"""A path of data, or a list of them."""


class DataRecipe(Table):
    """The paths of the data; each task adds keys for reading them."""

    train: DataPath = ""
    """The training data: a file, a folder, a glob, or a list of these; .xz and .gz files are decompressed."""
    valid: DataPath = ""
    """The validation data; empty: a part of the training data."""
    test: DataPath = ""
    """The test data, which are scored once, at the end."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    valid_fraction: Share = 0.1
    """Share of the training data that is kept for validation if `valid` is empty: the end of texts and of labeled
    sentences, else a random part, since data are often sorted by label.
    """


class DividedData(DataRecipe):
    """The table `[data]` of a model that learns from examples, a part of which is kept for validation."""

    group: str = ""
    """The column or key of the training data that has the group of a row, such as its speaker, author or document. A
    group is in one part only. Empty: the source, such as a text or an image, with all its targets; a labeled sentence
    is by itself.
    """
    division: Literal["classes", "sources", "rows"] = "classes"
    """classes: all rows of a source or of a group are in one part, and each class of a classifier has its share in
    both, where it has two sources; sources: without regard to classes; rows: each row goes to a part by itself. The
    last two are those of runs of an earlier ensue.
    """


class CorpusRecipe(DataRecipe):
    """The table `[data]` of a model that learns from running text."""

    valid_characters: Count = 2_000_000
    """At most this many characters of the validation text are scored, from its beginning. A part of the training text
    that is kept for validation is no larger.
    """


class TokenizerRecipe(Table):
    """The table `[tokenizer]`."""

    kind: Literal["characters", "bytes", "words", "bpe", "wordpiece", "published"] = "characters"
    """The kind of tokens; published: the tokenizer of an imported model, of no other kind, and not trained."""
    min_count: Count = 1
    """Rarer characters or words are unknown."""
    max_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """At most this many symbols; without it: no limit (bpe: 2,048, wordpiece: 8,192)."""
    splitter: Literal["whitespace", "simple"] = "whitespace"
    """How words are found."""
    lowercase: bool = False
    """Whether all text is lowered first."""


class TrainRecipe(Table):
    """How long and how a model is trained."""

    steps: Count | None = None
    """Budget: optimizer steps."""
    epochs: Budget | None = None
    """Budget: times through the training data."""
    tokens: Count | None = None
    """Budget: tokens that are read in training; for labeled sentences and texts, words."""
    seconds: Budget | None = None
    """Budget: seconds of training steps; such a run cannot be repeated exactly. Exactly one of these four is given."""

    batch_size: Rows = 32
    """Rows in a batch: stretches of a text, sentences or texts."""
    accumulate: Rows = 1
    """A batch is computed in this many parts, with the same result and less memory."""

    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """AdamW; SGD with momentum; or Muon, which moves the matrices of layers in all directions alike, and all else as
    AdamW does.
    """
    learning_rate: Amount = 3e-3
    """The largest learning rate, at the end of the warm-up."""
    schedule: Literal["linear", "cosine", "inverse-sqrt", "constant"] = "linear"
    """The learning rate after the warm-up. linear, cosine: it falls to zero; inverse-sqrt: it falls with the square
    root of the steps so far (Vaswani et al. 2017); constant: it stays.
    """
    warmup: Share = 0.02
    """Share of the budget over which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Weight decay of matrices; biases and norms have none."""
    beta1: Share = 0.9
    """Decay of AdamW's first moment, or the momentum of SGD and Muon."""
    beta2: Share = 0.99
    """Decay of AdamW's second moment; SGD has none."""
    average: Share = 0.0
    """Decay of a running average of the weights, which is then the model that is scored and kept; 0: no average."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """The largest global norm of the gradient; 0: no clipping."""

    validations: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """How often the validation data are scored, evenly over the budget; less often if that would take more than a tenth
    of a budget of seconds.
    """
    patience: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Stop after this many validations without a better score; 0: never."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints; there is also one at each validation."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """The seed of weights, batches, dropout and samples."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type of matrix products; auto: the faster one on this machine, by its profile."""
    deterministic: bool = False
    """1, 2, 4 or 8 processes train the same model bit for bit. It cuts a batch into 8 parts, which is slower."""
    sharded: bool = False
    """Several processes share the parameters, gradients and moments, and each holds a part, for models that do not fit
    into the memory of one. A step is slower.
    """

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(BUDGETS)}; found {' and '.join(given) or 'none'}")
        return self

    @model_validator(mode="after")
    def _one_way_to_add(self) -> Self:
        if self.deterministic and self.sharded:
            raise ValueError("has deterministic and sharded; sharded gradients are not added in a fixed order")
        if self.sharded and self.optimizer == "muon":
            raise ValueError('has sharded and the optimizer "muon", which needs matrices whole')
        return self

    @model_validator(mode="after")
    def _warm_up(self) -> Self:
        if self.schedule == "inverse-sqrt" and not self.warmup:
            raise ValueError('needs a warmup above 0 for the schedule "inverse-sqrt"')
        return self

    @property
    def budget(self) -> str:
        """The name of the budget that is given."""
        return next(name for name in BUDGETS if getattr(self, name) is not None)


class TuningRecipe(Table):
    """The table `[tuning]`: which levels of a model are trained, when, and how fast. The lowest level is its input (the
    vectors of tokens or words), then each layer is one, and the head is the highest.
    """

    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate for each level below the head (Howard & Ruder 2018: 1/2.6)."""
    freeze: Annotated[int, Field(ge=-1, le=1001)] = 0
    """The number of levels, from the lowest on, that are not trained; -1: all but the head."""
    unfreeze: Share = 0.0
    """Share of the budget after which one more level is trained: first the head alone, then the level below it too, and
    so on down to `freeze` (gradual unfreezing, Howard & Ruder 2018). 0: all at once.
    """
    new_first: Share = 0.0
    """Share of the budget, at its beginning, in which only weights that do not come from another run are trained."""


class CorpusTuning(TuningRecipe):
    """The table `[tuning]` of a model that learns from running text."""

    vocabulary: Literal["origin", "own"] = "origin"
    """The tokens of a model that begins from another run (`encoder.from`): origin: the tokens of that run; own: tokens
    that `[tokenizer]` finds in the text. Symbols of both keep their vectors; the others begin at the mean.
    """


class Recipe(Table):
    """The whole document. `about`, `source` and `measured` are for people."""

    what: ClassVar[str]
    """The name of a model, such as "tagger"."""
    reads: ClassVar[str] = ""
    """The data that it needs, in a few words."""
    keeps_examples: ClassVar[bool] = False
    """Whether labeled data are kept in the cache, so that `ensue prepare` can read them beforehand."""
    begins: ClassVar[bool] = False
    """Whether it can begin from the layers of another run of the task, `encoder.from`."""
    has_own_update: ClassVar[bool] = False
    """Whether the task changes the weights by itself, on the CPU (`Task.update`). Then one thread is the default, and
    no profile of the machine is asked.
    """

    about: str = ""
    """A description of the recipe, for people."""
    source: str = ""
    """Its source, for people."""
    measured: str = ""
    """Its scores, for people."""
    task: str
    """The task, which decides on tables and keys."""
    needs: list[str] | None = None
    """Packages that it needs beside ensue, such as `ensue-minimal>=0.1`. Those of its task and layers are added."""
    data: DataRecipe
    train: TrainRecipe
    tuning: TuningRecipe = TuningRecipe()

    @model_validator(mode="after")
    def _begins(self) -> Self:
        for name in ("encoder", "decoder"):
            origin = getattr(getattr(self, name, None), "origin", "")
            if origin and origin not in self.origins:
                raise ValueError(f"has {name}.from, which a {self.what} has no use for")
        return self

    @model_validator(mode="after")
    def _tunes_gradients(self) -> Self:
        if self.has_own_update and self.tuning != TuningRecipe():
            raise ValueError(f"has a table [tuning], which a {self.what} has no use for")
        return self

    @property
    def layers(self) -> Any:
        """The table of the encoder that takes most of a step's time; None if there is none."""
        return getattr(self, "encoder", None)

    @property
    def inputs(self) -> list[Any]:
        """The locations of all that a run of this recipe reads."""
        values = self.values()
        places = ("data.train", "data.valid", "data.test", "data.teacher", "features.vectors")
        return [*filter(None, map(values.get, places)), *self.origins]

    @property
    def origins(self) -> tuple[str, ...]:
        """The directories of the runs from which it begins."""
        origin = getattr(self.layers, "origin", "") if self.begins else ""
        return (origin,) if origin else ()

    def describe(self) -> str:
        """A description of the model's layers, such as `lstm 2×256`."""
        return "a model of its own" if self.layers is None else describe_encoder(self.layers)

    def values(self) -> dict[str, Any]:
        """Every value by its key, such as "train.steps"."""
        return _flat(self.model_dump())

    def to_toml(self) -> str:
        """The recipe as TOML, with every default written out, which a resumed run reads."""
        document = without_none(self.model_dump())
        places = {key: place for place, key in enumerate(ORDER)}
        tables = sorted(document, key=lambda key: places.get(key, places["encoder"]))
        return tomli_w.dumps({key: document[key] for key in tables}, multiline_strings=True)


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def without_none(value: Any) -> Any:
    """The document without None, which TOML does not have."""
    if isinstance(value, dict):
        return {key: without_none(part) for key, part in value.items() if part is not None}
    return value
