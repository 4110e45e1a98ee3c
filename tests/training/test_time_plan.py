"""A budget of seconds, tested with a clock that only steps and scoring advance: the announced plan is kept."""

import re
from collections.abc import Callable, Sized
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ensue.extension import entries
from ensue.recipe import Recipe, validate_recipe
from ensue.tasks import TASKS
from ensue.tasks.contract.job import Job
from ensue.training import loop, run
from ensue.training.loop import TimePlan, Trainer
from ensue.training.run import begin_job
from kept_runs.make import RUNS, StoredRun, small
from page_data import write_data
from training.tiny import run_tiny
from training.tiny_texts import Listener

STEP = 2.0
NAMES = [
    "char-lstm", "classify-lstm", "tag-lstm-crf", "cut-lstm", "translate-transformer", "masked", "elmo", "context2vec",
    "tag-frames", "classify-frames", "predict-frames", "captions", "glimpses", "draw",
    "vectors-cbow", "vectors-glove", "similar-texts", "texts-of-pairs",
]  # fmt: skip
"""Recipes for all classes of jobs."""
CASES = RUNS | dict.fromkeys(["similar-texts", "texts-of-pairs"], StoredRun("sentence-vectors", "pairs.tsv", []))
JUDGED = {"vectors-cbow": "similar.tsv", "vectors-glove": "analogies.txt", "similar-texts": "sts-dev.tsv"}
"""The held-out data of recipes that are scored on judgments."""


