"""The time of a training step of Transformers by part: products, attention, norms, dropout, optimizer and others.

    python benchmarks/step_profile.py [--translate SOURCE,TARGET] [--characters TEXT] [--masked TEXT]
        [--steps N] [--precision float32|bfloat16]

Each operation of torch and each pass in C (`engine/passes.c`) is timed, in forward and backward. Its time belongs to
the part of the module that calls it. "Casts" are copies to another type. The whole step is timed separately, in turns
with its matrix products alone: products of the same shapes, types and strides, one after another. "Python" is the
difference between the step and its parts: the interpreter, autograd and the reading of the batch. All times are
processor time of one thread in milliseconds per step, as the mean of N steps. Freed memory is kept, like in `ensue
train`.
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
from timing import elapsed
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
"""The part of the operations of a module; the innermost module of these classes determines the part."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
ORDER = ("products", "attention", "around attention", "norms", "activation", "dropout", "softmax and loss",
         "embeddings", "casts", "optimizer", "others")  # fmt: skip


class Ranges:
    """The current part, and the parts of the nodes of the autograd graph by their sequence numbers."""

    def __init__(self) -> None:
        self.stack, self.ends, self.parts = ["others"], list[int](), list[str]()

    def mark(self) -> None:
        """Assign the nodes since the last call to the current part."""
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
        """The part of an operation that is called now, in forward or backward."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.stack[-1]
        place = bisect_left(self.ends, node._sequence_nr() + 1)  # type: ignore[attr-defined]
        return self.parts[place] if place < len(self.parts) else "others"


class OperationTimer(TorchDispatchMode):
    """A mode that records the seconds of operations by part, and the matrix products."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self.ranges, self.seconds, self.products = ranges, defaultdict[str, float](float), list[tuple[Any, Any]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, start = func._schema.name.removeprefix("aten::"), time.thread_time()
        result = func(*args, **(kwargs or {}))
        seconds = time.thread_time() - start
        if name in PRODUCTS:
            part = "products"
            self.products.append((func, [layout(x) if isinstance(x, Tensor) else x for x in args]))
        elif name.startswith("_scaled_dot_product"):
            part = "attention"
        elif name == "_to_copy":
            part = "casts"
        else:
            part = self.ranges.current
        self.seconds[part] += seconds
        return result


def layout(x: Tensor) -> tuple[Any, ...]:
    """Return the shape, the strides and the type of a tensor."""
    return x.shape, x.stride(), x.dtype


def make_trainer(name: str, data: str, folder: Path, precision: Precision) -> Trainer:
    """Return the trainer of a new run with a practically unlimited number of steps."""
    recipe = read_recipe(name, {"data.train": data, "train.seconds": None, "train.steps": 10**9})
    job = begin_job(recipe, None)
    torch.manual_seed(recipe.train.seed)
    folder.mkdir()
    run = RunDirectory(folder)
    return Trainer(job.build_model(), job.task, recipe.train, run, precision=precision, reporter=Reporter())


@contextmanager
def track_parts(trainer: Any, ranges: Ranges) -> Iterator[None]:
    """Enter a part when a module or the optimizer is called."""
    handles = []
    for module in trainer.model.modules():
        part = next((part for kind, part in PARTS.items() if isinstance(module, kind)), None)
        if part is not None:
            handles += [module.register_forward_pre_hook(lambda *_, part=part: ranges.enter(part)),
                        module.register_forward_hook(lambda *_: ranges.leave())]  # fmt: skip
            if isinstance(module, SoftmaxHead):
                module.total_nats = in_part(module.total_nats, ranges, part)
    methods = [(trainer.gradients, "clip"), (trainer.optimizer, "step"), (trainer.optimizer, "zero_grad")]
    for owner, name in methods:
        setattr(owner, name, in_part(getattr(owner, name), ranges, "optimizer"))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in trainer.model.modules():
            vars(module).pop("total_nats", None)
        for owner, name in methods:
            delattr(owner, name)


def in_part(function: Callable[..., Any], ranges: Ranges, part: str) -> Callable[..., Any]:
    """Return a function that enters a part for each call."""

    def call_in_part(*args: Any, **options: Any) -> Any:
        ranges.enter(part)
        try:
            return function(*args, **options)
        finally:
            ranges.leave()

    return call_in_part


