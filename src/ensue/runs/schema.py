"""The schemas of the files of every run directory. Each task adds schemas of its own files.

Tensors have no schema: `weights.py` and `checkpoint.py` compare their names, shapes and types with the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from ensue.errors import RunError, nearest, quote
from ensue.extension import installed_models, local_run, unknown_scheme
from ensue.parsing import UNIQUE_KEYS, ParseError, check_access, parse_json, read_bounded
from ensue.stored import Stored
from ensue.tasks import task_entries

FORMAT_VERSION = 3
"""The version of the run directory. Version 1 had no manifest. Version 2 had other tables in its recipe."""
MANIFEST = "manifest.json"
FILES = (
    "recipe.toml", "config.json", "model.safetensors", "metrics.jsonl", "README.md", "curve.png", MANIFEST,
    "metrics.csv",
)  # fmt: skip
"""The names of files that runs of every task may have."""
MAX_MANIFEST_BYTES = 1 << 20
Number = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, lt=2**31)]
"""A size of a model, such as the number of symbols, bounded since it determines how much memory is allocated."""
SizeOrZero = Annotated[int, Field(ge=0, lt=2**31)]


def file_names() -> set[str]:
    """Return the names of all files that runs of any task can have."""
    return {*FILES, *(name for entry in task_entries() for name in entry.files)}


class DamagedError(RunError):
    """A damaged or edited file of a run."""


class Content(BaseModel):
    """A schema with strict types. Unknown keys are ignored, since other versions may write them."""

    model_config = ConfigDict(strict=True, frozen=True)


def stored_as(stored_class: type[Stored]) -> AfterValidator:
    """Return a validator of the JSON form of a class."""

    def check(value: Any) -> Any:
        stored_class.from_json(value)
        return value

    return AfterValidator(check)


class FileEntry(Content):
    """The entry of a file in the manifest: size, checksum, and time of writing."""

    bytes: Number
    sha256: Checksum
    written: Annotated[str, Field(max_length=40)]


class ManifestContent(Content):
    """`manifest.json`."""

    files: dict[str, FileEntry]
    coming: dict[str, FileEntry] = {}
    """The new entries of files that are being replaced."""
    log: FileEntry | None = None
    """The entry of `metrics.jsonl`."""


class Progress(BaseModel):
    """`progress.json`: the counters of a run."""

    model_config = ConfigDict(strict=True, extra="forbid")

    step: Number = 0
    seconds: Seconds = 0.0
    """The time of training steps, without validation, samples and checkpoints."""
    overhead_seconds: Seconds = 0.0
    """In a budget of seconds, the time of everything else that the budget includes."""
    preparation_seconds: Seconds = 0.0
    """In a budget of seconds, the time before the first step; 0 in runs of earlier versions."""
    reserved_seconds: Seconds = 0.0
    """In a budget of seconds, the estimated time of the last validation, the test and the card."""
    drawn: dict[str, Annotated[float, Field(gt=0, le=1)]] = {}
    scoring_seconds: dict[str, Seconds] = {}
    """In a budget of seconds, the scored shares of the data "valid" and "test", and the times to score them."""
    tokens: Number = 0
    best: FiniteFloat | None = None
    """The best validation score so far."""
    best_step: Number = 0
    stale: Number = 0
    """The number of validations since the best validation."""
    total_nats: FiniteFloat = 0.0
    """The sum of the training loss in nats since the last report."""
    predictions: Number = 0
    parts: Annotated[int, Field(gt=0)] = 1
    """The number of micro-batches per batch: `train.accumulate`, or more after memory was exhausted."""


class OriginContent(Content):
    """An entry of `origins` in `config.json`: the path of a run in the recipe, and a checksum of the run's weights."""

    path: str
    sha256: Checksum


class Config(Content):
    """The keys of `config.json` that all tasks have."""

    format_version: int
    ensue: str
    task: str
    text: str
    """The fingerprint of the training data."""
    held_out: dict[str, str] = {}
    """The fingerprints of the validation and test data, `valid` and `test`; missing in older runs."""
    draws: int | None = None
    """The version of the random numbers of rows; missing in older runs."""
    runtime: dict[str, Any]
    """The fields of a `training.runtime.Runtime`."""
    origins: list[OriginContent] = []
    """The runs whose weights initialize this run; their copies are in `origins/`."""


class TrainRecord(Content):
    """A line of `metrics.jsonl` for training steps."""

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
    """The criterion for the best weights; None in a run of an earlier version."""


class TestedRecord(Content):
    """A line of `metrics.jsonl` for the test data."""

    kind: Literal["test"]
    step: Number
    scores: dict[str, Any]
    summary: str


RECORD: TypeAdapter[Any] = TypeAdapter(Annotated[TrainRecord | ValidRecord | TestedRecord, Field(discriminator="kind")])


def parse_strictly(content: bytes) -> Any:
    """Return the value of a JSON file of a run. Raises ParseError for invalid JSON and for a duplicate key."""
    return parse_json(content, UNIQUE_KEYS)


def read_manifest(path: Path) -> ManifestContent:
    """Return the content of a manifest. Raises RunError if the file cannot be read."""
    return read_and_validate(ManifestContent, path, lambda: read_bounded(path, MAX_MANIFEST_BYTES))


def read_and_validate(schema: type[BaseModel] | TypeAdapter[Any], path: Path, read: Callable[[], bytes]) -> Any:
    """Return the JSON value of a file whose bytes `read` returns, validated by the schema. Raises RunError."""
    with convert_read_errors(path):
        value = parse_strictly(read())
    return validate_content(schema, value, path)


def validate_content(schema: type[BaseModel] | TypeAdapter[Any], value: Any, place: str | Path) -> Any:
    """Return `value`, validated by the schema. Raises DamagedError with the first error; `place` names the file."""
    adapter = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
    key = quote(".".join(map(str, first["loc"])) or "the file")[1:-1]
    if first["type"] == "missing":
        raise DamagedError(f"{place}: damaged: no {key}")
    if first["type"] == "value_error":
        raise DamagedError(f"{place}: damaged: {key}.{first['ctx']['error']}")
    message = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    raise DamagedError(f"{place}: damaged: {key}: {message}, found {quote(first['input'])}")


def existing_run(location: str | Path) -> Path:
    """Return the directory of a run at a path or an address. Raises RunError if there is no run."""
    check_is_run(path := local_run(location))
    return path


def check_is_run(path: Path) -> None:
    """Raise RunError unless the path is a run directory."""
    if not check_access(path).is_dir():
        hint = unknown_scheme(path) or nearest(str(path), installed_models())
        raise RunError(f"{path}: no such run directory{hint}")
    if not (path / "config.json").exists():
        raise RunError(f"{path}: not a run directory: it has no config.json")


@contextmanager
def convert_read_errors(path: Path) -> Iterator[None]:
    """Replace an OSError or ParseError of reading `path` by a RunError, during a `with` block."""
    try:
        yield
    except FileNotFoundError:
        raise RunError(f"{path}: missing") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ParseError as error:
        raise DamagedError(f"{path}: damaged: {error}") from None