class Clock:
    """A clock that only steps and scoring advance."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for module in (loop, run):
            patch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def slow(self, patch: pytest.MonkeyPatch, owner: Any, name: str, cost: Callable[..., float]) -> list[float]:
        """Let each call of a method take `cost` of its arguments, and return the list of these costs."""
        method, costs = getattr(owner, name), []

        def slowed(*arguments: Any, **options: Any) -> Any:
            costs.append(cost(*arguments))
            self.now += costs[-1]
            return method(*arguments, **options)

        patch.setattr(owner, name, slowed)
        return costs


def recipe_of(name: str, folder: Path, **train: Any) -> Recipe:
    write_data(folder)
    document = small(CASES[name]).model_dump(exclude_none=True)
    document["train"] = {key: value for key, value in document["train"].items() if key != "steps"} | train
    document["data"]["train"] = ",".join(str(folder / path) for path in document["data"]["train"].split(","))
    if name in JUDGED or name == "texts-of-pairs":
        text = ": section\nsea nobody calm spoke\ncalm sea spoke nobody\n"
        (folder / "analogies.txt").write_text(text, encoding="utf-8")
        document["data"] |= {"test": str(folder / JUDGED.get(name, "sts-test.tsv"))}
        document["data"] |= {"valid": document["data"]["test"]} if name in JUDGED else {"valid_fraction": 0.5}
        return validate_recipe(document, where="tiny")
    document["data"]["test"] = document["data"]["train"]
    for path in map(Path, document["data"]["train"].split(",")):
        if path.is_file() and path.suffix not in (".csv", ".npz"):  # repeat small files
            text = path.read_text(encoding="utf-8")
            path.with_name(f"many-{path.name}").write_text(text * (1 + 8_000 // len(text)), encoding="utf-8")
            document["data"]["test"] = document["data"]["test"].replace(path.name, f"many-{path.name}")
    document["data"]["valid"] = document["data"]["test"]
    return validate_recipe(document, where="tiny")


def run_by_clock(
    recipe: Recipe, out: Path, patch: pytest.MonkeyPatch, *, valid: float, test: float, overhead: float = 0.0,
    **options: Any,
) -> tuple[Listener, float, list[float], float]:  # fmt: skip
    """Train while scoring all validation or test data takes `valid` or `test` seconds, plus `overhead`.

    Return the reports, the time of the run, and the times of the validations and of the test.
    """
    clock, used, reports = Clock(patch), {"valid": 1.0, "test": 1.0}, Listener()
    job_class = type(begin_job(recipe, None))
    use_part = job_class.use_part
    sizes: dict[str, int] = {}

    def using(self: Job[Any], name: Any, data: Sized) -> None:
        used[name] = len(data) / sizes.setdefault(name, len(self.held_out(name)))
        use_part(self, name, data)

    def validation(*_: Any) -> float:
        return overhead + valid * used["valid"]

    patch.setattr(job_class, "use_part", using)
    clock.slow(patch, loop.Tuning, "begin_step", lambda *_: STEP)
    validations = clock.slow(patch, Trainer, "validate", validation)
    clock.slow(patch, TimePlan, "_score", lambda self, name, model: validation() * (name == "valid"))
    tests = clock.slow(patch, job_class, "test", lambda *_: test * used["test"])
    clock.slow(patch, job_class, "finish", lambda *_: validation() * job_class.finishing_validations)
    outcome = run_tiny(recipe, out, reporter=reports, **options)
    assert (outcome.reason, outcome.seconds) == ("finished", pytest.approx(STEP * outcome.step))
    return reports, clock.now + loop.CLOSING_SECONDS, validations, tests[-1]


@pytest.mark.parametrize(
    ("valid", "test", "overhead", "count", "parts"),
    [
        pytest.param(0.05, 0.1, 0.0, 4, [], marks=pytest.mark.slow),  # cheap, so all validations of the recipe
        pytest.param(1.0, 2.0, 0.5, 4, [], marks=pytest.mark.slow),
        (2.0, 2.0, 0.5, 2, []),  # fewer validations
        (40.0, 2.0, 0.5, 2, ["validation"]),
        pytest.param(1.0, 80.0, 0.0, 4, ["test"], marks=pytest.mark.slow),
        (200.0, 200.0, 0.0, 2, ["test", "validation"]),
    ],
)
def test_the_announced_plan_is_kept(
    valid: float, test: float, overhead: float, count: int, parts: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    recipe = recipe_of("classify-lstm", tmp_path, seconds=60.0, validations=4)
    reports, total, validations, tested = run_by_clock(
        recipe, tmp_path / "run", monkeypatch, valid=valid, test=test, overhead=overhead
    )
    assert total == pytest.approx(60, abs=2)
    announced = next(note for note in reports.notes if note.startswith("about "))
    about, preparation, training, of_validation, closing = map(float, re.findall(r"([\d.]+) s\b", announced))
    assert (about, len(validations)) == (60, count)
    assert f" {count} of 4 validations" in announced or (count == 4 and " 4 validations" in announced)
    assert training == pytest.approx(STEP * len(reports.steps), abs=6)
    if not parts:  # the time of a part may be overestimated
        assert of_validation == pytest.approx(validations[0], abs=0.5)
        assert closing == pytest.approx(tested + 2 * validations[0] + loop.CLOSING_SECONDS, abs=1)
    assert validations[0] - 0.5 <= of_validation <= 6
    assert max(validations) <= 6
    assert tested <= 12
    assert preparation <= 12
    part_notes = [note for note in reports.notes if "lack of time" in note]
    assert [note.split()[0] for note in part_notes] == parts
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8").split("\n")
    assert {f"- {note}" for note in (announced, *part_notes)} <= {*card}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_job_keeps_its_budget(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(name, tmp_path, seconds=60.0, validations=4)
    monkeypatch.setattr(type(begin_job(recipe, None)), "sample_size", 1)
    reports, total, validations, tested = run_by_clock(recipe, tmp_path / "run", monkeypatch, valid=9.0, test=15.0)
    assert total == pytest.approx(60, abs=6)
    assert max(validations) <= 6
    assert tested <= 12
    assert [note.split()[0] for note in reports.notes if "lack of time" in note] == ["test", "validation"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_part_is_drawn_from_the_data(name: str, tmp_path: Path) -> None:
    """Drawing all examples gives the scores of the data; fewer give other, reproducible scores."""
    job: Any = begin_job(recipe_of(name, tmp_path, steps=1), None)
    model = job.build_model()
    data = {part: job.held_out(part) for part in ("valid", "test")}

    def scores(part: str, share: float) -> Any:
        count = max(1, int(share * len(data[part])))
        assert len(job.draw(data[part], count)) == count
        job.use_part(part, job.draw(data[part], count))
        return (job.task.validate(model) if part == "valid" else job.test(model)).as_json()

    for part, all_scores in (("valid", job.task.validate(model)), ("test", job.test(model))):
        assert scores(part, 1.0) == all_scores.as_json()
        assert scores(part, 0.5) != all_scores.as_json()
        assert scores(part, 0.5) == scores(part, 0.5)


def test_names_has_all_tasks() -> None:
    solved = {"frame-classification-minirocket"}  # solved in one step, without validation data
    assert {small(CASES[name]).task for name in NAMES} == {*TASKS, *entries("task")} - solved


def test_a_planted_bug_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "draw", lambda self, data, count: data)
    with pytest.raises(AssertionError):
        test_the_announced_plan_is_kept(40.0, 2.0, 0.5, 2, ["validation"], tmp_path, monkeypatch)


def test_a_resumed_run_keeps_its_parts_in_the_remaining_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, drawn, totals = recipe_of("classify-lstm", tmp_path, seconds=60.0, validations=4), [], []
    for longer in (recipe, recipe.model_copy(update={"train": recipe.train.model_copy(update={"seconds": 100.0})})):
        with monkeypatch.context() as patch:
            costs = {"valid": 40.0, "test": 2.0}
            reports, total, *_ = run_by_clock(longer, tmp_path / "run", patch, **costs, resume=longer is not recipe)
        drawn.append([note for note in reports.notes if "lack of time" in note])
        totals.append(total)
    assert drawn[0] == drawn[1] != []
    assert 95 <= sum(totals) <= 100 + 15  # includes the test and the card of the first run
