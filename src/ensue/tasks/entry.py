"""The description of a task: its recipe, its files in a run, its commands, and its classes, imported when needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ensue.extension import pipeline_methods

if TYPE_CHECKING:  # it needs pydantic, which the table of tasks does not
    from ensue.recipe.tables import Recipe

_METHODS = {
    "generate": ("generate", "samples", "search", "with_adaptation"),
    "predict": ("prediction_lines", "with_search", "with_splitter", "with_vectors", "with_others"),
    "score": ("score_lines", "with_adaptation", "with_others"),
    "evaluate": (
        *("evaluate", "with_search", "with_adaptation", "with_vectors", "with_others", "minimal_pairs"),
        "text_similarity",
    ),
    "inspect": ("inspect", "with_search", "with_vectors"),
}
"""The methods of pipelines whose arguments are options of a command; of other commands the one of the same name."""
_OPTIONS = {
    "with_vectors": {"vectors"},
    "with_others": {"with"},
    "minimal_pairs": {"minimal_pairs"},
    "text_similarity": {"similarity"},
}
"""The options of methods whose arguments have other names."""
_NAMES = {"num_samples": "samples", "width": "beams"}
"""Options that have other names than the arguments."""


@dataclass(frozen=True)
class TaskEntry:
    """The entry of a task, for the rest of the package. `parts`, `job` and `pipeline` are written "module:Class".

    The classes are imported when they are asked for. Their types are known to whoever asks, on the floors above.
    """

    recipe: type[Recipe]
    parts: str
    """The `ModelParts`: vocabularies and the like, from which a model is built."""
    job: str
    """The `Job`: from data to a trained model."""
    pipeline: str
    """The `Pipeline`: a trained model at work."""
    commands: Collection[str]
    """The commands of `ensue` that take a run of this task. The first is suggested at the end of training. Options of
    commands are the arguments of the pipeline's methods (`options`).
    """
    judged_by: tuple[str, ...]
    """The scores that may choose the best weights, by their names in `Scores.as_json`. The data decide which one does.
    """
    files: tuple[str, ...] = field(default=("tokenizer.json",))
    """The files that a run of this task has, in addition to those of every run."""

    pipeline_tag: str = ""
    """The name that the hub of Hugging Face has for models of this task."""

    @property
    def what(self) -> str:
        """The name of a model of this task, such as "tagger"."""
        return self.recipe.what

    @property
    def parts_class(self) -> type[Any]:
        """The class that `parts` names."""
        return _imported(self.parts)  # type: ignore[no-any-return]

    @property
    def job_class(self) -> type[Any]:
        """The class that `job` names."""
        return _imported(self.job)  # type: ignore[no-any-return]

    @property
    def pipeline_class(self) -> type[Any]:
        """The class that `pipeline` names."""
        return _imported(self.pipeline)  # type: ignore[no-any-return]

    def options(self, command: str) -> set[str]:
        """The options of a command that models of this task take, by the signatures of the pipeline."""
        pipeline, methods = self.pipeline_class, _METHODS.get(command, (command,))
        if command == "generate" and pipeline.generates_files:
            methods = ("generate_into", "with_adaptation")
        added = (set(method.options) for method in pipeline_methods(command).values() if method.is_of(pipeline))
        options = set[str]().union(*added, *(_options(pipeline, name) for name in methods))
        if command == "predict" and "format" not in _options(pipeline, "evaluate"):
            options.discard("format")  # of labeled data, which these models do not read
        return {_NAMES.get(name, name) for name in options}


def _options(pipeline: type[Any], method: str) -> set[str]:
    """The options of a method: its arguments, those of an `Unpack` too; none if there is no such method."""
    function = getattr(pipeline, method, None)
    if function is None or method in _OPTIONS:
        return set() if function is None else _OPTIONS[method]
    found = set[str]()
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(get_type_hints(function)[name])
            found |= options.__annotations__.keys()
        else:
            found.add(name)
    return found


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
