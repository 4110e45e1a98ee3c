"""Several processes that train one model have the losses and checkpoints of one process."""

from pathlib import Path
from typing import Any

import pytest

from ensue.recipe import Recipe, validate_recipe
from training.cut_down import cut_down
from training.tiny import Recorder, reproducible_state, run_tiny, tiny_recipe
from training.tiny_pairs import pairs
from training.together import losses_of

NUM_WORDS, STEPS = 600, 50
ONE_OF_EACH = {
    "char-lstm-large": (2, 3, 4), "char-transformer": (3,), "elmo-small": (3,), "context2vec": (2,), "bert-tiny": (3,),
    "tag-lstm-crf": (3,), "tag-pretrained": (2,), "classify-lstm": (4,), "classify-pairs": (3,), "translate-lstm": (3,),
    "summarize-lm": (2,),
}  # fmt: skip
"""Recipes with each kind of batch, state and random numbers, and numbers of processes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_losses_of_processes_equal_those_of_one(
    name: str, text: Path, names: Path, topics: Path, tmp_path: Path
) -> None:
    data = {"tag": names, "classify": topics}.get(name.partition("-")[0], text)
    if name.partition("-")[0] in ("translate", "transduce", "summarize", "answer"):
        data = tmp_path / "pairs.tsv"
        data.write_text(pairs(60))
    if name.endswith("-pretrained"):
        run_tiny(cut_down("bert-tiny", text), tmp_path / "origin")
    document = cut_down(name, data, tmp_path / "origin").model_dump(exclude_none=True, by_alias=True)
    document["train"] |= {"steps": STEPS, "validations": 2}
    recipe = validate_recipe(document, where=name)
    alone = losses_of(recipe, tmp_path / "alone")
    for processes in ONE_OF_EACH[name]:
        losses = losses_of(recipe, tmp_path / f"of {processes}", processes=processes)
        assert losses == pytest.approx(alone, rel=1e-6, abs=1e-6)


def deterministic_recipe(name: str, data: Path, **train: Any) -> Recipe:
    document = cut_down(name, data).model_dump(exclude_none=True, by_alias=True)
    document["train"] |= {"deterministic": True, "steps": 12, "validations": 3} | train
    return validate_recipe(document, where=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["char-zoneout", "word-lstm-awd", "tag-lstm-crf", "classify-lstm", "char-transformer"])
def test_deterministic_runs_are_bit_identical_with_any_number_of_processes(
    name: str, text: Path, names: Path, topics: Path, tmp_path: Path
) -> None:
    data = {"tag": names, "classify": topics}.get(name.partition("-")[0], text)
    recipe = deterministic_recipe(name, data, batch_size=10, accumulate=2)
    losses_of(recipe, tmp_path / "of 1")
    losses_of(recipe, tmp_path / "of 4", processes=4)
    assert reproducible_state(tmp_path / "of 4") == reproducible_state(tmp_path / "of 1")


@pytest.mark.slow
def test_deterministic_runs_are_resumed_with_another_number_of_processes(text: Path, tmp_path: Path) -> None:
    recipe = deterministic_recipe("char-zoneout", text, reset_state=0.3, average=0.9)
    losses_of(recipe, tmp_path / "full")
    out = tmp_path / "parts"
    for step, processes in ((3, 2), (6, 4), (9, 1)):
        losses_of(recipe, out, processes=processes, resume=True, stop_after=step)
    losses_of(recipe, out, processes=2, resume=True)
    assert reproducible_state(out) == reproducible_state(tmp_path / "full")


@pytest.mark.slow
def test_a_reporter_ends_runs_of_one_process_early(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "is_enough", lambda recorder: len(recorder.steps) == 1)
    recipe = tiny_recipe(text, steps=3)
    assert [len(losses_of(recipe, tmp_path / str(count), processes=count)) for count in (1, 2)] == [1, 3]
