"""Training in several processes: the time of a step, memory, and the results of runs whose ranks are killed.

    python benchmarks/processes.py steps TEXT              1 process with 1 and 2 threads, 2 processes with 1 thread
    python benchmarks/processes.py beside TEXT OTHER/src   a step in one process, with these sources and with others
    python benchmarks/processes.py kills TEXT --count 20   ranks killed at random times under torchrun
    python benchmarks/processes.py memory TEXT             memory with replicated and with sharded parameters
    python benchmarks/processes.py exact TEXT              the cost of `train.deterministic` in one process
    python benchmarks/processes.py drift PAIRS             differences of the loss between 1, 2 and 4 processes

`steps` and `beside` use char-lstm in float32. `steps` prints the minimum wall-clock time over `--rounds` turns.
`beside` compares processor time, with several steps in each turn. `kills` uses char-lstm with 64 features and 8 rows,
so that a rank spends most of its time in the start, in communication or in writing. `memory` uses char-transformer with
8 layers of 1,024 features (about 101 million parameters, 403 MB), and prints the growth of the processes after the
import of torch. `exact` compares the processor time of the gradients of a step, for two recipes, in turns. `drift`
trains translate-transformer with 8 features on 4 pairs per step. It compares several processes with one process. To
separate errors from rounding, it also trains one process whose first gradients are changed by a relative 1e-7, and
compares two processes with one in float64, and with gelu in place of relu. Differences are relative to the loss of one
process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import describe_machine
from timing import elapsed, ratios, take_turns

from ensue.ranks import ProcessGroup
from ensue.recipe import read_recipe
from ensue.training.gradients import Gradients
from ensue.training.run import begin_job

SETTINGS = {"train.precision": "float32", "train.validations": 1, "train.sample_tokens": 0, "data.valid_fraction": 0}
SMALL = {"encoder.d_model": 64, "train.batch_size": 8}
STEPS_PER_TURN = 10
LARGE = {
    "encoder.d_model": 1024, "encoder.num_layers": 8, "encoder.num_heads": 8, "tokens.d_embedding": 1024,
    "train.batch_size": 4, "train.segment_length": 16, "train.steps": 3,
}  # fmt: skip
GROWTH = """
import os, resource, sys
from ensue.recipe import read_recipe
from ensue.training.run import train_run

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak()
train_run(read_recipe("char-transformer", sys.argv[2:]), sys.argv[1], device="cpu", threads=1)
print(f"{os.environ['RANK']} grew by {peak() - before:.0f} MB", flush=True)
"""
DRIFT = """
import os, sys
import torch
from ensue.recipe import read_recipe
from ensue.runs.reporter import Reporter
from ensue.training import run

kind, out, *settings = sys.argv[1:]

class Trainer(run.Trainer):
    def __init__(self, model, *others, **options):
        super().__init__(model.double() if kind == "float64" else model, *others, **options)

    def _compute_gradients(self, batch, step):
        loss = super()._compute_gradients(batch, step)
        if kind == "changed" and step == 0:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= 1 + 1e-7 * torch.randn_like(parameter)
        return loss

    def train(self):
        super().train()
        os._exit(0)  # weights in float64 are not saved

class Losses(Reporter):
    def stepped(self, report):
        print("loss", repr(report.loss), flush=True)

run.Trainer = Trainer
run.train_run(read_recipe("translate-transformer", settings), out, device="cpu", threads=1, reporter=Losses())
"""
TRANSLATOR = {
    "train.precision": "float32", "train.validations": 1, "train.samples": 0, "train.batch_size": 4,
    "train.batch_tokens": 200, "tokenizer.max_size": 300, "data.division": "rows", "tokens.d_embedding": 8,
    "encoder.d_model": 8, "encoder.num_heads": 2, "decoder.d_model": 8, "decoder.num_heads": 2,
}  # fmt: skip
WORKER = """
import sys, time
from pathlib import Path
import torch
from ensue.recipe import read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.training.loop import Trainer
from ensue.training.run import begin_job