def profile_step(trainer: Trainer) -> tuple[dict[str, float], list[tuple[Any, Any]]]:
    """Take a step. Return its milliseconds by part, and its products."""
    ranges = Ranges()
    mode = OperationTimer(ranges)
    with time_passes(mode), track_parts(trainer, ranges), mode:
        trainer.step()
    return {part: 1e3 * mode.seconds[part] for part in ORDER}, mode.products


@contextmanager
def time_passes(mode: OperationTimer) -> Iterator[None]:
    """Allow passes in C within the mode, and record their time."""

    def timed(*args: Any, **options: Any) -> None:
        mode.seconds[mode.ranges.current] += elapsed(lambda: parallel_rows(*args, **options), time.thread_time)

    with ExitStack() as stack:
        for name in ("draws", "attention.positions", "attention.scores", "heads.softmax"):
            stack.enter_context(patch.object(import_module(f"ensue.nn.{name}"), "parallel_rows", timed))
        stack.enter_context(patch("ensue.engine.storage._get_current_dispatch_mode", lambda: None))
        yield


def replay(products: list[tuple[Any, Any]]) -> Callable[[], None]:
    """Return a function that computes the products on random tensors of the same layouts."""
    tensors: dict[Any, Tensor] = {}

    def tensor(key: Any) -> Tensor:
        if key not in tensors:
            shape, stride, dtype = key
            tensors[key] = (
                torch.randn(1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)))
                .to(dtype)
                .as_strided(shape, stride)
            )
        return tensors[key]

    calls = [(func, [tensor(x) if isinstance(x, tuple) else x for x in args]) for func, args in products]

    def run() -> None:
        for func, args in calls:
            func(*args)

    return run


def flops(products: list[tuple[Any, Any]]) -> float:
    """Return the number of additions and multiplications."""
    total = 0.0
    for _, args in products:
        matrices = [x[0] for x in args if isinstance(x, tuple)]
        a, b = matrices[-2:]
        total += 2.0 * b[-1] * float(torch.Size(a).numel())
    return total


def measure(trainer: Trainer, steps: int) -> dict[str, float]:
    """Return the column of a recipe."""
    for _ in range(3):
        trainer.step()
    parts: list[dict[str, float]] = []
    step_times, product_times, arithmetic = [], [], []
    for _ in range(steps):
        number = trainer.progress.step
        step_times.append(1e3 * elapsed(trainer.step))
        trainer.progress.step = number  # the same batch
        step_parts, products = profile_step(trainer)
        parts.append(step_parts)
        run = replay(products)
        run()
        product_times.append(1e3 * elapsed(run))
        arithmetic.append(flops(products))
    table = {part: statistics.mean(step_parts[part] for step_parts in parts) for part in ORDER}
    step, product_time, operations = map(statistics.mean, (step_times, product_times, arithmetic))
    return table | {
        "Python": step - sum(table.values()), "a step": step,
        "its products alone": product_time, "their share": product_time / step,
        "GFLOP/s": operations / step / 1e6, "GFLOP/s of the products alone": operations / product_time / 1e6,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in RECIPES:
        parser.add_argument(f"--{task}", metavar="TEXT")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--products", choices=("highest", "medium"), default="highest")
    arguments = parser.parse_args()
    keep_freed_memory()  # as `ensue train` does
    mode = ComputeMode(precision=arguments.precision, products=arguments.products)
    print(describe_machine(seed=0))
    tables: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, use_mode(mode):
        for task, name in RECIPES.items():
            if getattr(arguments, task):
                trainer = make_trainer(name, getattr(arguments, task), Path(folder) / task, mode.precision)
                tables[name] = measure(trainer, arguments.steps)
    print("| milliseconds a step |", " | ".join(tables), "|")
    print("|---" * (len(tables) + 1) + "|")
    for part in next(iter(tables.values())):
        print(f"| {part} |", " | ".join(f"{table[part]:.2f}" for table in tables.values()), "|")


if __name__ == "__main__":
    main()
