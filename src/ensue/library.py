"""The functions `load` and `train` for Python programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar, Unpack, get_args, overload

from ensue.data.files import Data
from ensue.data.in_memory import EXPECTED_DATA
from ensue.engine import has_bfloat16, has_int8
from ensue.errors import EnsueError, check_integer, check_path, check_type, quote
from ensue.inspection.notebook import NotebookReporter, kernel_display
from ensue.models.modules import put_in_precision
from ensue.processor import InferencePrecision
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory, continuing_recipe
from ensue.runs.reporter import ProgressBar, Reporter
from ensue.tasks import task_entry
from ensue.tasks.contract.pipeline import Pipeline
from ensue.training.device import choose_device, restore_generators

if TYPE_CHECKING:  # `load` imports only the pipeline of the run's task
    import ensue.recipe.pipelines as names
    from ensue.tasks.classification.pipeline import ClassificationPipeline
    from ensue.tasks.labeling.cutter import CutterPipeline
    from ensue.tasks.labeling.pipeline import LabelingPipeline
    from ensue.tasks.language_modeling.pipeline import LanguagePipeline
    from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline, SentenceVectorsPipeline
    from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline

Kind = TypeVar("Kind", bound=Pipeline)
MAX_THREADS = 1024


@overload
def load(
    run: str | Path, *, device: str = ..., vectors: str | Path | None = ..., precision: InferencePrecision = ...
) -> Pipeline: ...


@overload
def load(
    run: str | Path, *, kind: type[Kind], device: str = ..., vectors: str | Path | None = ...,
    precision: InferencePrecision = ...,
) -> Kind: ...  # fmt: skip


def load(
    run: str | Path, *, kind: type[Pipeline] = Pipeline, device: str = "auto", vectors: str | Path | None = None,
    precision: InferencePrecision = "float32",
) -> Pipeline:  # fmt: skip
    """Load the trained model of a run.

    Args:
        run: The run directory, or an address such as `hf:NAME`.
        kind: The expected class of the result, for editors and type checkers: `load(run, kind=LanguagePipeline)`.
        device: "auto" ("cuda" if available, else "cpu"), "cpu", "cuda" or "cuda:1".
        vectors: The file of the pretrained vectors that training used, for words without a trained vector.
        precision: The data type of matrix products: "float32"; or "bfloat16" or "int8", faster on some processors.

    Returns:
        The pipeline of the run's task, such as `LanguagePipeline`, `LabelingPipeline` or `ClassificationPipeline`.

    Raises:
        RunError: The directory is missing, damaged or of another version.
        EnsueError: The pipeline is not a `kind`, the device is missing, the model has no pretrained vectors, or
            the precision is unsupported.
    """
    check_path("the run", run)
    check_type("the device", device, str, "its name")
    if vectors is not None:
        check_path("the file of vectors", vectors)
    if precision not in get_args(InferencePrecision):
        raise EnsueError(f"the precision is {quote(precision)}; expected {', '.join(get_args(InferencePrecision))}")
    chosen, directory = choose_device(device), RunDirectory(run)
    if precision == "bfloat16" and chosen.type == "cpu" and not has_bfloat16():
        raise EnsueError("this processor lacks bfloat16 instructions; bfloat16 would be many times slower than float32")
    if precision == "int8" and not (chosen.type == "cpu" and has_int8()):
        raise EnsueError("int8 needs a processor with instructions for int8 products (VNNI), and a C compiler")
    if vectors is not None and "vectors" not in directory.entry.options("predict"):
        raise EnsueError(f"{run}: a {directory.entry.what} has no pretrained vectors")
    pipeline_class: type[Pipeline] = directory.entry.pipeline_class
    if not issubclass(pipeline_class, kind):
        expected = f"a {pipeline_class.__name__}; expected a {kind.__name__}"
        raise EnsueError(f"{run}: the model is a {directory.entry.what}, {expected}")
    with restore_generators(chosen):  # building the model draws initial weights
        pipeline: Pipeline = pipeline_class.of(directory, chosen)
    if precision != "float32" and not put_in_precision(pipeline.model, precision):
        raise EnsueError(f"{run}: only recurrent layers and Transformers can be in {precision}, and the model has none")
    return pipeline if vectors is None else pipeline.with_vectors(vectors)


class Options(TypedDict, total=False):
    """The keyword arguments of `train`."""

    train: Data
    valid: Data
    test: Data
    out: Required[str | Path]
    settings: Mapping[str, Any] | Sequence[str]
    from_run: str | Path | None
    resume: bool
    overwrite: bool
    device: str
    threads: int | None
    reporter: Reporter | None
    progress: bool


@overload
def train(recipe: names.LanguagePipeline, **options: Unpack[Options]) -> LanguagePipeline: ...
@overload
def train(recipe: names.LabelingPipeline, **options: Unpack[Options]) -> LabelingPipeline: ...
@overload
def train(recipe: names.ClassificationPipeline, **options: Unpack[Options]) -> ClassificationPipeline: ...
@overload
def train(recipe: names.CutterPipeline, **options: Unpack[Options]) -> CutterPipeline: ...
@overload
def train(recipe: names.SequencePipeline, **options: Unpack[Options]) -> SequencePipeline: ...
@overload
def train(recipe: names.MaskedLanguagePipeline, **options: Unpack[Options]) -> MaskedLanguagePipeline: ...
@overload
def train(recipe: names.SentenceVectorsPipeline, **options: Unpack[Options]) -> SentenceVectorsPipeline: ...
@overload
def train(recipe: str | Path | Recipe | None = None, *, kind: type[Kind], **options: Unpack[Options]) -> Kind: ...
@overload
def train(recipe: str | Path | Recipe | None = None, **options: Unpack[Options]) -> Pipeline: ...


def train(
    recipe: str | Path | Recipe | None = None, *, kind: type[Pipeline] = Pipeline, train: Data = "", valid: Data = "",
    test: Data = "", out: str | Path, settings: Mapping[str, Any] | Sequence[str] = (),
    from_run: str | Path | None = None, resume: bool = False, overwrite: bool = False, device: str = "auto",
    threads: int | None = None, reporter: Reporter | None = None, progress: bool = False,
) -> Pipeline:  # fmt: skip
    """Train a model by a recipe. Ctrl-C ends the current step and saves a checkpoint.

    Args:
        recipe: The name of a recipe, a TOML file, or a `Recipe`; by default the recipe of `from_run`.
        kind: The expected class of the result, as for `load`. Type checkers derive it from names of the core's recipes.
        train: Training data: a file, a folder, a glob, or a list of these; or Python objects: a list of (text, label),
            of (words, labels) or of dicts, a DataFrame, or a data set with named columns.
        valid: Validation data; by default a tenth of the training data.
        test: Test data, scored once at the end.
        out: The run directory.
        settings: Changes of the recipe, `{"train.steps": 500}` or `["train.steps=500"]`; must be empty for a `Recipe`.
        from_run: A run whose weights are the initial weights. New words, subwords and labels are added.
        resume: Whether to continue the run in `out`.
        overwrite: Whether to replace the run in `out`.
        device: The device, as for `load`.
        threads: CPU threads; by default the fastest number on this machine.
        reporter: Receives the start, each step, each validation and the end. A notebook by default shows a progress bar
            and the learning curve.
        progress: Whether a bar on stderr shows the steps, without a reporter and outside of a notebook.

    Returns:
        The pipeline of the trained model.

    Raises:
        EnsueError: An argument, the recipe or a file of data is invalid.
    """
    from ensue.training.run import train_run  # noqa: PLC0415  # `load` works without the training code

    check_path("out", out)
    check_type("the device", device, str, "its name")
    if threads is not None:
        check_integer("threads", threads, 1, MAX_THREADS)
    resolved = resolve_recipe(recipe, settings, from_run, train=train, valid=valid, test=test)
    entry = task_entry(resolved.task)
    if not issubclass(entry.pipeline_class, kind):
        raise EnsueError(f"the recipe trains a {entry.pipeline_class.__name__}; expected a {kind.__name__}")
    if reporter is None and (display := kernel_display()) is not None:
        reporter = NotebookReporter(display, entry.judged_by)
    reporter = reporter or (ProgressBar() if progress else None)
    train_run(resolved, out, resume=resume, overwrite=overwrite, device=device, threads=threads, reporter=reporter)
    return load(out, device=device)


def resolve_recipe(
    recipe: str | Path | Recipe | None, settings: Mapping[str, Any] | Sequence[str], from_run: str | Path | None = None,
    **paths: Data,
) -> Recipe:  # fmt: skip
    """Return a recipe with the settings and the data `paths`. Raises TypeError for an argument of a wrong type."""
    check_type("settings", settings, (Mapping, list, tuple), 'a dict, or a list of "key=value"')
    for setting in settings:
        check_type("a setting", setting, str, "a string")
    for name, value in paths.items():
        if value is None:  # for `read_recipe`, None means that the argument is absent
            raise TypeError(f"{name} is None; expected {EXPECTED_DATA}")
    if from_run is not None:
        check_path("from_run", from_run)
        return continuing_recipe(from_run, recipe, settings, **paths)
    if recipe is None:
        raise EnsueError("expected the name of a recipe, or from_run, whose recipe is the default")
    return read_recipe(recipe, settings, **paths)
