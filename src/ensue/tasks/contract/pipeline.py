"""The interface of a trained model for the command line, a server or a notebook, the same for every task."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from types import MappingProxyType, MethodType
from typing import Any, ClassVar, Self

import torch

from ensue.data.files import Data, as_location, locations_in
from ensue.data.lines import Lines
from ensue.data.sources import TextSource, encoding_like, is_stream, is_typed, stream_lines, stream_name, text_lines
from ensue.errors import DataError, EnsueError, RunError, check_type
from ensue.extension import pipeline_methods, run_name
from ensue.inspection.notebook import Shown, curve_section, scores_section
from ensue.inspection.page import Section
from ensue.metrics.scores import ScoredItems
from ensue.models.modules import count_parameters
from ensue.recipe.tables import DataRecipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import MetricsLog
from ensue.stored import copy_with
from ensue.tasks.contract.chunks import UNSHARDED, Shard, with_progress
from ensue.tasks.contract.description import ModelDescription

READERS = ("evaluate", "scored_items", "prediction_lines", "score_lines")
"""The methods of a pipeline that read data as in training, unless a call names an encoding or a format."""


class Pipeline(Shown, ABC):
    """A model with its vocabularies. A task overrides the methods for the `commands` of its entry."""

    run: str | Path | None = None
    """The run directory of the model, for its `repr`."""

    reads_vectors: ClassVar[bool] = False
    """Whether inputs are sequences of vectors, not texts. On a command line, such inputs are files."""

    generates_files: ClassVar[bool] = False
    """Whether `ensue generate` writes a file by `generate_into(out, ...)`, which returns a summary in one line."""

    column_options: ClassVar[tuple[str, ...]] = ()
    """The arguments of `with_columns`. They are also options of the commands that read data."""
    chosen_columns: Mapping[str, str] = MappingProxyType({})
    """The columns that `with_columns` has chosen, by its arguments."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap `READERS` with `reading_as_in_training`, and `evaluate` and `predict` with `with_progress`."""
        super().__init_subclass__(**options)
        for name in READERS:
            if name in vars(cls):
                method = with_progress(vars(cls)[name]) if name == "evaluate" else vars(cls)[name]
                setattr(cls, name, reading_as_in_training(method))
        if "predict" in vars(cls):
            cls.predict = with_progress(vars(cls)["predict"])  # type: ignore[attr-defined]

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        """Return a method that an extension adds (`PipelineMethod`)."""
        method = None if name.startswith("_") else pipeline_methods().get(name)
        if method is None or not method.is_of(type(self)):
            return object.__getattribute__(self, name)  # raises AttributeError, or the error of a property
        return MethodType(method.load(), self)

    def __dir__(self) -> list[str]:
        """Return the names of attributes and methods, including the methods that extensions add."""
        return [*super().__dir__(), *(name for name, method in pipeline_methods().items() if method.is_of(type(self)))]

    @property
    def num_parameters(self) -> int:
        """The number of parameters; a shared parameter is counted once."""
        return count_parameters(self.model)

    def reading(self, location: str | Path, encoding: str | None = None, format: str | None = None) -> dict[str, str]:
        """Return the encoding and the format of data, as keyword arguments of `evaluate`. The defaults are the encoding
        of the training data, and their format if `location` has the same suffix.
        """
        run = None if self.run is None else RunDirectory(self.run)
        data = run.recipe.data if run is not None and run.exists else DataRecipe()
        encoding = encoding or encoding_like(data.encoding, str(location))
        suffixes = {Path(path).suffix for path in locations_in(data.train)} - {""}
        if not format and Path(location).suffix in suffixes and "format" in signature(self.evaluate).parameters:
            format = getattr(data, "format", "auto").replace("auto", "")
        return {"encoding": encoding} | ({"format": format} if format else {})

    def with_columns(self, **columns: str) -> Self:
        """Return a copy of the model that reads data with other columns than the training data.

        Args:
            columns: The names or numbers of columns, or keys of JSON: `words` (for classifiers: the text) and
                `labels`, or for pairs `sources` and `targets`. Several names have commas between them. The default is
                the columns of the training data.
        """
        if unknown := sorted(columns.keys() - {*self.column_options}):
            expected = " or ".join(self.column_options) or "no columns"
            raise EnsueError(f"{self.run}: unknown columns {unknown[0]}; the data of this model have {expected}")
        for name, value in columns.items():
            check_type(name, value, str, "a string")
        return copy_with(self, chosen_columns={**self.chosen_columns, **columns})

    @property
    def num_texts(self) -> int:
        """The number of texts in one input: 1, or more if the model reads several texts together."""
        return 1

    @property
    def num_scored(self) -> int:
        """The number of texts in one input of `score`: `num_texts`, or one more for a target after the sources."""
        return self.num_texts

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Self:
        """Return the trained model in a run directory."""
        return cls(run.model(device))

    @abstractmethod
    def evaluate(self, location: Data, *, encoding: str = "utf-8") -> Any:
        """Return the scores on a file, a folder or a glob."""

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems | None:
        """Return the scores of items, such as sentences, for a significance test of the difference to another model
        (`ensue compare`); None for a model without such a test.
        """
        return None

    def describe(self) -> ModelDescription:
        """Return the description from which exporters write the model. Raise EnsueError without a description."""
        raise EnsueError(f"{self.run}: models of this kind cannot be exported")

    def inspect_texts(self, *texts: str, **options: Any) -> Any:
        """Call `inspect` with the texts of one input, with an optional target after them, and with its `options`."""
        inspected: Any = self
        count = self.num_texts
        return inspected.inspect(texts[0] if count == 1 else texts[:count], *texts[count:], **options)

    def score_json(self, text: Any) -> Any:
        """Return the result of `score` as JSON values. The input is a text, or a list of `num_scored` texts."""
        scored: Any = self
        tokens = [score.as_json() for score in scored.score(text)]
        return {"nats": round(sum(token["nats"] for token in tokens), 6), "tokens": tokens}

    def facts(self, model: str = "", **parts: str) -> dict[str, str]:
        """Return the entries at the top of a page of `inspect`: run, model, `parts` by name, number of parameters."""
        run = {} if self.run is None else {"run": run_name(self.run)}
        return {**run, **({"model": model} if model else {}), **parts, "parameters": f"{self.num_parameters:,}"}

    def protocol(self, scores: Any) -> str:
        """Return a sentence on how `evaluate` computed the scores; "" without a remark."""
        return ""

    def lacking(self, *, least: int = 0) -> str:
        """Return a line on unknown words of all texts so far; "" for few unknown words or fewer than `least` words."""
        return ""

    def _sections(self) -> list[Section]:
        sections = [Section("", "inspection/plain.html", {"shown": repr(self)})]
        if self.run is None or not RunDirectory(self.run).exists:
            return sections
        run = RunDirectory(self.run)
        try:
            records, judged_by = [*MetricsLog(run.metrics).records()], run.entry.judged_by
        except RunError as error:  # the directory was changed since the model was loaded
            return [*sections, Section("", "inspection/plain.html", {"note": str(error), "shown": ""})]
        sections += curve_section(records, judged_by)
        for kind, name in (("valid", "validation, best weights"), ("test", "test")):
            best = [record for record in records if record["kind"] == kind and record.get("best", True)]
            sections += scores_section(best[-1]["scores"], name) if best else []
        return [*sections, *([Section("", "inspection/card.html", {"card": run.card})] if run.card else [])]

    def _format_repr(self, *facts: str) -> str:
        """Return the `repr` from facts about the model, such as the name of its layers."""
        run = [] if self.run is None else [f"run={str(self.run)!r}"]
        return f"{type(self).__name__}({', '.join([*facts, *run])})"


