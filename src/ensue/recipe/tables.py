"""The tables of recipes of all tasks."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from ensue.data.decoding import check_encoding
from ensue.data.files import as_location, locations_in
from ensue.errors import DataError
from ensue.models.specification import Path, Share, Table, describe_encoder

Count = Annotated[int, Field(ge=1, le=1_000_000_000_000)]
Rows = Annotated[int, Field(ge=1, le=10_000_000)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Budget = Annotated[float, Field(ge=1e-6, le=1e12)]

ORDER = (
    "about", "source", "measured", "task", "needs", "data", "tokenizer", "target_tokenizer", "features", "vectors",
    "tokens", "encoder", "directions", "decoder", "attention", "head", "search", "train", "tuning",
)  # fmt: skip
"""The order of keys and tables in a written recipe. Other tables come after `encoder`."""
OPTIMIZER_KEYS = ("accumulate", "optimizer", "weight_decay", "beta1", "beta2", "average", "clip")
"""The keys of `[train]` that an update without gradients does not use."""
SOLVER_KEYS = (*OPTIMIZER_KEYS, "learning_rate", "schedule", "warmup")
"""The keys of `[train]` that a solver does not use."""
BUDGETS = ("steps", "epochs", "tokens", "seconds")


_AS_LOCATION = BeforeValidator(
    lambda x: as_location(x) if isinstance(x, list | tuple) and all(isinstance(item, str) for item in x) else x
)


def _check_encoding(name: str) -> str:
    try:
        return name and check_encoding(name) and name
    except DataError as error:
        raise ValueError(f"names an {error}") from None


_BY_PATH = PlainSerializer(lambda location: location if len(names := locations_in(location)) == 1 else names)
DataPath = Annotated[Path, _AS_LOCATION, _BY_PATH]
"""A path of data, or a list of paths."""


class DataRecipe(Table):
    """The paths of the data; each task adds keys for reading them."""

    train: DataPath = ""
    """The training data: a file, a folder, a glob, or a list of these; .xz and .gz files are decompressed."""
    valid: DataPath = ""
    """The validation data; empty: a share of the training data."""
    test: DataPath = ""
    """The test data, which are scored once, at the end."""
    encoding: Annotated[str, AfterValidator(_check_encoding)] = "utf-8"
    """The encoding of the files."""
    valid_fraction: Share = 0.1
    """The share of the training data that is used for validation if `valid` is empty: the end of running text or of
    labeled sentences; for other data a random selection, since such data are often sorted by label.
    """


class DividedData(DataRecipe):
    """The table `[data]` of a model that learns from examples, with some examples held out for validation."""

    group: str = ""
    """The column or key of the training data that has the group of a row, such as its speaker, author or document. A
    group is either in training or in validation. Empty: rows with the same source, such as a text or an image, are a
    group, and each labeled sentence is a group.
    """
    incomplete: Literal["refuse", "skip"] = "refuse"
    """Whether a row without a label, a text, a source or a target is an error, or is left out. A note has the number of
    these rows, and the place of the first.
    """
    division: Literal["classes", "sources", "rows"] = "classes"
    """How examples are split into training and validation. classes: by group, stratified by the classes of a
    classifier; sources: by group; rows: by row. The last two are for runs of earlier versions.
    """


class CorpusRecipe(DataRecipe):
    """The table `[data]` of a model that learns from running text."""

    valid_characters: Count = 2_000_000
    """The maximum number of scored characters, from the beginning of the validation text or validation share."""


class TokenizerRecipe(Table):
    """The table `[tokenizer]`."""

    kind: Literal["characters", "bytes", "words", "bpe", "wordpiece", "published"] = "characters"
    """The kind of tokens; published: the tokenizer of an imported model, which is not trained."""
    min_count: Count = 1
    """The minimum count of a character or word in the vocabulary; rarer symbols are unknown."""
    max_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """The maximum number of symbols; default: no limit (bpe: 2,048, wordpiece: 8,192)."""
    splitter: Literal["whitespace", "simple"] = "whitespace"
    """The word tokenizer."""
    lowercase: bool = False
    """Whether text is converted to lower case."""


class TrainRecipe(Table):
    """The table `[train]`: budget and method of training."""

    steps: Count | None = None
    """Budget: optimizer steps."""
    epochs: Budget | None = None
    """Budget: passes over the training data."""
    tokens: Count | None = None
    """Budget: tokens that are read in training; for labeled sentences and texts, words."""
    seconds: Budget | None = None
    """Budget: seconds from reading data to writing the model card; not reproducible. A recipe has one budget."""

    batch_size: Rows = 32
    """The maximum number of rows in a batch, such as segments of a text, sentences or texts."""
    accumulate: Rows = 1
    """The number of micro-batches of a batch (gradient accumulation); more need less memory, with the same result."""

    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """AdamW; SGD with momentum; or Muon: orthogonal updates of layers' matrices, AdamW for other parameters."""
    learning_rate: Amount = 3e-3
    """The largest learning rate, at the end of the warm-up."""
    schedule: Literal["linear", "cosine", "inverse-sqrt", "constant"] = "linear"
    """The learning rate after the warm-up. linear, cosine: it falls to zero; inverse-sqrt: it falls with the inverse
    square root of the step (Vaswani et al. 2017); constant: no decay.
    """
    warmup: Share = 0.02
    """Share of the budget over which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Weight decay of matrices; biases and normalization layers have no decay."""
    beta1: Share = 0.9
    """Decay of AdamW's first moment, or the momentum of SGD and Muon."""
    beta2: Share = 0.99
    """Decay of AdamW's second moment; SGD has no second moment."""
    average: Share = 0.0
    """Decay of a moving average of the weights, which is validated and saved; 0: no average."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """The largest global norm of the gradient; 0: no clipping."""

    validations: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """The number of validations, evenly over the budget; fewer if they take more than a fifth of `seconds`."""
    patience: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Stop after this many validations without a better score; 0: never."""
    checkpoint_every: Count = 1000
    """The number of steps between checkpoints; each validation also saves a checkpoint."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """The seed of weights, batches, dropout and samples."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type of matrix products; auto: the faster type on this machine, by its profile."""
    deterministic: bool = False
    """Whether 1, 2, 4 or 8 processes train the same model bit for bit; slower, since each batch is 8 micro-batches."""
    sharded: bool = False
    """Whether parameters, gradients and moments are sharded over processes. A step is slower and takes less memory."""

    def problems(self) -> Iterator[str]:
        budgets = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(budgets) != 1:
            yield f"needs exactly one of {', '.join(BUDGETS)}; found {' and '.join(budgets) or 'none'}"
        if self.deterministic and self.sharded:
            yield "has deterministic and sharded; sharded gradients are not added in a fixed order"
        if self.sharded and self.optimizer == "muon":
            yield 'has sharded and the optimizer "muon", which needs full matrices'
        if self.schedule == "inverse-sqrt" and not self.warmup:
            yield 'needs a warmup above 0 for the schedule "inverse-sqrt"'

    @property
    def budget(self) -> str:
        """The name of the budget of this recipe."""
        return next(name for name in BUDGETS if getattr(self, name) is not None)


