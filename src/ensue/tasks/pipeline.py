"""A trained model at work: what the command line, a server and a notebook ask of every task."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import torch

from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.data.streams import is_stream, stream_text
from ensue.errors import EnsueError
from ensue.models.modules import count_parameters
from ensue.runs.directory import RunDirectory
from ensue.tasks.task import Scores


class Pipeline(ABC):
    """A model with its vocabularies. A task overrides what its entry's `commands` promise."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def num_parameters(self) -> int:
        """Numbers in the model, shared ones counted once."""
        return count_parameters(self.model)

    @property
    def num_texts(self) -> int:
        """How many texts are one input: 1, or 2 where texts are compared."""
        return 1

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Self:
        """The trained model in a run directory."""
        return cls(run.model(device))

    def predict(self, texts: Any) -> list[Any]:
        """What the model says of each text."""
        raise NotImplementedError

    @abstractmethod
    def evaluate(self, location: str | Path, *, encoding: str = "utf-8") -> Scores:
        """The scores on a file, a folder or a glob."""

    def protocol(self, scores: Any) -> str:
        """How `evaluate` came to these scores, in words; "" where there is nothing to say."""
        return ""

    def prediction_lines(
        self, location: str, *, format: str | None, encoding: str, as_json: bool, color: bool
    ) -> Iterator[str]:
        """What `ensue predict` writes: the texts of a file ("-": stdin) with what the model says of each, in order.

        `color`: for a person at a terminal. By default a text is a line, and its answer comes behind a tab.
        """
        chunks = (
            stream_text(location, encoding) if is_stream(location) else TextSource(location, encoding=encoding).chunks()
        )
        for _, line in Lines(chunks, location):
            text = line.rstrip("\r\n")
            (answer,) = self.predict([text])
            said = json.dumps({"text": text, "prediction": answer}, ensure_ascii=False)
            yield (said if as_json else f"{text}\t{answer}") + "\n"

    def use_vectors(self, file: str | Path) -> None:
        """Look words that training had not up in this file of pretrained vectors. EnsueError where there are none."""
        raise EnsueError(f"{file}: a model of this kind has no pretrained vectors")
