"""The profile of the machine: which compute mode it selects, and when it is measured again."""

import json
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.engine import has_bfloat16
from ensue.errors import RecipeError, RunError
from ensue.recipe import read_recipe
from ensue.training import device, machine, runtime
from ensue.training.device import DEFAULT_MODE, ComputeMode, use_mode
from ensue.training.machine import WORKLOADS, Machine, Profile, Timing, Workload, machine_profile, nearest_workload
from ensue.training.runtime import choose_runtime
from training.tiny import plain_profile, reproducible_state, run_tiny, tiny_recipe, words

FAST = ComputeMode(precision="bfloat16", threads=2)


def profile_of(milliseconds: dict[ComputeMode, float]) -> Profile:
    """Return a profile in which every workload has these timings."""
    timings = [Timing(way=mode, milliseconds=number) for mode, number in milliseconds.items()]
    return Profile(machine=Machine.current(), date="2026-01-01", load=0.0, steps=dict.fromkeys(WORKLOADS, timings))


@pytest.mark.parametrize(
    ("milliseconds", "best"),
    [
        ({DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 9.5}, DEFAULT_MODE),
        ({DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 8}, ComputeMode(precision="bfloat16")),
        (
            {DEFAULT_MODE: 10, ComputeMode(products="medium"): 8, ComputeMode(precision="bfloat16"): 8.1},
            ComputeMode(products="medium"),
        ),
        ({DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 20, ComputeMode(threads=2): 8.6}, DEFAULT_MODE),
        (
            {DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 20, ComputeMode(threads=2): 8.1},
            ComputeMode(threads=2),
        ),
        ({DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 6, FAST: 5.5}, ComputeMode(precision="bfloat16")),
        ({DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 6, FAST: 4}, FAST),
    ],
)
def test_the_fastest_mode_is_chosen_if_it_beats_plainer_ones_by_a_margin(
    milliseconds: dict[ComputeMode, float], best: ComputeMode
) -> None:
    assert profile_of(milliseconds).best("narrow") == best


def test_fixed_settings_limit_the_choice() -> None:
    profile = profile_of(
        {
            DEFAULT_MODE: 10, ComputeMode(precision="bfloat16"): 6, ComputeMode(threads=2): 7, FAST: 4,
            ComputeMode(threads=4): 90,
        }
    )  # fmt: skip
    assert profile.best("narrow", precision="float32") == ComputeMode(threads=2)
    assert profile.best("narrow", threads=1) == ComputeMode(precision="bfloat16")
    assert profile.best("narrow", precision="float32", threads=1) == DEFAULT_MODE
    # the profile has no timing of bfloat16 with four threads
    assert profile.best("narrow", threads=4) == ComputeMode(precision="bfloat16", threads=4)
    assert profile.best("narrow", threads=3) == ComputeMode(precision="bfloat16", threads=3)


@pytest.mark.parametrize(
    ("recipe", "vocabulary", "workload"),
    [
        ("char-lstm", 65, "narrow"), ("char-lstm-large", 65, "wide"), ("char-grid", 65, "narrow"),
        ("word-lstm", 10_000, "words"), ("word-window", 10_000, "words"), ("char-transformer", 65, "attention"),
        ("bpe-transformer", 2048, "attention"), ("tag-lstm-crf", 0, "reader"), ("tag-transformer-crf", 0, "attention"),
        ("classify-lstm", 0, "reader"), ("classify-bag", 0, "bag"), ("classify-pairs", 0, "bag"),
    ],
)  # fmt: skip
def test_a_recipe_has_a_workload_of_its_kind_and_size(recipe: str, vocabulary: int, workload: Workload) -> None:
    assert nearest_workload(read_recipe(recipe), vocabulary) == workload