class TuningRecipe(Table):
    """The table `[tuning]`: freezing, gradual unfreezing and learning rates by level. The lowest level is the input
    (vectors of tokens or words), followed by one level for each layer and the head.
    """

    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate for each level below the head (Howard & Ruder 2018: 1/2.6)."""
    freeze: Annotated[int, Field(ge=-1, le=1001)] = 0
    """The number of frozen levels, from the lowest on; -1: all but the head."""
    unfreeze: Share = 0.0
    """Share of the budget after which the next level is unfrozen, from the head down to `freeze` (gradual unfreezing,
    Howard & Ruder 2018). 0: all levels at once.
    """
    new_first: Share = 0.0
    """Share of the budget, at its beginning, in which only weights that do not come from another run are trained."""
    rehearse: bool = False
    """Whether `--from RUN` reads the training data of RUN again, in addition to the new data. For labels of spans, with
    `keep_labels`: spans that RUN predicts are added to training and validation data instead, if the data have no span
    of the same class and no overlapping span.
    """


class CorpusTuning(TuningRecipe):
    """The table `[tuning]` of a model that learns from running text."""

    vocabulary: Literal["origin", "own", "both"] = "origin"
    """The vocabulary of a model that begins from another run (`encoder.from`). origin: the vocabulary of that run; own:
    a vocabulary of the text, by `[tokenizer]`; both: the vocabulary of that run, then new characters, words or subwords
    of the text. Symbols of that run keep their vectors; other symbols begin with the mean vector.
    """


class Recipe(Table):
    """A recipe. `about`, `source` and `measured` are comments."""

    what: ClassVar[str]
    """The noun for a model of the task, such as "tagger"."""
    reads: ClassVar[str] = ""
    """A description of the data that the model reads."""
    is_preparable: ClassVar[bool] = False
    """Whether `ensue prepare` can read labeled data into the cache before training."""
    begins: ClassVar[bool] = False
    """Whether `encoder.from` may name another run of the task, whose layers are copied."""
    rehearses: ClassVar[bool] = False
    """Whether the task adds spans that the origin predicts in the new data (`tuning.rehearse`)."""

    about: str = ""
    """A description of the recipe."""
    source: str = ""
    """The source of the recipe, such as a paper."""
    measured: str = ""
    """Measured scores."""
    task: str
    """The name of the task, which determines tables and keys."""
    needs: list[str] | None = None
    """Required packages, such as `ensue-minimal>=0.1`. The packages of the task and of layers are added."""
    data: DataRecipe
    train: TrainRecipe
    tuning: TuningRecipe = TuningRecipe()

    @property
    def unused_keys(self) -> tuple[str, ...]:
        """The keys of `[train]` that an update without gradients does not use (`Task.update`); empty with gradients."""
        return ()

    @property
    def is_gradient_free(self) -> bool:
        """Whether weights are updated without gradients. Then training runs on the CPU, by default in one thread."""
        return bool(self.unused_keys)

    def problems(self) -> Iterator[str]:
        if self.unused_keys == SOLVER_KEYS and self.train.steps != 1:
            yield f"needs train.steps = 1: the solver of a {self.what} has no other budget"
        for name in ("encoder", "decoder"):
            origin = getattr(getattr(self, name, None), "origin", "")
            if origin and origin not in self.origins:
                yield f"has {name}.from, which a {self.what} does not support"

    def training_problems(self) -> Iterator[str]:
        """Yield the problems of values that only training reads, which a run of an earlier version may have."""
        default = TuningRecipe(rehearse=self.tuning.rehearse)  # rehearsal and labels that are kept concern the data
        if self.is_gradient_free and any(getattr(self.tuning, key) != value for key, value in default):
            yield f"has a table [tuning], which a {self.what} does not support"
        for name in self.unused_keys:
            if getattr(self.train, name) != type(self.train).model_fields[name].default:
                yield f"has train.{name}, which the training of this {self.what} does not use"

    def continuing(self, run: str) -> dict[str, Any]:
        """Return the settings with which training begins from all weights of a run; {} if the task lacks support."""
        return {"encoder.from": run, "tuning.rehearse": True} if self.begins else {}

    @property
    def layers(self) -> Any:
        """The table of the main encoder; None without one."""
        return getattr(self, "encoder", None)

    @property
    def inputs(self) -> list[Any]:
        """The locations of all inputs of a run."""
        values = self.values()
        places = ("data.train", "data.valid", "data.test", "data.teacher", "features.vectors")
        return [*filter(None, map(values.get, places)), *self.origins]

    @property
    def origins(self) -> tuple[str, ...]:
        """The directories of the runs whose weights are initial weights."""
        origin = getattr(self.layers, "origin", "") if self.begins else ""
        return (origin,) if origin else ()

    def describe(self) -> str:
        """Return a description of the main encoder, such as `lstm 2×256`."""
        return "no encoder layers" if self.layers is None else describe_encoder(self.layers)

    def values(self) -> dict[str, Any]:
        """Return all values by key, such as "train.steps"."""
        return _flatten(self.model_dump())

    def to_toml(self) -> str:
        """Return the recipe as TOML with all defaults."""
        document = drop_none(self.model_dump())
        positions = {key: position for position, key in enumerate(ORDER)}
        tables = sorted(document, key=lambda key: positions.get(key, positions["encoder"]))
        return tomli_w.dumps({key: document[key] for key in tables}, multiline_strings=True)


def _flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def drop_none(value: Any) -> Any:
    """Return a document without keys whose value is None, which TOML does not have."""
    if isinstance(value, dict):
        return {key: drop_none(inner) for key, inner in value.items() if inner is not None}
    return value
