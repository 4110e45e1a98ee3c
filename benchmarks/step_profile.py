"""A training step of Transformers, part by part: products, attention, norms, dropout, softmax, optimizer, Python.

    python benchmarks/step_profile.py [--translate SOURCE,TARGET] [--characters TEXT] [--masked TEXT]
        [--steps N] [--precision float32|bfloat16]

Each operation of torch is timed where it is called, in forward and backward, and belongs to the part whose module
called it. So is each pass in C (`engine/passes.c`). "Casts" are copies in another type. A step is timed without that,
in turns with its own products alone: products of the same shapes, types and strides, one after another. "Python" is
what is left of a step: the interpreter, autograd and the reading of the batch. One thread, processor time, milliseconds
a step, each the mean of N steps. Freed memory is kept, as `ensue train` does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from machine import describe_machine
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ensue.engine.products import parallel_rows
from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention, SoftmaxHead, TokenEmbedding
from ensue.nn.attention.blocks import FeedForward
from ensue.nn.draws import ElementDropout
from ensue.processor import Precision, keep_freed_memory
from ensue.recipe import read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.training.device import ComputeMode, use_mode
from ensue.training.loop import Trainer
from ensue.training.run import begin_job

RECIPES = {"translate": "translate-transformer", "characters": "char-transformer", "masked": "bert-mini"}
PARTS = {
    ElementDropout: "dropout", nn.LayerNorm: "norms", nn.RMSNorm: "norms", SoftmaxHead: "softmax and loss",
    MultiHeadAttention: "around attention", MultiHeadCrossAttention: "around attention", FeedForward: "activation",
    TokenEmbedding: "embeddings",
}  # fmt: skip
"""The part of the operations that are called in a module of this class, and not in one inside of it."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
ORDER = ("products", "attention", "around attention", "norms", "activation", "dropout", "softmax and loss",
         "embeddings", "casts", "optimizer", "others")  # fmt: skip


class Ranges:
    """The parts of the nodes of autograd's graph, by their sequence numbers."""

    def __init__(self) -> None:
        self.stack, self.ends, self.parts = ["others"], list[int](), list[str]()

    def mark(self) -> None:
        """What has been called since the last mark belongs to the part that is now entered."""
        self.ends.append(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]
        self.parts.append(self.stack[-1])

    def enter(self, part: str) -> None:
        self.mark()
        self.stack.append(part)

    def leave(self) -> None:
        self.mark()
        self.stack.pop()

    @property
    def current(self) -> str:
        """The part of what is called now, forward or backward."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.stack[-1]
        place = bisect_left(self.ends, node._sequence_nr() + 1)  # type: ignore[attr-defined]
        return self.parts[place] if place < len(self.parts) else "others"


class Timed(TorchDispatchMode):
    """Seconds of operations by part, and the products that were called."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self.ranges, self.seconds, self.products = ranges, defaultdict[str, float](float), list[tuple[Any, Any]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, started = func._schema.name.removeprefix("aten::"), time.thread_time()
        found = func(*args, **(kwargs or {}))
        seconds = time.thread_time() - started
        if name in PRODUCTS:
            part = "products"
            self.products.append((func, [like(x) if isinstance(x, Tensor) else x for x in args]))
        elif name.startswith("_scaled_dot_product"):
            part = "attention"
        elif name == "_to_copy":
            part = "casts"
        else:
            part = self.ranges.current
        self.seconds[part] += seconds
        return found


def like(x: Tensor) -> tuple[Any, ...]:
    """What a tensor of the same kind needs."""
    return x.shape, x.stride(), x.dtype


def trainer_of(name: str, data: str, folder: Path, precision: Precision) -> Trainer:
    """The recipe on these data, at the beginning of a training without an end."""
    recipe = read_recipe(name, {"data.train": data, "train.seconds": None, "train.steps": 10**9})
    job = begin_job(recipe, None)
    torch.manual_seed(recipe.train.seed)
    folder.mkdir()
    run = RunDirectory(folder)
    return Trainer(job.build_model(), job.task, recipe.train, run, precision=precision, reporter=Reporter())


@contextmanager
def parts_told(trainer: Trainer, ranges: Ranges) -> Iterator[None]:
    """Modules, the optimizer and the draws of dropout enter their parts."""
    handles = []
    for module in trainer.model.modules():
        part = next((part for kind, part in PARTS.items() if isinstance(module, kind)), None)
        if part is not None:
            handles += [module.register_forward_pre_hook(lambda *_, part=part: ranges.enter(part)),
                        module.register_forward_hook(lambda *_: ranges.leave())]  # fmt: skip
            if isinstance(module, SoftmaxHead):
                module.total_nats = inside(module.total_nats, ranges, part)
    trainer._descend = inside(trainer._descend, ranges, "optimizer")  # type: ignore[method-assign]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in trainer.model.modules():
            vars(module).pop("total_nats", None)
        del trainer._descend


