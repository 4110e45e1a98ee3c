"""The description of a task: its recipe, its files in a run, its commands, and its classes, imported when needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

if TYPE_CHECKING:  # it needs pydantic, which the table of tasks does not
    from ensue.recipe.tables import Recipe

_METHODS = {
    "generate": ("generate", "samples", "search"),
    "predict": ("prediction_lines",),
    "score": ("score_lines",),
}
"""The methods of a pipeline that do what a command does, where they have other names than the command."""
_OF_METHODS = (
    ("with_splitter", {"splitter"}, {"predict"}),
    ("use_vectors", {"vectors"}, {"predict", "evaluate", "inspect"}),
    ("with_glossary", {"glossary"}, {"predict"}),
    ("with_markup", {"keep_markup"}, {"predict"}),
    ("with_others", {"with"}, {"predict", "evaluate", "score"}),
    ("minimal_pairs", {"minimal_pairs"}, {"evaluate"}),
    ("text_similarity", {"similarity"}, {"evaluate"}),
    ("sense_scores", {"senses"}, {"evaluate"}),
    ("word_in_context", {"word_in_context", "threshold_from"}, {"evaluate"}),
)
"""The options of commands that a pipeline has by having a method."""
_NAMES = {"num_samples": "samples", "width": "beams"}
"""Options that have other names than the arguments."""

_OF_PREDICT = {"n_best", "at_least"}
"""Arguments of `with_search` that only `predict` has as options."""


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

    examples: str = ""
    """The `Examples` whose labels `ensue doubt` doubts, if it does."""

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

    @property
    def examples_class(self) -> type[Any] | None:
        """The class that `examples` names, if there is one."""
        return _imported(self.examples) if self.examples else None  # type: ignore[no-any-return]

    def options(self, command: str) -> set[str]:
        """The options of a command that models of this task take, by the signatures of the pipeline."""
        pipeline = self.pipeline_class
        methods = ("generate_into",) if command == "generate" and pipeline.generates_files else ()
        found = set[str]().union(*(_arguments(pipeline, name) for name in methods or _METHODS.get(command, (command,))))
        if command == "predict" and "format" not in _arguments(pipeline, "evaluate"):
            found.discard("format")  # of labeled data, which these models do not read
        for method, options, commands in _OF_METHODS:
            if command in commands and hasattr(pipeline, method):
                found |= options
        if command in ("predict", "evaluate", "inspect"):
            search = _arguments(pipeline, "with_search")
            found |= search if command == "predict" else search - _OF_PREDICT
        if command in ("generate", "score", "evaluate"):
            found |= _arguments(pipeline, "with_adaptation")
        return {_NAMES.get(name, name) for name in found}


def _arguments(pipeline: type[Any], method: str) -> set[str]:
    """The names of the arguments of a method, those of an `Unpack` too; none if there is no such method."""
    function = getattr(pipeline, method, None)
    if function is None:
        return set()
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
