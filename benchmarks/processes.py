"""Several processes: what a step costs in one and in two, and whether runs whose ranks are killed end in the same bits.

    python benchmarks/processes.py steps TEXT              1 process with 1 and 2 threads, 2 processes with 1 thread
    python benchmarks/processes.py beside TEXT OTHER/src   a step in one process beside that of other sources
    python benchmarks/processes.py kills TEXT --count 20   ranks killed at random times under torchrun
    python benchmarks/processes.py memory TEXT             memory of processes with all parameters, or parts of them
    python benchmarks/processes.py exact TEXT              what `train.deterministic` costs one process
    python benchmarks/processes.py drift PAIRS             by how much losses differ between 1, 2 and 4 processes

`steps` takes `--rounds` turns and prints the fastest, by the clock. `beside` takes a chunk of steps in turns, and
compares processor time. The recipe is char-lstm in float32, for `kills` with 64 features and 8 rows: most of the time a
rank begins, talks or writes. `memory` prints how far the processes grow over one that has imported torch, with
char-transformer of 8 layers of 1,024 features (about 101 million parameters, 403 MB). `exact` takes the processor time
of the gradients of a step, of two recipes as they are, in turns. `drift` trains translate-transformer of 8 features on
4 pairs a step. To tell a mistake from rounding, it also trains one process whose first gradients are changed by 1e-7 of
their size, and two processes in float64, and with gelu in place of relu. All differences are to one process that is
otherwise the same, of the size of its loss.
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
from pathlib import Path
from statistics import median

import torch
from machine import describe_machine

from ensue.ranks import ProcessGroup
from ensue.recipe import read_recipe
from ensue.training.gradients import Gradients
from ensue.training.run import begin_job

SETTINGS = {"train.precision": "float32", "train.validations": 1, "train.sample_tokens": 0, "data.valid_fraction": 0}
SMALL = {"encoder.d_model": 64, "train.batch_size": 8}
CHUNK = 10
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

    def _descend(self, step):
        if kind == "changed" and step == 0:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= 1 + 1e-7 * torch.randn_like(parameter)
        super()._descend(step)

    def train(self):
        super().train()
        os._exit(0)  # the weights in float64 are of no use

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


def command(text: Path, out: Path, **settings: object) -> list[str]:
    """The command that trains on the text."""
    sets = [part for key, value in (SETTINGS | settings).items() for part in ("--set", f"{key}={value}")]
    return ["-m", "ensue", "train", "char-lstm", "--train", str(text), "--out", str(out), *sets]


def seconds_of(text: Path, folder: Path, steps: int, options: list[str]) -> float:
    """The seconds of the steps of a run by the clock, as the run says itself."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    arguments = command(text, out, **{"train.steps": steps})
    said = subprocess.run([sys.executable, *arguments, *options], capture_output=True, text=True, check=True).stderr
    return float(said.partition(" seconds of training")[0].rpartition(" ")[2].replace(",", ""))


def steps(text: Path, folder: Path, number: int, rounds: int) -> None:
    """Prints the table of processes and threads."""
    ways = {
        "1 process, 1 thread": ["--threads", "1"],
        "1 process, 2 threads": ["--threads", "2"],
        "2 processes, 1 thread each": ["--threads", "1", "--processes", "2"],
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, options in ways.items():
            found[name].append(seconds_of(text, folder, number, options))
    print("| way | milliseconds of a step |\n|---|---|")
    for name, seconds in found.items():
        print(f"| {name} | {1000 * min(seconds) / number:.1f} |")


def beside(text: Path, folder: Path, other: Path, rounds: int) -> None:
    """Prints the processor time of a step with these sources, and with others."""
    settings = [f"{key}={value}" for key, value in (SETTINGS | {"train.steps": 100_000, "data.train": text}).items()]
    found: list[list[float]] = [[], []]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder / str(number)), str(CHUNK), *settings], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(source)},
        )
        for number, source in enumerate((Path("src").absolute(), other.absolute()))
    ]  # fmt: skip
    for turn in range(rounds + 1):
        for worker, seconds in zip(workers, found, strict=True):
            assert worker.stdin
            assert worker.stdout
            worker.stdin.write("go\n")
            worker.stdin.flush()
            took = float(worker.stdout.readline())
            if turn:  # the first one compiles
                seconds.append(took)
    ours, theirs = (1000 * median(seconds) / CHUNK for seconds in found)
    pairs = median(a / b for a, b in zip(*found, strict=True))
    print(f"a step: {ours:.2f} ms of processor time, {theirs:.2f} ms there; median of the ratios {pairs:.4f}")
    for worker in workers:
        worker.terminate()
        worker.wait()


