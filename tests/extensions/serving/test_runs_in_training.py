"""Runs that are served during training: refused before the first validation, then with the best weights so far."""

from pathlib import Path

import pytest
import torch

from ensue.errors import RunError
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.routes import COMMAND_PATHS
from ensue.extensions.serving.served_model import ServedModel
from ensue.extensions.serving.worker import Worker
from ensue.recipe import read_recipe
from ensue.runs.weights import read_tensors
from ensue.tasks.language_modeling.job import LanguageModeling
from ensue.training.run import train_run
from extensions.serving.running import TEXT
from page_data import tiny

pytestmark = pytest.mark.slow


def test_a_run_is_served_from_its_first_validation_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    run, lazy_batch, loaded = tmp_path / "run", LanguageModeling.lazy_batch, {}

    def batch_while_served(self: LanguageModeling, step: int, device: torch.device) -> object:
        if (run / "config.json").exists() and step not in loaded:
            try:
                served = ServedModel.load_run(
                    run, device="cpu", paths=COMMAND_PATHS, limits=Limits(), metrics=Metrics(), report=print,
                    long=Worker("long"),
                )  # fmt: skip
                served.close()
                weights = served.pipeline.model.state_dict()
                loaded[step] = all(
                    weights[name].equal(best) for name, best in read_tensors(run / "model.safetensors").items()
                )
            except RunError as error:
                loaded[step] = str(error)
        return lazy_batch(self, step, device)

    monkeypatch.setattr(LanguageModeling, "lazy_batch", batch_while_served)
    recipe = tiny(read_recipe("char-lstm", {"data.train": str(tmp_path / "text.txt")}))
    train = recipe.train.model_copy(update={"steps": 4, "validations": 2})
    train_run(recipe.model_copy(update={"train": train}), run, threads=1)
    message = f"{run}/model.safetensors: no such file: the run was stopped before its first validation"
    assert loaded == {0: message, 1: message, 2: True, 3: True}