def test_a_machine_is_measured_once(measured: list[Machine]) -> None:
    messages: list[str] = []
    first = machine_profile(messages.append)
    assert machine_profile(messages.append) == first
    assert (len(measured), len(messages)) == (1, 1)
    assert stat.S_IMODE(first.machine.path.stat().st_mode) == 0o600
    second = machine_profile(messages.append, renew=True)
    assert (second.date, second.id != first.id) == ("measurement 2", True)
    assert machine_profile(messages.append) == second
    assert [path.name for path in first.machine.path.parent.iterdir()] == [first.machine.path.name]


def test_the_profile_of_another_process_is_used(measured: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    other = plain_profile().model_copy(update={"date": "of another process"})

    def measure(machine_to_measure: Machine, workloads: Sequence[Workload]) -> Profile:
        other.machine.path.write_text(other.model_dump_json())
        return plain_profile()

    monkeypatch.setattr(machine, "measure", measure)
    assert machine_profile() == machine_profile() == other


def test_modes_that_fail_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(precision: str) -> None:
        if precision == "bfloat16":
            raise RuntimeError("no such instruction")

    monkeypatch.setattr(machine, "training_step", lambda workload: step)
    monkeypatch.setattr(machine, "MEASURING_SECONDS", 0.0)
    timings = machine._time_modes("narrow")
    assert {timing.mode.precision for timing in timings} == {"float32"}
    profile = plain_profile().model_copy(update={"steps": dict.fromkeys(WORKLOADS, timings)})
    assert profile.best("narrow", precision="bfloat16", threads=2) == ComputeMode(precision="bfloat16", threads=2)
    assert profile.best("narrow", threads=2).precision == "float32"


def test_a_workload_is_measured_when_a_run_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_profile().machine.path.unlink()
    calls: list[Workload] = []

    def time_modes(workload: Workload) -> list[Timing]:
        calls.append(workload)
        return [Timing(way=DEFAULT_MODE, milliseconds=len(calls))]

    monkeypatch.setattr(machine, "_time_modes", time_modes)
    recipe, messages = read_recipe("char-lstm"), list[str]()
    for vocabulary in (65, 65, 10_000, 65):
        choose_runtime(recipe, vocabulary, None, device="cpu", threads=None, notify=messages.append)
    assert calls == ["narrow", "words"]
    assert ["(about 3 s)" in line for line in messages] == [True, True]
    assert {name: steps[0].milliseconds for name, steps in machine_profile().steps.items()} == {
        "narrow": 1, "words": 2, "wide": 3, "attention": 4, "reader": 5, "bag": 6
    }  # fmt: skip


@pytest.mark.parametrize("name", ["processor", "features", "cores", "torch", "ensue", "engine"])
def test_a_new_machine_is_measured_again(name: str, measured: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine_profile().machine
    changed = first.model_copy(update={name: 3 if name == "cores" else "another"})
    monkeypatch.setattr(Machine, "current", lambda: changed)
    assert machine_profile().machine == changed
    assert measured == [first, changed]


def damage(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damaged(path: Path) -> None:
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return damaged


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "damaged",
    [
        lambda path: path.write_text(""),
        lambda path: path.write_text(path.read_text()[:-20]),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_bytes(b"\xff" * 2_000_000),
        lambda path: (path.unlink(), path.mkdir()),
        damage(lambda document: document.update(format=2)),
        damage(lambda document: document.update(more=1)),
        damage(lambda document: document["machine"].update(processor="another")),
        damage(lambda document: document["steps"].update(narrow=[])),
        damage(lambda document: document["steps"]["narrow"].append(document["steps"]["narrow"][0])),
        damage(lambda document: document["steps"]["narrow"][0].update(milliseconds=0)),
        damage(lambda document: document["steps"]["narrow"][0].update(milliseconds=float("nan"))),
        damage(lambda document: document["steps"]["narrow"][0].update(milliseconds="1")),
        damage(lambda document: document["steps"]["narrow"][0]["way"].update(threads=0)),
        damage(lambda document: document["steps"]["narrow"][0]["way"].update(kernel="cuda")),
    ],
)  # fmt: skip
def test_a_damaged_profile_is_measured_again(damaged: Callable[[Path], object], measured: list[Machine]) -> None:
    damaged(machine_profile().machine.path)
    assert machine_profile().date == "measurement 2"


def test_a_profile_that_cannot_be_cached_is_used_by_the_process(
    measured: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file, where the folder should be")
    messages: list[str] = []
    assert machine_profile(messages.append) == machine_profile(messages.append)
    assert len(measured) == 1
    assert "cannot be cached" in messages[1]


@pytest.mark.slow
def test_two_runs_of_one_recipe_and_seed_are_bit_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe leaves precision and threads open, and a second measurement would differ."""
    machine_profile().machine.path.unlink()
    fast = ComputeMode(precision="bfloat16")
    answers = iter([{DEFAULT_MODE: 10.0, fast: 5.0}, {DEFAULT_MODE: 1.0, fast: 9.0}])
    monkeypatch.setattr(machine, "measure", lambda machine, workloads: profile_of(next(answers)))
    (tmp_path / "text.txt").write_text(words(300))
    recipe = tiny_recipe(tmp_path / "text.txt", precision="auto")
    for name in ("first", "second"):
        run_tiny(recipe, tmp_path / name, threads=None)
    assert reproducible_state(tmp_path / "first") == reproducible_state(tmp_path / "second")
    began = json.loads((tmp_path / "second" / "config.json").read_text())["runtime"]
    assert ComputeMode.model_validate({key: began[key] for key in ComputeMode.model_fields}) == fast
    assert began["profile"] == machine_profile().id


def test_a_resumed_run_keeps_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has not been measured, and supports the mode."""
    monkeypatch.setattr(machine, "measure", lambda machine, workloads: pytest.fail("measured"))
    processor(monkeypatch, kernels=("amx",))
    before = {"device": "cpu", "precision": "bfloat16", "products": "medium", "threads": 3, "profile": "x"}
    recipe = read_recipe("char-lstm")

    def resume(stored: Any, threads: int | None = None) -> Any:
        chosen = choose_runtime(recipe, 65, stored, device="auto", threads=threads, notify=print)
        return chosen.model_dump(include={"device", "precision", "products", "kernel", "threads", "profile"})

    assert resume(before) == before | {"kernel": None}
    assert resume(before, 1) == before | {"kernel": None, "threads": 1}
    assert resume(before | {"kernel": "amx"}) == before | {"kernel": "amx"}
    with pytest.raises(RunError, match=r"config.json: damaged: runtime.threads"):
        resume(before | {"threads": "many"})


def processor(
    monkeypatch: pytest.MonkeyPatch, *, halves: bool = True, kernels: tuple[str, ...] = (), exact: bool = True
) -> None:
    """Simulate a processor with or without products in bfloat16, with these kernels, and exact oneDNN products."""
    monkeypatch.setattr(runtime, "has_bfloat16", lambda: halves)
    monkeypatch.setattr(runtime, "bf16_kernels", lambda: kernels)
    monkeypatch.setattr(runtime, "bf16_kernel", lambda: next(reversed(kernels), None))
    monkeypatch.setattr(runtime, "medium_is_exact", lambda: exact)


@pytest.mark.parametrize(
    ("features", "changes", "description"),
    [
        ({"halves": False}, {"precision": "float32"}, "float32 in place of bfloat16"),
        ({"kernels": ("avx512",)}, {"kernel": "avx512"}, "bfloat16 by avx512 in place of amx"),
        ({}, {"kernel": None}, "bfloat16 by torch in place of amx"),
        (
            {"halves": False, "exact": False},
            {"precision": "float32", "products": "highest"},
            "float32 in place of bfloat16 and float32 products of the BLAS in place of oneDNN's",
        ),
    ],
)
def test_a_resumed_run_adapts_its_mode_to_another_processor(
    features: dict[str, Any], changes: dict[str, Any], description: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, **features)
    before = {"device": "cpu", "precision": "bfloat16", "kernel": "amx", "products": "medium", "threads": 1}
    lines: list[str] = []
    chosen = choose_runtime(read_recipe("char-lstm"), 65, before, device="auto", threads=None, notify=lines.append)
    assert chosen.model_dump(include=before.keys()) == before | changes
    assert lines == [f"this processor lacks a feature that the run used: the run continues with {description}"]


def test_bfloat16_is_refused_where_the_processor_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processor(monkeypatch, halves=False)
    (tmp_path / "text.txt").write_text(words(300))
    with pytest.raises(RecipeError, match=r"^train\.precision is bfloat16: this processor lacks"):
        run_tiny(tiny_recipe(tmp_path / "text.txt", precision="bfloat16"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bfloat16_is_not_measured_where_the_processor_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_bfloat16", lambda: False)
    assert {mode.precision for mode in machine.compared_modes("wide")} == {"float32"}


def test_a_kernel_is_set_if_the_processor_supports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["amx"]
    monkeypatch.setattr(device, "bf16_kernels", lambda: ("avx512", "amx"))
    monkeypatch.setattr(device, "bf16_kernel", lambda: chosen[-1])
    monkeypatch.setattr(device, "use_bf16_kernel", chosen.append)
    with use_mode(ComputeMode(kernel="avx512")):
        assert chosen == ["amx", "avx512"]
    assert chosen == ["amx", "avx512", "amx"]
    monkeypatch.setattr(device, "bf16_kernels", lambda: ("amx",))
    with use_mode(ComputeMode(kernel="avx512")):
        assert chosen == ["amx", "avx512", "amx"]


def test_measuring_gives_timings_and_restores_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tiny workload is really measured; random state, threads and precision of products do not change."""
    layer = torch.nn.Linear(64, 64)
    monkeypatch.setattr(machine, "MEASURING_SECONDS", 0.0)
    monkeypatch.setitem(
        machine.training_step.__globals__["BUILDERS"],
        "narrow",
        lambda: (layer, lambda: layer(torch.ones(64, 64)).sum()),
    )
    monkeypatch.setattr("ensue.processor.cores", lambda: 2)
    before = torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.get_rng_state()
    timings = machine._time_modes("narrow")
    assert timings[0].mode == DEFAULT_MODE
    assert {timing.mode.precision for timing in timings} == {"float32", *["bfloat16"] * has_bfloat16()}
    assert {timing.mode.threads for timing in timings} == {1, 2}
    assert all(0 < timing.milliseconds < 10_000 for timing in timings)
    assert before[:2] == (torch.get_num_threads(), torch.get_float32_matmul_precision())
    assert torch.equal(before[2], torch.get_rng_state())


def test_slow_modes_are_measured_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """If two threads or a precision are much slower, combinations are not measured."""
    now, calls = [0.0], []
    cost = {DEFAULT_MODE: 1.0, ComputeMode(precision="bfloat16"): 5.0, ComputeMode(threads=2): 3.0}
    current: list[ComputeMode] = []
    monkeypatch.setattr(machine, "compared_modes", lambda workload: [*cost, FAST])
    monkeypatch.setattr(machine, "MEASURING_SECONDS", 0.0)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])

    def step(precision: str) -> None:
        mode = ComputeMode(precision=precision, threads=torch.get_num_threads())  # type: ignore[arg-type]
        current.append(mode)
        calls.append(mode)
        now[0] += cost[mode]

    monkeypatch.setattr(machine, "training_step", lambda workload: step)
    milliseconds = {timing.mode: timing.milliseconds for timing in machine._time_modes("narrow")}
    assert milliseconds == {mode: 1000 * seconds for mode, seconds in cost.items()}
    assert [calls.count(mode) for mode in cost] == [5, 2, 1]


def test_a_training_step_changes_all_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = machine.BUILDERS[WORKLOADS[0]]()
    monkeypatch.setitem(machine.BUILDERS, WORKLOADS[0], lambda: workload)
    before = [parameter.clone() for parameter in workload[0].parameters()]
    machine.training_step(WORKLOADS[0])("float32")
    assert not any(torch.equal(a, b) for a, b in zip(before, workload[0].parameters(), strict=True))
