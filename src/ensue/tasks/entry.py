"""The description of a task: its recipe, its files in a run, its commands, and its classes, imported when needed."""

from collections.abc import Collection
from dataclasses import dataclass
from inspect import signature
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ensue.extension import pipeline_methods

if TYPE_CHECKING:  # `ensue.recipe` imports pydantic, which the table of tasks does not need
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
"""The methods whose arguments are the options of a command; by default the method with the name of the command."""
_METHOD_OPTIONS = {
    "with_vectors": {"vectors"}, "with_others": {"with"}, "minimal_pairs": {"minimal_pairs"},
    "text_similarity": {"similarity"},
}  # fmt: skip
"""The options of methods whose arguments are not themselves options."""
_RENAMED_OPTIONS = {"num_samples": "samples", "width": "beams"}
"""The names of options that differ from the names of their arguments, by argument."""


@dataclass(frozen=True)
class TaskEntry:
    """The entry of a task. `parts`, `job` and `pipeline` are strings "module:Class", imported at first use."""

    recipe: "type[Recipe]"
    parts: str
    """The subclass of `ModelParts`: the vocabularies and counts from which a model is built."""
    job: str
    """The subclass of `Job`: training, from the data to the files of the run."""
    pipeline: str
    """The subclass of `Pipeline`: the interface of a trained model."""
    commands: Collection[str]
    """The commands of `ensue` that take a run of this task. After training, `ensue train` prints the first
    command as the next step. The options of commands are the arguments of the pipeline's methods (`options`).
    """
    judged_by: tuple[str, ...]
    """The metrics for selecting the best checkpoint, keys of `TaskScores.as_json`. `Task.judged_by` is one of them."""
    files: tuple[str, ...] = ("tokenizer.json",)
    """The files of a run of this task in addition to the files of every run."""
    pipeline_tag: str = ""
    """The name of the task on the Hugging Face Hub."""

    @property
    def what(self) -> str:
        """The noun for a model of this task, such as "tagger"."""
        return self.recipe.what

    @property
    def parts_class(self) -> type[Any]:
        """The class that `parts` names."""
        return resolve_name(self.parts)

    @property
    def job_class(self) -> type[Any]:
        """The class that `job` names."""
        return resolve_name(self.job)

    @property
    def pipeline_class(self) -> type[Any]:
        """The class that `pipeline` names."""
        return resolve_name(self.pipeline)

    def options(self, command: str) -> set[str]:
        """Return the options of a command for models of this task, from the signatures of the pipeline's methods."""
        pipeline, methods = self.pipeline_class, _METHODS.get(command, (command,))
        if command == "generate" and pipeline.generates_files:
            methods = ("generate_into", "with_adaptation")
        added = (
            {*method.options, *(["overwrite"] if method.reads_data else [])}
            for method in pipeline_methods(command).values()
            if method.is_of(pipeline)
        )
        options = set[str]().union(*added, *(_read_options(pipeline, name) for name in methods))
        if command == "predict" and "format" not in _read_options(pipeline, "evaluate"):
            options.discard("format")  # the format of labeled data, which these models do not read
        return {_RENAMED_OPTIONS.get(name, name) for name in options}


def _read_options(pipeline: type[Any], method: str) -> set[str]:
    """Return the options of a method: its arguments, with the keys of an `Unpack`; empty if the method is missing."""
    function = getattr(pipeline, method, None)
    if function is None or method in _METHOD_OPTIONS:
        return set() if function is None else _METHOD_OPTIONS[method]
    names = set[str]()
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(get_type_hints(function)[name])
            names |= options.__annotations__.keys()
        else:
            names.add(name)
    return names
