"""A trained model in use: the interface for the command line, a server or a notebook, the same for every task."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar, Self

import torch

from ensue.data.files import Location
from ensue.data.lines import Lines
from ensue.data.sources import TextSource, is_stream, is_typed, stream_lines, stream_name
from ensue.errors import DataError, EnsueError, RunError
from ensue.extension import pipeline_methods
from ensue.hub import run_name
from ensue.inspection.notebook import Shown, curve_section, scores_section
from ensue.inspection.page import Section
from ensue.metrics.scores import ScoredItems
from ensue.models.modules import count_parameters
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import MetricsLog
from ensue.tasks.contract.chunks import WHOLE, Shard
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.contract.task import Scores


class Pipeline(Shown, ABC):
    """A model with its vocabularies. A task overrides the methods for the `commands` of its entry."""

    run: str | Path | None = None
    """The run directory of the model, for its `repr`."""

    reads_vectors: ClassVar[bool] = False
    """Whether an input is a sequence of vectors in place of texts; on a command line it is a file."""

    generates_files: ClassVar[bool] = False
    """Whether `ensue generate` writes a file, by `generate_into(out, ...)`, which says what it wrote, in one line. Its
    arguments are those options of the command that the entry of the task names.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        """Return a method that an extension adds (`PipelineMethod`)."""
        method = None if name.startswith("_") else pipeline_methods().get(name)
        if method is None or not method.is_of(type(self)):
            return object.__getattribute__(self, name)  # which raises, for a property its own error
        return MethodType(method.load(), self)

    def __dir__(self) -> list[str]:
        """Return the names of attributes and methods, with those that extensions add."""
        return [*super().__dir__(), *(name for name, method in pipeline_methods().items() if method.is_of(type(self)))]

    @property
    def num_parameters(self) -> int:
        """The number of parameters; shared ones are counted once."""
        return count_parameters(self.model)

    @property
    def num_texts(self) -> int:
        """The number of texts in one input: 1, or 2 if texts are compared."""
        return 1

    @property
    def num_scored(self) -> int:
        """The number of texts in one input of `score`: a target comes after its sources."""
        return self.num_texts

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Self:
        """The trained model in a run directory."""
        return cls(run.model(device))

    @abstractmethod
    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> Scores:
        """The scores on a file, a folder or a glob."""

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems | None:
        """The scores on a file, a folder or a glob with the items that they are made of, so that a difference to
        another model can be tested (`ensue compare`). None for a model without such a test.
        """
        return None

    def describe(self) -> ModelDescription:
        """Return the description from which exporters write the model. Raises EnsueError for one that has none."""
        raise EnsueError(f"{self.run}: models of this kind cannot be exported")

    def inspect_texts(self, *texts: str, **options: Any) -> Any:
        """`inspect` of the texts of one input, perhaps with a target behind them, and with `options` of the task."""
        inspected: Any = self
        count = self.num_texts
        return inspected.inspect(texts[0] if count == 1 else texts[:count], *texts[count:], **options)

    def score_json(self, text: Any) -> Any:
        """The answer of `score` for a text, or a list of `num_scored` texts, as JSON values for the server."""
        scored: Any = self
        tokens = [score.as_json() for score in scored.score(text)]
        return {"nats": round(sum(token["nats"] for token in tokens), 6), "tokens": tokens}

    def facts(self, model: str = "", **parts: str) -> dict[str, str]:
        """The facts at the top of a page of `inspect`: the run, these descriptions of the model, its parameters."""
        run = {} if self.run is None else {"run": run_name(self.run)}
        return {**run, **({"model": model} if model else {}), **parts, "parameters": f"{self.num_parameters:,}"}

    def protocol(self, scores: Any) -> str:
        """A sentence that says how `evaluate` has computed these scores; "" if there is nothing to say."""
        return ""

    def lacking(self, *, least: int = 0) -> str:
        """A line on what the model does not know of the texts so far; "" if little, or before `least` words."""
        return ""

    def _pieces(self) -> list[Section]:
        """A description, and of its run the curve, the scores and the card."""
        shown = [Section("", "inspection/plain.html", {"shown": repr(self)})]
        if self.run is None or not RunDirectory(self.run).exists:
            return shown
        run = RunDirectory(self.run)
        try:
            records, judged_by = MetricsLog(run.metrics).records(), run.entry.judged_by
        except RunError as error:  # the directory was changed since the model was loaded
            return [*shown, Section("", "inspection/plain.html", {"note": str(error), "shown": ""})]
        shown += curve_section(records, judged_by)
        for kind, name in (("valid", "validation, best weights"), ("test", "test")):
            kept = [record for record in records if record["kind"] == kind and record.get("best", True)]
            shown += scores_section(kept[-1]["scores"], name) if kept else []
        card = run.path / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
        return [*shown, *([Section("", "inspection/card.html", {"card": text})] if text else [])]

    def _described(self, *parts: str) -> str:
        """The `repr` of these parts, with the run at the end."""
        run = [] if self.run is None else [f"run={str(self.run)!r}"]
        return f"{type(self).__name__}({', '.join([*parts, *run])})"


class Predictor(Pipeline):
    """A model that says something of each text."""

    typed: ClassVar[str] = "plain"
    """The format of texts that a person types."""

    @abstractmethod
    def predict(self, texts: Any) -> list[Any]:
        """The model's prediction for each text."""

    def predict_json(self, texts: Any) -> list[Any]:
        """The predictions as JSON values, as `ensue predict --json` and the server write them."""
        return [{"text": text, "prediction": answer} for text, answer in zip(texts, self.predict(texts), strict=True)]

    def each_json(self, texts: Sequence[Any]) -> Iterator[Any]:
        """The values of `predict_json`, worked out one by one, so that the caller may stop before the last."""
        for text in texts:
            yield from self.predict_json([text])

    def before(self, other: Pipeline) -> Any:
        """This model with another one behind it. Raises EnsueError unless it is a cutter and the other one a tagger."""
        raise EnsueError(f"{self.run}: the model is no cutter; {other.run} can only stand behind one")

    def prediction_lines(
        self, location: str, *, format: str | None, encoding: str, as_json: bool, color: bool, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        """The lines of `ensue predict`: the texts of a file ("-": stdin) with their predictions, in order.

        `color` is for a terminal. By default a text is a line, followed by a tab and the prediction. Raises DataError,
        with file and line, for a text of which the model says nothing.
        """

        def lines() -> Lines:
            if is_stream(location):
                return stream_lines(location, encoding)
            return Lines(TextSource(location, encoding=encoding).chunks(), location)

        for number, line in shard.items(lines):
            text = line.rstrip("\r\n")
            try:
                (answer,) = self.predict_json([text]) if as_json else self.predict([text])
            except EnsueError as error:
                raise DataError(str(error), stream_name(location), number) from None
            yield (json.dumps(answer, ensure_ascii=False) if as_json else self.line_of(text, answer)) + "\n"

    def _opened(self, location: str, *, format: str | None, encoding: str, is_labeled: bool = False) -> Any:
        """The `source` of a file or a stream ("-": stdin)."""
        if not is_stream(location):
            return self.source(location, format=format, encoding=encoding, is_labeled=is_labeled)
        format = format or (self.typed if is_typed(location) and not is_labeled else None)
        return self.source(stream_lines(location, encoding), format=format, is_labeled=is_labeled)

    def line_of(self, text: str, answer: Any) -> str:
        """A text and its prediction as a line."""
        return f"{text}\t{answer}"
