"""The schemas of the files of every run directory; a task has the schemas of its own files.

Every file is read through its schema, and a mistake is one line. Tensors need none: their names, sizes and types follow
from the model, and `weights.py` and `checkpoint.py` compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from ensue.errors import RunError
from ensue.parsing import UNIQUE_KEYS, ParseError, asked, parse_json, shown
from ensue.stored import Stored
from ensue.tasks import task_entries

FORMAT_VERSION = 3
"""Of the run directory. Version 1 had no manifest; version 2 had other tables in its recipe."""
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20
"""The most bytes of a manifest."""
FILES = (
    "recipe.toml", "config.json", "model.safetensors", "metrics.jsonl", "README.md", "curve.png", MANIFEST,
    "metrics.csv",
)  # fmt: skip
"""The files of every run."""
Number = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, lt=2**31)]
"""How many of something a model has, such as symbols or rows of its images; bounded, since memory follows from it."""
SizeOrZero = Annotated[int, Field(ge=0, lt=2**31)]


def file_names() -> set[str]:
    """The names of all files that a run of any task can have."""
    return {*FILES, *(name for entry in task_entries() for name in entry.files)}


class DamagedError(RunError):
    """A file of a run that is damaged, edited, or does not have the expected content."""


class Content(BaseModel):
    """Strict in types. Unknown keys are ignored, since they may be those of other versions."""

    model_config = ConfigDict(strict=True, frozen=True)


def form_of(kind: type[Stored]) -> AfterValidator:
    """The check of a value that is kept in the form of this class."""

    def check(value: Any) -> Any:
        kind.from_json(value)
        return value

    return AfterValidator(check)


class Entry(Content):
    """The manifest's entry of a file: its size, its checksum, and when it was written."""

    bytes: Number
    sha256: Checksum
    written: Annotated[str, Field(max_length=40)]


class ManifestContent(Content):
    """`manifest.json`. `coming`: new entries of files that are being replaced; `log`: that of `metrics.jsonl`."""

    files: dict[str, Entry]
    coming: dict[str, Entry] = {}
    log: Entry | None = None


class Progress(BaseModel):
    """`progress.json`: the counters of a run."""

    model_config = ConfigDict(strict=True, extra="forbid")

    step: Number = 0
    seconds: Seconds = 0.0
    """Seconds of training steps, without validation, samples and saving."""
    tokens: Number = 0
    best: FiniteFloat | None = None
    """The best validation score so far, and its step."""
    best_step: Number = 0
    stale: Number = 0
    """The number of validations since the best one."""
    total_nats: FiniteFloat = 0.0
    """The training loss in nats since the last report, with the number of its predictions."""
    predictions: Number = 0
    parts: PositiveInt = 1
    """In how many parts a batch is computed: those of the recipe, or more if memory did not suffice."""


class OriginContent(Content):
    """An entry of `origins` in `config.json`: the path of a run in the recipe, and the checksum of its weights."""

    path: str
    sha256: Checksum


class Config(Content):
    """`config.json`, of all tasks; each adds keys of its own."""

    format_version: int
    ensue: str
    task: str
    text: str
    """The fingerprint of the training data."""
    held_out: dict[str, str] = {}
    """The fingerprints of the files with validation and test data, `valid` and `test`; older runs do not have them."""
    draws: int | None = None
    """The way in which random numbers are drawn; older runs do not say it."""
    runtime: dict[str, Any]
    """Its schema is `training.runtime.Runtime`."""
    origins: list[OriginContent] = []
    """The runs from which it begins, whose copies are in `origins/`."""


class TrainRecord(Content):
    """A line of `metrics.jsonl`."""

    kind: Literal["train"]
    step: Number
    seconds: Seconds
    tokens: Number
    loss: FiniteFloat
    learning_rate: FiniteFloat


class ValidRecord(Content):
    """A line of `metrics.jsonl` for a validation."""

    kind: Literal["valid"]
    step: Number
    seconds: Seconds
    scores: dict[str, Any]
    summary: str
    best: bool
    sample: str
    selection: FiniteFloat | None = None
    """None in a run of an earlier version."""


class TestedRecord(Content):
    """A line of `metrics.jsonl` for the test data."""

    kind: Literal["test"]
    step: Number
    scores: dict[str, Any]
    summary: str


RECORD: TypeAdapter[Any] = TypeAdapter(Annotated[TrainRecord | ValidRecord | TestedRecord, Field(discriminator="kind")])


def parsed(content: bytes) -> Any:
    """The value of a JSON file of a run. Raises ParseError for another content and for a key that is there twice."""
    return parse_json(content, UNIQUE_KEYS)


def checked(schema: type[BaseModel] | TypeAdapter[Any], value: Any, place: str | Path) -> Any:
    """`value` read by the schema; `place` is its file. Raises DamagedError for the first mistake."""
    adapter = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
    key = shown(".".join(map(str, first["loc"])) or "the file")[1:-1]
    if first["type"] == "missing":
        raise DamagedError(f"{place}: damaged: no {key}")
    if first["type"] == "value_error":
        raise DamagedError(f"{place}: damaged: {key}.{first['ctx']['error']}")
    message = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    raise DamagedError(f"{place}: damaged: {key}: {message}, found {shown(first['input'])}")


def check_is_run(path: Path) -> None:
    """Raises RunError unless there is a run directory."""
    if not asked(path).is_dir():
        raise RunError(f"{path}: no such run directory")
    if not (path / "config.json").exists():
        raise RunError(f"{path}: not a run directory: it has no config.json")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turns an error while `path` is read into a RunError."""
    try:
        yield
    except FileNotFoundError:
        raise RunError(f"{path}: missing") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ParseError as error:
        raise DamagedError(f"{path}: damaged: {error}") from None
