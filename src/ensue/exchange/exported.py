"""A run as the files of another program, and which runs transformers can express."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from ensue.errors import EnsueError
from ensue.models.specification import TransformerEncoder
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


def check_transformer(run: RunDirectory) -> None:
    """Raises EnsueError for other layers."""
    if not isinstance(run.recipe.layers, TransformerEncoder):
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
