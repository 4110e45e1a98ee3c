"""A run as the files of another program: their directory, and which runs transformers can express."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ensue.errors import DataError, EnsueError
from ensue.models.specification import TransformerEncoder
from ensue.outputs import check_new, written
from ensue.runs.directory import RunDirectory

ALWAYS = {"dtype": "float32", "torch_dtype": "float32"}
"""The keys of every config.json."""
CAN = (
    "those of masked language models with norm = post and norm_input = true, of language models, and of classifiers "
    "and taggers over the layers of both (encoder.from), all with a transformer, can be exported"
)


class Exported(NamedTuple):
    """The contents of the files, and the tensors."""

    files: dict[str, Any]
    tensors: dict[str, Tensor]


def refused(run: RunDirectory, what: str) -> EnsueError:
    """The error for a run that has `what`."""
    return EnsueError(f"{run.path}: cannot be exported with {what}")


NEWER = (
    "norm_kind", "norm_first", "gated", "parallel", "rotary_share", "rotary_base", "relative_buckets", "neighbors",
    "d_input", "window",
)  # fmt: skip
"""The keys of a Transformer that not every published shape has."""


def check_transformer(run: RunDirectory, *known: str) -> None:
    """Raises EnsueError for other layers, and for a key of `NEWER` that is set and not `known`."""
    if not isinstance(run.recipe.layers, TransformerEncoder):
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
    for name in (name for name in NEWER if name not in known):
        if (value := getattr(run.recipe.layers, name)) != TransformerEncoder.model_fields[name].default:
            raise refused(run, f"encoder.{name} = {value}, which is read alone")
    if run.recipe.layers.activation == "silu":
        raise refused(run, "encoder.activation = silu, which is read alone")


class TunedLayers(NamedTuple):
    """The tuned layers of a classifier or tagger: the run of their origin, its recipe with their sizes, the tensors."""

    origin: RunDirectory
    recipe: Any
    tensors: dict[str, Tensor]


def tuned_layers(
    run: RunDirectory, tensors: Mapping[str, Tensor], check_shape: Callable[[RunDirectory, RunDirectory], None]
) -> TunedLayers:
    """The layers of a classifier or tagger. Raises EnsueError if it began from none, and what `check_shape` raises."""
    tuned = run.parts.tuned
    if tuned is None:
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
    check_shape(run, tuned.base)
    inner = {name.removeprefix("layers."): x for name, x in tensors.items() if name.startswith("layers.")}
    return TunedLayers(tuned.base, tuned.base.recipe.model_copy(update={"encoder": tuned.layers}), inner)


def tag_head(run: RunDirectory, tensors: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """The head of a tagger, a score for each tag and subword. Raises EnsueError if its tags depend on each other."""
    recipe: Any = run.recipe
    if recipe.head.kind != "softmax":
        best = "the best path; classes of transformers choose each tag by itself, as softmax does"
        raise refused(run, f"head.kind = {recipe.head.kind}, {best}")
    if recipe.data.label_columns:
        raise refused(run, "several columns of labels; classes of transformers have one")
    found = {f"classifier.{name}": tensors[f"head.projection.{name}"] for name in ("weight", "bias")}
    check_width(run, found["classifier.weight"], width)
    return found


def check_width(run: RunDirectory, weight: Tensor, width: int) -> None:
    """Raises EnsueError for a head that reads more than the layers."""
    if weight.shape[1] != width:
        beside = "features of words beside the layers, or head.repeats"
        raise refused(run, f"{beside}; heads of transformers read the layers")


def head_config(run: RunDirectory, labels: Sequence[str]) -> dict[str, Any]:
    """The keys of config.json about a head and its labels."""
    recipe: Any = run.recipe
    ours = run.parts.labels
    found = {
        "classifier_dropout": getattr(recipe.head, "dropout", 0.0),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }
    if hasattr(ours, "multiple"):
        found["problem_type"] = f"{'multi' if ours.multiple else 'single'}_label_classification"
    return found


def write_directory(
    place: Path, contents: Mapping[str, bytes | Callable[[Path], object]], *, overwrite: bool = False
) -> None:
    """Writes files to a directory, by their names in it; a content may be a function that writes to a path.

    Raises DataError if it holds other files, and for what cannot be written, and EnsueError for a file that ensue did
    not write, unless `overwrite`.
    """
    names = {name.partition("/")[0] for name in contents}
    try:
        if place.exists() and not place.is_dir():
            raise DataError("is a file; --out names a directory", place)
        found = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
        if other := next((name for name in found if name not in names), None):
            raise DataError(f"not empty (it holds {other}); choose another --out", place)
        for name in contents:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            check_new(place / name, overwrite=overwrite)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", place) from None
    for name, content in contents.items():
        with written(place / name) as partial:
            partial.write_bytes(content) if isinstance(content, bytes) else content(partial)