def inside(function: Callable[..., Any], ranges: Ranges, part: str) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        ranges.enter(part)
        try:
            return function(*args, **options)
        finally:
            ranges.leave()

    return called


def operations(trainer: Trainer) -> tuple[dict[str, float], list[tuple[Any, Any]]]:
    """Milliseconds of a step by part, and its products."""
    ranges = Ranges()
    mode = Timed(ranges)
    with passes_timed(mode), parts_told(trainer, ranges), mode:
        trainer.step()
    return {part: 1e3 * mode.seconds[part] for part in ORDER}, mode.products


@contextmanager
def passes_timed(mode: Timed) -> Iterator[None]:
    """Passes in C run though `mode` looks on, and it hears what they take."""

    def timed(*args: Any, **options: Any) -> None:
        started = time.thread_time()
        parallel_rows(*args, **options)
        mode.seconds[mode.ranges.current] += time.thread_time() - started

    with ExitStack() as stack:
        for name in ("draws", "attention.positions", "attention.scores", "heads.linear_cross_entropy"):
            stack.enter_context(patch.object(import_module(f"ensue.nn.{name}"), "parallel_rows", timed))
        stack.enter_context(patch("ensue.engine.execution._get_current_dispatch_mode", lambda: None))
        yield


def replayed(products: list[tuple[Any, Any]]) -> Callable[[], None]:
    """The products alone, each on the same numbers of its shape."""
    kept: dict[Any, Tensor] = {}

    def tensor(key: Any) -> Tensor:
        if key not in kept:
            shape, stride, dtype = key
            kept[key] = (
                torch.randn(1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)))
                .to(dtype)
                .as_strided(shape, stride)
            )
        return kept[key]

    calls = [(func, [tensor(x) if isinstance(x, tuple) else x for x in args]) for func, args in products]

    def run() -> None:
        for func, args in calls:
            func(*args)

    return run


def flops(products: list[tuple[Any, Any]]) -> float:
    """Additions and multiplications."""
    total = 0.0
    for _, args in products:
        matrices = [x[0] for x in args if isinstance(x, tuple)]
        a, b = matrices[-2:]
        total += 2.0 * b[-1] * float(torch.Size(a).numel())
    return total


def measured(trainer: Trainer, steps: int) -> dict[str, float]:
    """The column of a recipe."""
    for _ in range(3):
        trainer.step()
    parts: list[dict[str, float]] = []
    whole, alone, arithmetic = [], [], []
    for _ in range(steps):
        number = trainer.progress.step
        started = time.process_time()
        trainer.step()
        whole.append(1e3 * (time.process_time() - started))
        trainer.progress.step = number  # the same batch
        found, products = operations(trainer)
        parts.append(found)
        run = replayed(products)
        run()
        started = time.process_time()
        run()
        alone.append(1e3 * (time.process_time() - started))
        arithmetic.append(flops(products))
    table = {part: statistics.mean(one[part] for one in parts) for part in ORDER}
    step, own, operations_each = statistics.mean(whole), statistics.mean(alone), statistics.mean(arithmetic)
    return table | {
        "Python": step - sum(table.values()), "a step": step, "its products alone": own, "their share": own / step,
        "GFLOP/s": operations_each / step / 1e6, "GFLOP/s of the products alone": operations_each / own / 1e6,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in RECIPES:
        parser.add_argument(f"--{task}", metavar="TEXT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--products", choices=("highest", "medium"), default="highest")
    asked = parser.parse_args()
    keep_freed_memory()  # as `ensue train` does
    way = ComputeMode(precision=asked.precision, products=asked.products)
    print(describe_machine(seed=0))
    tables: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, use_mode(way):
        for task, name in RECIPES.items():
            if getattr(asked, task):
                trainer = trainer_of(name, getattr(asked, task), Path(folder) / task, way.precision)
                tables[name] = measured(trainer, asked.steps)
    print("| milliseconds a step |", " | ".join(tables), "|")
    print("|---" * (len(tables) + 1) + "|")
    for part in next(iter(tables.values())):
        print(f"| {part} |", " | ".join(f"{table[part]:.2f}" for table in tables.values()), "|")


if __name__ == "__main__":
    main()