recipe = read_recipe("char-lstm", sys.argv[3:])
torch.set_num_threads(1)
torch.manual_seed(0)
job = begin_job(recipe, None)
out = Path(sys.argv[1])
out.mkdir()
model, run = job.build_model(), RunDirectory(out)
trainer = Trainer(model, job.task, recipe.train, run, precision="float32", reporter=Reporter())
for line in sys.stdin:
    started = time.process_time()
    for _ in range(int(sys.argv[2])):
        trainer.step()
    print(time.process_time() - started, flush=True)
"""


def train_command(text: Path, out: Path, **settings: object) -> list[str]:
    """Return the arguments of Python that train on a text."""
    options = [part for key, value in (SETTINGS | settings).items() for part in ("--set", f"{key}={value}")]
    return ["-m", "ensue", "train", "char-lstm", "--train", str(text), "--out", str(out), *options]


def run_seconds(text: Path, folder: Path, steps: int, options: list[str]) -> float:
    """Train. Return the seconds of training that the run prints."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    arguments = train_command(text, out, **{"train.steps": steps})
    output = subprocess.run([sys.executable, *arguments, *options], capture_output=True, text=True, check=True).stderr
    return float(output.partition(" seconds of training")[0].rpartition(" ")[2].replace(",", ""))


def steps(text: Path, folder: Path, number: int, rounds: int) -> None:
    """Print the table of processes and threads."""
    configurations = {
        "1 process, 1 thread": ["--threads", "1"],
        "1 process, 2 threads": ["--threads", "2"],
        "2 processes, 1 thread each": ["--threads", "1", "--processes", "2"],
    }
    measures = {name: partial(run_seconds, text, folder, number, options) for name, options in configurations.items()}
    print("| processes and threads | milliseconds of a step |\n|---|---|")
    for name, seconds in take_turns(measures, rounds).items():
        print(f"| {name} | {1000 * min(seconds) / number:.1f} |")


def beside(text: Path, folder: Path, other: Path, rounds: int) -> None:
    """Print the processor time of a step with these sources, and with others."""
    settings = [f"{key}={value}" for key, value in (SETTINGS | {"train.steps": 100_000, "data.train": text}).items()]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder / str(number)), str(STEPS_PER_TURN), *settings], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(source)},
        )
        for number, source in enumerate((Path("src").absolute(), other.absolute()))
    ]  # fmt: skip
    measures = {number: partial(measure_worker, worker) for number, worker in enumerate(workers)}
    seconds = list(take_turns(measures, rounds, warm_up=1).values())
    first, second = (1000 * median(values) / STEPS_PER_TURN for values in seconds)
    print(f"processor time of a step: {first:.2f} ms with these sources, {second:.2f} ms with the others; "
          f"median of the ratios {median(ratios(*seconds)):.4f}")  # fmt: skip
    for worker in workers:
        worker.terminate()
        worker.wait()


