"""The interface of the package for programs: `load` a trained model, `train` one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from ensue.arguments import check_path, check_type, check_whole
from ensue.data.files import Location
from ensue.engine import has_bfloat16
from ensue.errors import EnsueError
from ensue.inspection.notebook import NotebookReporter, kernel_display
from ensue.models.modules import put_in_bfloat16
from ensue.parsing import shown
from ensue.processor import Precision
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks import task_entry
from ensue.tasks.contract.pipeline import Pipeline
from ensue.training.device import choose_device, generators_restored

Kind = TypeVar("Kind", bound=Pipeline)
MOST_THREADS = 1024


@overload
def load(
    run: str | Path, *, device: str = ..., vectors: str | Path | None = ..., precision: Precision = ...
) -> Pipeline: ...


@overload
def load(
    run: str | Path, *, kind: type[Kind], device: str = ..., vectors: str | Path | None = ...,
    precision: Precision = ...,
) -> Kind: ...  # fmt: skip


def load(
    run: str | Path, *, kind: type[Pipeline] = Pipeline, device: str = "auto", vectors: str | Path | None = None,
    precision: Precision = "float32",
) -> Pipeline:  # fmt: skip
    """The trained model in the run directory `run` (or `hf:NAME`), on "auto" (a GPU if there is one), "cpu", "cuda".

    It returns the `Pipeline` of the run's task: a `LanguagePipeline`, a `LabelingPipeline`, a `ClassificationPipeline`,
    ... Editors and type checkers know its class if you give it: `load(run, kind=LanguagePipeline)`. `vectors` is the
    file of pretrained vectors that the model was trained with; words that the training data do not have are then looked
    up in it. With `precision="bfloat16"` layers multiply in bfloat16, which is up to three times as fast on a processor
    that has it. Raises RunError for a directory that is missing, damaged or of another version, and
    EnsueError for a run of another `kind`, for a device that is not there, for vectors that the model does not use, or
    for bfloat16 where it cannot be.
    """
    check_path("the run", run)
    check_type("the device", device, str, "its name")
    if vectors is not None:
        check_path("the file of vectors", vectors)
    if precision not in get_args(Precision):
        raise EnsueError(f"the precision is {shown(precision)}; expected {' or '.join(get_args(Precision))}")
    chosen, directory = choose_device(device), RunDirectory(run)
    if precision == "bfloat16" and chosen.type == "cpu" and not has_bfloat16():
        raise EnsueError("this processor does not multiply in bfloat16, which would take many times as long as float32")
    if vectors is not None and "vectors" not in directory.entry.options("predict"):
        raise EnsueError(f"{run}: a {directory.entry.what} has no pretrained vectors")
    found: type[Pipeline] = directory.entry.pipeline_class
    if not issubclass(found, kind):
        raise EnsueError(
            f"{run}: the model is a {directory.entry.what}, a {found.__name__}; expected a {kind.__name__}"
        )
    with generators_restored(chosen):  # initial weights are drawn before the saved ones are read
        pipeline: Pipeline = found.of(directory, chosen)
    if precision == "bfloat16" and not put_in_bfloat16(pipeline.model):
        raise EnsueError(f"{run}: only recurrent layers and Transformers can be in bfloat16, and the model has none")
    return pipeline if vectors is None else pipeline.with_vectors(vectors)  # type: ignore[no-any-return]


def train(
    recipe: str | Path | Recipe,
    *,
    train: Location = "",
    valid: Location = "",
    test: Location = "",
    out: str | Path,
    settings: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Pipeline:
    """Trains a recipe (a name, a TOML file or an object) on the data `train`, and returns the trained model.

    `train`, `valid` and `test` are files, folders or globs, or lists of these, and `out` is the run directory.
    `settings` change the recipe: `{"train.steps": 500}` or `["train.steps=500"]`; an object takes none. Ctrl-C ends the
    step and saves; `resume=True` continues the run in `out`, and `overwrite=True` replaces it. `device` is as for
    `load`. `threads` are those of the CPU; by default, what was fastest on this machine. `reporter` is told of the
    start, each step, each validation and the end; by default a notebook shows a bar and the curve. Raises an
    `EnsueError` of one line for mistakes of the caller.
    """
    from ensue.training.run import train_run  # noqa: PLC0415  # a model in use needs none of it

    check_path("out", out)
    check_type("the device", device, str, "its name")
    if threads is not None:
        check_whole("threads", threads, 1, MOST_THREADS)
    chosen = checked_recipe(recipe, settings, train=train, valid=valid, test=test)
    if reporter is None and (display := kernel_display()) is not None:
        reporter = NotebookReporter(display, task_entry(chosen.task).judged_by)
    train_run(chosen, out, resume=resume, overwrite=overwrite, device=device, threads=threads, reporter=reporter)
    return load(out, device=device)


def checked_recipe(
    recipe: str | Path | Recipe, settings: Mapping[str, Any] | Sequence[str], **paths: Location
) -> Recipe:
    """A recipe with these settings and paths of data. Raises EnsueError for a value of another type."""
    check_type("settings", settings, (Mapping, list, tuple), 'a dict, or a list of "key=value"')
    for setting in settings:
        check_type("a setting", setting, str, "a string")
    return read_recipe(recipe, settings, **paths)