def kills(text: Path, folder: Path, count: int, number: int) -> None:
    """Kills ranks at random times, and says whether the weights differ from those of an undisturbed run."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", str(count)]
    settings = SMALL | {"train.steps": number, "train.checkpoint_every": 5, "encoder.dropout": 0.2}
    choose, ends = random.Random(0), []
    for killed, name in ((0, "whole"), (count, "killed")):
        arguments = command(text, folder / name, **settings)
        process = subprocess.Popen([sys.executable, *torchrun, *arguments, "--threads", "1", "--resume"],
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        for kill in range(killed):
            wait_for_step(folder / name, number * kill // (killed + 1) + 1)
            time.sleep(choose.random())
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(choose.choice(workers)), signal.SIGKILL)
        print(f"{name}: {killed} kills, status {process.wait()}")
        ends.append((folder / name / "model.safetensors").read_bytes())
    print(f"weights differ: {ends[0] != ends[1]}")


def exact(text: Path, rounds: int) -> None:
    """Prints what the gradients of a step take, as usual and with `train.deterministic`."""
    torch.set_num_threads(1)
    print("| recipe | rows | usual | deterministic | ratio |\n|---|---|---|---|---|")
    for name in ("char-lstm", "char-transformer"):
        job = begin_job(read_recipe(name, {"data.train": str(text)} | {"train.sample_tokens": 0}), None)
        model, batch = job.build_model(), job.task.lazy_batch(0, torch.device("cpu"))
        found: list[list[float]] = [[], []]
        for turn in range(rounds + 1):
            for is_exact, seconds in enumerate(found):
                group = ProcessGroup().with_exact_sums(exact=bool(is_exact))
                gradients = Gradients(model, job.task, seed=0, precision="float32", group=group)
                started = time.process_time()
                gradients.compute(batch, None, step=0, micro_batches=1)
                if turn:  # the first one compiles
                    seconds.append(time.process_time() - started)
                model.zero_grad()
        usual, deterministic = (1000 * median(seconds) for seconds in found)
        ratio = deterministic / usual
        print(f"| {name} | {batch.rows} | {usual:.1f} | {deterministic:.1f} | {ratio:.2f} |", flush=True)


def drift(pairs: Path, folder: Path, number: int) -> None:
    """Prints the largest differences to the losses of one process, for every tenth of the steps."""
    script = folder / "drift.py"
    script.write_text(DRIFT)

    def losses(kind: str, processes: int) -> list[float]:
        settings = TRANSLATOR | {"data.train": pairs, "train.steps": number}
        if kind == "gelu":
            settings |= {"encoder.activation": "gelu", "decoder.activation": "gelu"}
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        arguments = [kind, str(folder / f"{kind} {processes}"), *(f"{key}={value}" for key, value in settings.items())]
        command = [sys.executable, *torchrun, str(script), *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [float(line.split()[1]) for line in said.splitlines() if line.startswith("loss")]

    size = number // 5
    print("| run |" + "".join(f" steps {first + 1} to {first + size} |" for first in range(0, number, size)))
    print("|---" * 6 + "|")
    alone = {kind: losses(kind, 1) for kind in ("float32", "gelu", "float64")}
    for kind, processes in (("float32", 2), ("float32", 4), ("changed", 1), ("gelu", 2), ("float64", 2)):
        right = alone.get(kind, alone["float32"])
        apart = [abs(a - b) / b for a, b in zip(losses(kind, processes), right, strict=True)]
        cells = "".join(f" {max(apart[first : first + size]):.1e} |" for first in range(0, number, size))
        print(f"| {processes}, {kind} |{cells}", flush=True)


def memory(text: Path, folder: Path) -> None:
    """Prints by how much the processes grow."""
    script = folder / "growth.py"
    script.write_text(GROWTH)
    print("| processes | parameters | growth of the first one | of the largest other one |\n|---|---|---|---|")
    for sharded, processes in ((False, 1), (False, 2), (True, 2), (True, 4)):
        settings = SETTINGS | LARGE | {"data.train": text, "train.sharded": str(sharded).lower()}
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        arguments = [str(folder / f"{processes} {sharded}"), *(f"{key}={value}" for key, value in settings.items())]
        command = [sys.executable, *torchrun, str(script), *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (_, first), *others = sorted((int(a), int(b)) for a, b in re.findall(r"(\d+) grew by (\d+) MB", said))
        other = f"{max(grown for _, grown in others):,} MB" if others else ""
        print(f"| {processes} | {'in parts' if sharded else 'whole'} | {first:,} MB | {other} |", flush=True)


def wait_for_step(run: Path, least: int) -> None:
    """Waits for a checkpoint of this step or a later one."""
    while not any(int(path.name[5:]) >= least for path in run.glob("checkpoints/step-*")):
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["steps", "beside", "kills", "memory", "exact", "drift"])
    parser.add_argument("text", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    print(describe_machine(seed=0))
    with tempfile.TemporaryDirectory() as folder:
        match given.what:
            case "steps":
                steps(given.text, Path(folder), given.steps, given.rounds)
            case "beside":
                beside(given.text, Path(folder), given.other, given.rounds)
            case "exact":
                exact(given.text, given.rounds)
            case "drift":
                drift(given.text, Path(folder), given.steps)
            case "memory":
                memory(given.text, Path(folder))
            case _:
                kills(given.text, Path(folder), given.count, given.steps)


if __name__ == "__main__":
    main()