def measure_worker(worker: subprocess.Popen[str]) -> float:
    """Let a worker take its steps. Return the processor seconds."""
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write("go\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def kills(text: Path, folder: Path, count: int, number: int) -> None:
    """Kill ranks at random times, and print whether the weights differ from those of an uninterrupted run."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", str(count)]
    settings = SMALL | {"train.steps": number, "train.checkpoint_every": 5, "encoder.dropout": 0.2}
    generator, weights = random.Random(0), []
    for num_kills, name in ((0, "uninterrupted"), (count, "killed")):
        arguments = train_command(text, folder / name, **settings)
        process = subprocess.Popen([sys.executable, *torchrun, *arguments, "--threads", "1", "--resume"],
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        for kill in range(num_kills):
            wait_for_step(folder / name, number * kill // (num_kills + 1) + 1)
            time.sleep(generator.random())
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(generator.choice(workers)), signal.SIGKILL)
        print(f"{name}: {num_kills} kills, status {process.wait()}")
        weights.append((folder / name / "model.safetensors").read_bytes())
    print(f"weights differ: {weights[0] != weights[1]}")


def exact(text: Path, rounds: int) -> None:
    """Print the processor time of the gradients of a step, with and without `train.deterministic`."""
    torch.set_num_threads(1)
    print("| recipe | rows | default, ms | deterministic, ms | ratio |\n|---|---|---|---|---|")
    for name in ("char-lstm", "char-transformer"):
        job = begin_job(read_recipe(name, {"data.train": str(text)} | {"train.sample_tokens": 0}), None)
        model, batch = job.build_model(), job.task.lazy_batch(0, torch.device("cpu"))

        def compute(is_exact: bool, job: Any = job, model: Any = model, batch: Any = batch) -> float:
            group = ProcessGroup().with_exact_sums(exact=is_exact)
            gradients = Gradients(model, job.task, seed=0, precision="float32", group=group)
            seconds = elapsed(lambda: gradients.compute(batch, None, step=0, micro_batches=1))
            model.zero_grad()
            return seconds

        seconds = take_turns({is_exact: partial(compute, is_exact) for is_exact in (False, True)}, rounds, warm_up=1)
        default, deterministic = (1000 * median(values) for values in seconds.values())
        ratio = deterministic / default
        print(f"| {name} | {batch.rows} | {default:.1f} | {deterministic:.1f} | {ratio:.2f} |", flush=True)


def drift(pairs: Path, folder: Path, number: int) -> None:
    """Print the largest differences from the losses of one process, for each fifth of the steps."""
    script = folder / "drift.py"
    script.write_text(DRIFT)

    def losses(kind: str, processes: int) -> list[float]:
        settings = TRANSLATOR | {"data.train": pairs, "train.steps": number}
        if kind == "gelu":
            settings |= {"encoder.activation": "gelu", "decoder.activation": "gelu"}
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        arguments = [kind, str(folder / f"{kind} {processes}"), *(f"{key}={value}" for key, value in settings.items())]
        command = [sys.executable, *torchrun, str(script), *arguments]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [float(line.split()[1]) for line in output.splitlines() if line.startswith("loss")]

    size = number // 5
    print("| run |" + "".join(f" steps {first + 1} to {first + size} |" for first in range(0, number, size)))
    print("|---" * 6 + "|")
    single = {kind: losses(kind, 1) for kind in ("float32", "gelu", "float64")}
    for kind, processes in (("float32", 2), ("float32", 4), ("changed", 1), ("gelu", 2), ("float64", 2)):
        expected = single.get(kind, single["float32"])
        differences = [abs(a - b) / b for a, b in zip(losses(kind, processes), expected, strict=True)]
        cells = "".join(f" {max(differences[first : first + size]):.1e} |" for first in range(0, number, size))
        print(f"| {processes}, {kind} |{cells}", flush=True)


def memory(text: Path, folder: Path) -> None:
    """Print the growth of the processes."""
    script = folder / "growth.py"
    script.write_text(GROWTH)
    print("| processes | parameters | growth of rank 0 | largest growth of the others |\n|---|---|---|---|")
    for sharded, processes in ((False, 1), (False, 2), (True, 2), (True, 4)):
        settings = SETTINGS | LARGE | {"data.train": text, "train.sharded": str(sharded).lower()}
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        arguments = [str(folder / f"{processes} {sharded}"), *(f"{key}={value}" for key, value in settings.items())]
        command = [sys.executable, *torchrun, str(script), *arguments]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (_, first), *others = sorted((int(a), int(b)) for a, b in re.findall(r"(\d+) grew by (\d+) MB", output))
        other = f"{max(growth for _, growth in others):,} MB" if others else ""
        print(f"| {processes} | {'sharded' if sharded else 'replicated'} | {first:,} MB | {other} |", flush=True)


def wait_for_step(run: Path, step: int) -> None:
    """Wait for a checkpoint of a step or of a later one."""
    while not any(int(path.name[5:]) >= step for path in run.glob("checkpoints/step-*")):
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "beside", "kills", "memory", "exact", "drift"])
    parser.add_argument("text", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    print(describe_machine(seed=0))
    with tempfile.TemporaryDirectory() as folder:
        match arguments.what:
            case "steps":
                steps(arguments.text, Path(folder), arguments.steps, arguments.rounds)
            case "beside":
                beside(arguments.text, Path(folder), arguments.other, arguments.rounds)
            case "exact":
                exact(arguments.text, arguments.rounds)
            case "drift":
                drift(arguments.text, Path(folder), arguments.steps)
            case "memory":
                memory(arguments.text, Path(folder))
            case _:
                kills(arguments.text, Path(folder), arguments.count, arguments.steps)


if __name__ == "__main__":
    main()
