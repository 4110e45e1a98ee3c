"""No public function or method changes the settings of the process, whether it returns or raises.

The names are those of `docs/api.md`. Methods are called on a stored run of each task with arguments of a list.
"""

import gc
import inspect
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.engine import bf16_kernel
from ensue.errors import EnsueError
from ensue.recipe import read_recipe
from ensue.tasks import task_entry
from ensue.training.device import ComputeMode, flushes_denormals, restore_environment, use_mode
from kept_runs.make import RUNS, unpacked
from pages import named, public
from training.resuming import At, Killed, die, interrupt

FIRST = {read_recipe(RUNS[name].recipe).task: name for name in reversed(RUNS)}
"""A stored run of each task."""


def process() -> dict[str, Any]:
    """Return the settings of this process that a library could change."""
    mask = os.umask(0)
    os.umask(mask)
    root, numpy_state = logging.getLogger(), np.random.get_state()
    return {
        "torch's generator": torch.get_rng_state().tolist(),
        "random": None if "signatures" in sys.modules else random.getstate(),  # beartype draws from it
        "numpy's generator": (numpy_state[1].tolist(), numpy_state[2:]),  # type: ignore[index, union-attr]
        "denormals": flushes_denormals(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "type": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "determinism": (torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode()),
        "products": [
            (torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision),  # type: ignore[attr-defined]
            torch.backends.fp32_precision,  # type: ignore[attr-defined]
            torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark,
            bf16_kernel(),
        ],
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "numpy": (np.geterr(), repr(np.get_printoptions())),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "environment": dict(os.environ),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "folder": os.getcwd(),
        "path": list(sys.path),
        "logging": (root.level, list(root.handlers), logging.root.manager.disable),
        "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit(), sys.excepthook, gc.isenabled(), mask),
        "profiles": (sys.getprofile(), threading.excepthook),
        "children": multiprocessing.active_children(),
    }  # fmt: skip


def changes(call: Callable[[], Any]) -> tuple[list[str], BaseException | None]:
    """Return the settings that a call changes, and its error."""
    before, failure = process(), None
    try:
        result = call()
        if isinstance(result, Iterator):
            list(islice(result, 20))
    except BaseException as error:
        failure = error
    after = process()
    return [name for name in before if after[name] != before[name]], failure


PUBLIC = public()
CLASSES = {named(name): members for name, members in PUBLIC.items() if inspect.isclass(named(name))}
FUNCTIONS = {name for name in PUBLIC if not inspect.isclass(named(name))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_flush_denormal(False)
    return tmp_path


def arguments(run: str) -> list[tuple[Any, ...]]:
    """Return arguments to try; some are valid for each method."""
    text, words = "The sea was calm.", ["Anna", "sees", "Lima"]
    data = RUNS[run].data.split(",")
    image, series = np.ones((6, 8)), np.ones((9, 3), np.float32)
    return [
        (), (text,), ([text, "Nobody spoke."],), (data if len(data) > 1 else data[0],), tuple(data), ([text], [text]),
        (words,), ([words],), ("sea",), (["sea", "calm"],), ([image],), (image,), ([series],), (series,), (3,),
        (text, 2), ("sea", "calm", "book"), (Path("made"),), (["Nobody {} was calm."],), ("the [MASK] was",), ("text",),
    ]  # fmt: skip


@pytest.mark.parametrize("task", [pytest.param(task, marks=pytest.mark.sampled(2)) for task in FIRST])
def test_methods_of_pipelines_change_no_setting(task: str, folder: Path) -> None:
    """Each method is called until its arguments are valid."""
    run = FIRST[task]
    unpacked(run, folder)
    model = ensue.load(run)
    members = {name for kind, names in CLASSES.items() if isinstance(model, kind) for name in names}
    changed: dict[str, list[str]] = {}
    worked = set()
    for name in sorted(members):
        method = getattr(model, name)
        for values in arguments(run) if callable(method) else []:
            settings, failure = changes(lambda method=method, values=values: method(*values))
            if settings:
                changed[f"{name}{values}: {failure!r}"[:200]] = settings
            if failure is None:
                worked.add(name)
                break
    assert changed == {}
    assert len(worked) > len(members) / 4


TEXT = "the sea was calm. nobody spoke. " * 40


def trained(folder: Path, **options: Any) -> Any:
    settings = {"train.steps": 3, "encoder.d_model": 8, "train.validations": 1} | options.pop("settings", {})
    return ensue.train("char-lstm", train=folder / "book.txt", out=folder / "run", settings=settings, **options)


def estimator(folder: Path, name: str) -> Any:
    texts = ["a calm sea", "a dull film", "a calm play", "a dull book"] * 4
    if name == "Tagger":
        X, y = [text.split() for text in texts], [["O", "B-X", "O"]] * len(texts)
    else:
        X, y = texts, ["good", "bad"] * 8
    model = named(f"ensue.sklearn.{name}")(settings={"train.steps": 2})
    return model.fit(X, y).predict(X)


LAYER = ensue.nn.LSTM(3, 4)


def of_layer(*arguments: Any) -> Any:
    layer = torch.nn.Module if arguments else LAYER
    return named("ensue.extensions.gradients.gradients.state_gradients")(
        layer, torch.ones(1, 5, 3, dtype=torch.float32), lambda y: y[:, -1].sum(1)
    )


def of_task(task: str, name: str, *values: Any, **options: Any) -> Any:
    """Call a function of a pipeline with the stored run of a task."""
    unpacked(FIRST[task], Path())
    return named(f"ensue.extensions.bidirectional.{name}")(ensue.load(FIRST[task]), *values, **options)


CONTEXTUAL = "bidirectional-language-modeling"
CALLS: dict[str, list[Callable[[Path], Any]]] = {
    "ensue.extensions.bidirectional.word_uses.senses": [
        lambda folder: of_task(CONTEXTUAL, "word_uses.senses", [(["a", "sea"], 1, "water"), (["a", "sea"], 0, "one")])
    ],
    "ensue.extensions.bidirectional.word_uses.sense_scores": [
        lambda folder: of_task(CONTEXTUAL, "word_uses.sense_scores", "missing")
    ],
    "ensue.extensions.bidirectional.word_uses.word_in_context": [
        lambda folder: of_task(CONTEXTUAL, "word_uses.word_in_context", "missing", threshold_from="missing")
    ],
    "ensue.extensions.bidirectional.word_uses.sense_of": [
        lambda folder: of_task("word-vectors", "word_uses.sense_of", ["the", "sea"], 1)
    ],
    "ensue.train": [
        trained,
        lambda folder: trained(folder, resume=True),
        lambda folder: trained(folder, overwrite=True, reporter=At(2, interrupt)),
        lambda folder: trained(folder, overwrite=True, reporter=At(2, die)),
        lambda folder: trained(folder, overwrite=True, settings={"train.learning_rate": 1e30, "train.clip": 0}),
        lambda folder: trained(folder, overwrite=True, settings={"train.precision": "bfloat16"}),
        lambda folder: trained(folder, overwrite=True, settings={"train.optimizer": "muon"}),
        lambda folder: ensue.train("char-lstm", train=folder / "missing.txt", out=folder / "other"),
    ],
    "ensue.load": [lambda folder: ensue.load(folder / "char-lstm"), lambda folder: ensue.load("missing")],
    "ensue.distill": [
        lambda folder: ensue.distill(
            folder / "tag-lstm", "tag-lstm", pool=folder / "plain.txt", train=folder / "dev.conllu",
            out=folder / "student", settings={"train.epochs": 1, "encoder.d_model": 8},
        ),
        lambda folder: ensue.distill("missing", "tag-lstm", pool="missing", out="student"),
    ],
    "ensue.doubt": [
        lambda folder: ensue.doubt(
            [(f"{kind} {n}", kind) for n in range(6) for kind in ("good", "bad")], settings={"train.epochs": 1}, folds=2
        ),
        lambda folder: ensue.doubt("missing"),
    ],
    "ensue.import_run": [
        lambda folder: ensue.import_run(folder / "glove.txt", folder / "vectors"),
        lambda folder: ensue.import_run("missing", "imported"),
    ],
    "ensue.export_run": [
        lambda folder: ensue.export_run(folder / "char-lstm", folder / "c", "c"),
        lambda folder: ensue.export_run(folder / "tag-lstm", folder / "onnx", "onnx"),
        lambda folder: ensue.export_run("missing", "exported"),
    ],
    "ensue.push": [lambda folder: ensue.push(folder / "char-lstm", "name")],
    "ensue.compare": [lambda folder: ensue.compare([folder / "tag-lstm"] * 2, test=folder / "dev.conllu")],
    "ensue.extensions.error_analysis.report.report": [
        lambda folder: named("ensue.extensions.error_analysis.report.report")(
            ensue.load(folder / "tag-lstm"), folder / "dev.conllu"
        )
    ],
    "ensue.extensions.error_analysis.report.with_precision": [
        lambda folder: named("ensue.extensions.error_analysis.report.with_precision")(
            ensue.load(folder / "tag-lstm"), 0.01, on=folder / "dev.conllu"
        )
    ],
    "ensue.recipe.read_recipe": [lambda folder: ensue.recipe.read_recipe("char-lstm")],
    "ensue.recipe.recipe_names": [lambda folder: ensue.recipe.recipe_names()],
    "ensue.tasks.vectors.contextual.highest_cosines": [lambda folder: of_vectors("highest_cosines", np.eye(3), 2)],
    "ensue.tasks.vectors.contextual.near_duplicates": [lambda folder: of_vectors("near_duplicates", 0.5)],
    "ensue.extensions.gradients.gradients.state_gradients": [lambda folder: of_layer(), lambda folder: of_layer(None)],
    "ensue.extensions.gradients.gradients.encoder_gradients": [
        lambda folder: named("ensue.extensions.gradients.gradients.encoder_gradients")(
            "lstm", positions=3, steps=2, d_model=4
        ),
        lambda folder: named("ensue.extensions.gradients.gradients.encoder_gradients")("none"),
    ],
    "ensue.sklearn.TextClassifier": [lambda folder: estimator(folder, "TextClassifier")],
    "ensue.sklearn.Tagger": [lambda folder: estimator(folder, "Tagger")],
}  # fmt: skip


def of_vectors(name: str, *arguments: Any) -> Any:
    return named(f"ensue.tasks.vectors.contextual.{name}")(np.eye(3, dtype=np.float32), *arguments)


def test_each_public_function_is_called() -> None:
    """Classes with methods are pipelines of tasks, or have entries in CALLS or WITH_OTHERS."""
    values = {"Comparison", "Inspection", "Senses", "TaggedSentence", "Classified", "Report", "Curve", "LabelError"}
    pipelines = [read_entry(task) for task in FIRST]
    others = {
        f"{kind.__module__}.{kind.__name__}"
        for kind, members in CLASSES.items()
        if members and kind.__name__ not in values and not any(issubclass(each, kind) for each in pipelines)
    }
    named_so = {named(name) for name in CALLS}
    assert {named(name) for name in FUNCTIONS} <= named_so
    assert {name for name in others if name.rpartition(".")[2] not in {"TextClassifier", "Tagger"}} <= WITH_OTHERS


USES = "ensue.extensions.bidirectional.word_uses"
NEED_MORE = {"ensue.push", f"{USES}.sense_scores", f"{USES}.word_in_context"}
"""Functions that need a server or files that the test lacks."""
WITH_OTHERS = {
    "ensue.tasks.labeling.cutter.CutterAndTagger",
    "ensue.tasks.masked_language_modeling.pipeline.SentenceVectorsPipeline",
}
"""Pipelines made of others, whose methods they share."""


def read_entry(task: str) -> type:
    return task_entry(task).pipeline_class


MARKS = {"ensue.train": [], "ensue.load": [], "ensue.export_run": [pytest.mark.slow]}


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")
@pytest.mark.parametrize("is_changed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [pytest.mark.sampled(2)])) for name in CALLS]
)
def test_functions_change_no_setting(name: str, is_changed: bool, folder: Path) -> None:
    """This holds also if the settings of the process are not the defaults."""
    (folder / "book.txt").write_text(TEXT)
    for run in ("char-lstm", "tag-lstm", "tag-vectors"):
        unpacked(run, folder)
    (folder / "book.txt").write_text(TEXT)
    before = torch.get_num_threads()
    try:
        if is_changed:
            torch.set_flush_denormal(True)
            torch.set_num_threads(2)
            torch.set_default_dtype(torch.float64)
            torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
        changed = [changes(lambda call=call: call(folder)) for call in CALLS[name]]
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
        torch.set_default_dtype(torch.float32)
        torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]
    for _, failure in changed:
        assert failure is None or isinstance(failure, EnsueError | Killed | TypeError | AttributeError), failure
    assert [settings for settings, _ in changed] == [[]] * len(changed), changed
    assert changed[0][1] is None or name in NEED_MORE, changed[0][1]


PLANTED: dict[str, Callable[[], object]] = {
    "torch's generator": lambda: torch.rand(1),  # unlike torch.manual_seed, whose seed may be set already
    "denormals": lambda: torch.set_flush_denormal(True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "warnings": lambda: warnings.filterwarnings("ignore", "planted"),
    "environment": lambda: os.environ.__setitem__("PLANTED", "1"),
    "numpy's generator": np.random.rand,
    "logging": lambda: logging.getLogger().addHandler(logging.NullHandler()),
    "path": lambda: sys.path.append("planted"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_changes_are_detected(name: str) -> None:
    threads = torch.get_num_threads()
    with warnings.catch_warnings(), restore_environment():
        try:
            assert changes(PLANTED[name])[0] == [name]
        finally:
            torch.set_flush_denormal(False)
            torch.set_num_threads(threads)
            logging.getLogger().handlers = [
                each for each in logging.getLogger().handlers if type(each) is not logging.NullHandler
            ]
            sys.path[:] = [path for path in sys.path if path != "planted"]


def test_numpy_knows_denormal_numbers_while_they_are_flushed() -> None:
    """Without the package's precaution, numpy would warn and cache that there are none."""
    np.finfo._finfo_cache.clear()  # type: ignore[attr-defined]
    with use_mode(ComputeMode()):
        assert flushes_denormals()
        table = np.finfo(np.float32)
    assert table.smallest_subnormal > 0