def reading_as_in_training(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a pipeline whose default encoding and format are the result of `Pipeline.reading`."""
    data_name, *names = list(signature(method).parameters)[1:]

    @wraps(method)
    def reading_method(self: Any, *location: Any, **options: Any) -> Any:
        data = location[0] if location else options.pop(data_name)
        if isinstance(data, list | tuple) and not data:
            raise EnsueError("the data: no rows")
        if not isinstance(data, Lines | TextSource):
            data = as_location(data, "the data")
            read = self.reading(data, options.get("encoding"), options.get("format"))
            options |= {name: value for name, value in read.items() if name in names}
        return method(self, data, *location[1:], **options)

    return reading_method


class Predictor(Pipeline):
    """A model with a prediction for each text."""

    terminal_format: ClassVar[str] = "plain"
    """The format of texts that a user types into a terminal."""

    @abstractmethod
    def predict(self, texts: Any) -> list[Any]:
        """Return the model's prediction for each text."""

    def predict_json(self, texts: Any) -> list[Any]:
        """Return the predictions as JSON values, the output of `ensue predict --json` and of the server."""
        return [{"text": text, "prediction": answer} for text, answer in zip(texts, self.predict(texts), strict=True)]

    def each_json(self, texts: Sequence[Any]) -> Iterator[Any]:
        """Yield the values of `predict_json` one by one, so that the caller may stop before the last text."""
        for text in texts:
            yield from self.predict_json([text])

    def before(self, other: Pipeline) -> Any:
        """Return this model combined with a tagger. Raise EnsueError unless this model is a cutter."""
        raise EnsueError(f"{self.run}: the model is not a cutter; {other.run} needs a cutter before it")

    def prediction_lines(
        self, location: str, *, format: str | None, encoding: str, as_json: bool, color: bool, shard: Shard = UNSHARDED
    ) -> Iterator[str]:
        """Yield the lines of `ensue predict`: the texts of a file ("-": stdin) with their predictions, in order.

        By default a line has a text, a tab and the prediction. `color` is whether a terminal shows the lines.

        Raises:
            DataError: The model cannot predict a text. The message names file and line.
        """
        for number, line in shard.items(lambda: text_lines(location, encoding)):
            text = line.rstrip("\r\n")
            try:
                (answer,) = self.predict_json([text]) if as_json else self.predict([text])
            except EnsueError as error:
                raise DataError(str(error), stream_name(location), number) from None
            yield (json.dumps(answer, ensure_ascii=False) if as_json else self.format_line(text, answer)) + "\n"

    def _open_source(self, location: str, *, format: str | None, encoding: str, is_labeled: bool = False) -> Any:
        if not is_stream(location):
            return self.source(location, format=format, encoding=encoding, is_labeled=is_labeled)
        format = format or (self.terminal_format if is_typed(location) and not is_labeled else None)
        return self.source(stream_lines(location, encoding), format=format, is_labeled=is_labeled)

    def format_line(self, text: str, answer: Any) -> str:
        """Return the line of `ensue predict` for a text and its prediction."""
        return f"{text}\t{answer}"
