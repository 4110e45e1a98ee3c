"""Tiny texts and recipes that train in a fraction of a second, and functions to compare runs."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ensue.engine import has_bfloat16
from ensue.engine.products import INT8_FEATURES
from ensue.errors import DataError
from ensue.processor import features
from ensue.recipe import Recipe, validate_recipe
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import Manifest, entry_of
from ensue.runs.reporter import Outcome, Reporter, StepReport, Validation
from ensue.runs.schema import ManifestContent
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.training.machine import WORKLOADS, ComputeMode, Machine, Profile, Timing
from ensue.training.run import train_run
from layer_tables import layer_tables

WORDS = [
    "the", "cat", "sat", "on", "a", "mat", "and", "saw", "some", "birds", "fly", "over", "its", "warm", "house",
    "while", "rain", "fell", "down",
]  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "d_embedding": 6, "d_model": 8},
    "transformer": {"kind": "transformer", "d_embedding": 8, "d_model": 8, "num_heads": 2, "context": 12},
}
TRAIN: dict[str, Any] = {
    "steps": 12, "batch_size": 4, "segment_length": 12, "learning_rate": 0.01, "validations": 3, "sample_tokens": 8,
    "precision": "float32",
}  # fmt: skip


def words(count: int, *, seed: int = 0) -> str:
    """Return random words with some line ends, about five characters per word."""
    choose = random.Random(seed)
    return "".join(choose.choice(WORDS) + choose.choice("  \n") for _ in range(count))


def tiny_recipe(
    text: Path, *, model: str | dict[str, Any] = "lstm", data: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None, **train: Any,
) -> LanguageModelingRecipe:  # fmt: skip
    """Return a recipe for `text`; the keywords change `[train]`, and another budget replaces the steps."""
    table = TRAIN | train
    if {"epochs", "tokens", "seconds"} & train.keys():
        del table["steps"]
    document = {
        "data": {"train": str(text), **(data or {})},
        **layer_tables(MODELS[model] if isinstance(model, str) else model),
        **({"tokenizer": tokenizer} if tokenizer else {}),
        "train": table,
    }
    recipe = validate_recipe(document, where="tiny")
    assert isinstance(recipe, LanguageModelingRecipe)
    return recipe


def small_recipe(task: str, train: Path | str, changes: dict[str, Any], **defaults: Any) -> Any:
    """Return a recipe for data; tables of `changes` update those of `defaults`, other keys are of `[train]`."""
    document: dict[str, Any] = {"data": {"train": str(train)}, "train": {"validations": 1, "precision": "float32"}}
    for name, value in (*defaults.items(), *changes.items()):
        if isinstance(value, dict):
            table = document.get(name, {})
            is_other = "kind" in table and value.get("kind", table["kind"]) != table["kind"]
            document[name] = value if is_other else table | value
        else:
            document["train"][name] = value
    return validate_recipe({"task": task, **document}, where="tiny")


def run_tiny(recipe: Recipe | None, out: Path, **options: Any) -> Outcome:
    return train_run(recipe, out, **{"device": "cpu", "threads": 1} | options)


def assert_refused(recipe: Recipe, out: Path, expected: str) -> None:
    """Assert that the recipe's data are refused with an error of one line, before a run is created."""
    with pytest.raises(DataError, match=expected) as caught:
        run_tiny(recipe, out)
    assert "\n" not in str(caught.value)
    assert not out.exists()


needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this processor does not multiply in bfloat16")
needs_int8 = pytest.mark.skipif(features().isdisjoint(INT8_FEATURES), reason="this processor has no VNNI")


def plain_profile() -> Profile:
    """Return a profile of this machine in which all modes are equally fast, so that runs choose the plain one."""
    modes = [ComputeMode(), ComputeMode(precision="bfloat16")]
    steps = {workload: [Timing(way=mode, milliseconds=1.0) for mode in modes] for workload in WORKLOADS}
    return Profile(machine=Machine.current(), date="2026-01-01", load=0.0, steps=steps)


def reproducible_state(run: Path) -> dict[str, Any]:
    """Return all that a repeated or resumed run must reproduce: weights, checkpoint, counters and log without times."""
    last = complete_checkpoints(RunDirectory(run).checkpoints)[-1]
    files = [run / "model.safetensors", *sorted(last.glob("*.safetensors"))]
    progress = json.loads((last / "progress.json").read_text())
    progress = {key: value for key, value in progress.items() if not key.endswith("seconds")}
    records = [
        {key: value for key, value in json.loads(line).items() if key != "seconds"}
        for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    return {
        "checkpoint": last.name,
        "progress": progress,
        "records": records,
        **{str(f.relative_to(run)): f.read_bytes() for f in files},
    }


def seal(directory: Path) -> None:
    """Update the checksums of the manifest, so that altered files pass them."""
    manifest = Manifest(directory)
    content = manifest.content()
    files = {name: entry_of(directory / name) for name in content.files}
    manifest.write(ManifestContent(files=files, log=content.log))


def some_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Return parameters for `parametrize`; all but the `quick` ones are slow."""
    return [pytest.param(case, marks=[] if case in quick else [pytest.mark.slow]) for case in cases]


class Recorder(Reporter):
    """Records all reports."""

    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.validations: list[Validation] = []

    def stepped(self, report: StepReport) -> None:
        self.steps.append(report)

    def validated(self, validation: Validation) -> None:
        self.validations.append(validation)
