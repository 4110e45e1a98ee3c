"""Servers with small random models in this process."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from ensue.data.examples import Pair, PairLayout
from ensue.errors import EnsueError
from ensue.extensions.frames.classification import FrameClassificationPipeline, FrameClassifierParts
from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.frame_prediction.model import FramePredictorParts
from ensue.extensions.frames.frame_prediction.pipeline import FramePredictionPipeline
from ensue.extensions.frames.recipe import FrameClassificationRecipe, FramePredictionRecipe
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.extensions.serving.application import Application
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.processes import LOOPBACK
from ensue.extensions.serving.routes import COMMAND_PATHS
from ensue.extensions.serving.served_model import ServedModel
from ensue.extensions.serving.service import Service
from ensue.inspection.page import Inspection
from ensue.models.build_text import build_language_model
from ensue.recipe.tables import TokenizerRecipe
from ensue.tasks import task_entry
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.labels import Classes
from ensue.text.tokenizers import train_tokenizer
from extensions.serving.client import Client
from layer_tables import layers

TEXT = "The sea was calm.\nNobody spoke, and the sea was calm: nothing ended; été, naïve.\n" * 3
BUGS: list[BaseException] = []


def language_pipeline(tokens: str = "characters", **encoder: Any) -> LanguagePipeline:
    tokenizer = train_tokenizer(tokens, [TEXT])
    torch.manual_seed(1)
    specification = layers(**{"kind": "lstm", "d_embedding": 8, "d_model": 12, **encoder})
    model = build_language_model(**specification, vocabulary_size=tokenizer.vocabulary_size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return LanguagePipeline(model, tokenizer, run="/somewhere/runs/sea")


SEEN = FrameStatistics(Shape(2, 0.0, (), False, "the training data"), (0.0, 0.0), (1.0, 1.0))


def next_pipeline() -> FramePredictionPipeline:
    parts = FramePredictorParts(SEEN)
    recipe = FramePredictionRecipe.model_validate({"encoder": {"kind": "gru", "d_model": 3}, "train": {"steps": 1}})
    return FramePredictionPipeline(parts.build(recipe), parts, recipe=recipe, run="/somewhere/runs/next")


def frame_pipeline() -> FrameClassificationPipeline:
    parts = FrameClassifierParts(SEEN, Classes(["rest", "walk"]))
    tables = {"task": "frame-classification", "encoder": {"kind": "lstm", "d_model": 4}, "train": {"steps": 1}}
    recipe = FrameClassificationRecipe.model_validate(tables)
    return FrameClassificationPipeline(parts.build(recipe), parts, recipe=recipe, run="/somewhere/runs/motion")


def translating_pipeline() -> SequencePipeline:
    pairs = [Pair(("the sea was calm",), ("das Meer war ruhig",))]
    parts = EncoderDecoderParts(PairCoder.train(pairs, TokenizerRecipe(kind="words"), None))
    size = {"kind": "transformer", "d_model": 8, "num_layers": 1, "num_heads": 1}
    tables = {"encoder": size, "decoder": size, "tokens": {"d_embedding": 8}, "train": {"steps": 1}}
    recipe = SequenceToSequenceRecipe.model_validate({"task": "sequence-to-sequence", **tables})
    torch.manual_seed(1)
    layout, run = PairLayout("tsv"), "/somewhere/runs/ende"
    return SequencePipeline(parts.build(recipe), parts.coder, recipe=recipe, layout=layout, ratio=1.0, run=run)


def task_of(pipeline: Any) -> str:
    """Return a task with the commands of a pipeline."""
    if isinstance(pipeline, SequencePipeline):
        return "sequence-to-sequence"
    if isinstance(pipeline, FramePredictionPipeline):
        return "frame-prediction"
    return "language-modeling" if hasattr(pipeline, "generate") else "labeling"


class Shouter(Predictor):
    """A predictor of an unknown task."""

    def __init__(self, loudness: int = 0) -> None:
        self.run, self.loudness = "/somewhere/runs/shouter", loudness

    def with_search(self, *, n_best: int) -> Any:
        if n_best > 3:
            raise EnsueError(f"n_best is {n_best}, which hurts")
        return Shouter(n_best)

    def predict(self, texts: Any) -> list[Any]:
        if "boom" in texts:
            raise ZeroDivisionError("a secret text")
        return [text.upper() + "!" * self.loudness for text in texts]

    def inspect(self, text: Any) -> Inspection:
        return Inspection(text, [text])

    def evaluate(self, location: Any, *, encoding: str = "utf-8") -> Any:
        raise NotImplementedError


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., tuple[Client, Service]]]:
    """A client of a server, and its service: `serve({"lstm": pipeline}, rows=4, key="secret")`."""
    begun: list[ServedModel] = []

    def started(pipelines: dict[str, Any], *, key: str | None = None, **limits: Any) -> tuple[Client, Service]:
        bounds, metrics = Limits(**limits), Metrics()
        service = Service(
            limits=bounds, metrics=metrics, key=key, hosts=LOOPBACK, report=BUGS.append, log=lambda *_, **__: None
        )
        models = [
            ServedModel(
                name, pipeline, task_entry(task_of(pipeline)),
                paths=COMMAND_PATHS, limits=bounds, metrics=metrics, report=BUGS.append, long=service.long_worker,
            )
            for name, pipeline in pipelines.items()
        ]  # fmt: skip
        begun.extend(models)
        service.ready(models)
        return Client(Application(service)), service

    yield started
    for model in begun:
        model.close()


@pytest.fixture(scope="session")
def sea(serve: Callable[..., tuple[Client, Service]]) -> Client:
    """A client of a server with two recurrent language models, a Transformer with a small context, and `Shouter`."""
    client, _ = serve(
        {
            "lstm": language_pipeline(),
            "bytes": language_pipeline("bytes"),
            "transformer": language_pipeline(kind="transformer", d_model=12, num_heads=2, context=24),
            "shouter": Shouter(),
        }
    )
    return client


@pytest.fixture
def bugs() -> Iterator[list[BaseException]]:
    """The internal errors of servers; the list must be empty at the end of a test."""
    BUGS.clear()
    yield BUGS
    assert not BUGS
