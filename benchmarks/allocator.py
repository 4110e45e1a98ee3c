"""System time and user time of a training step, with and without returning freed memory, for every recipe.

    python benchmarks/allocator.py DATA [RECIPE ...]

DATA is the folder of the data sets. Each recipe trains on a few thousand lines with its own sizes and one thread, in a
separate process: once as a program that uses the library, and once like `ensue train`, which keeps freed memory. After
two steps of warm-up, steps are measured for one second of processor time.
"""

from __future__ import annotations

import gzip
import multiprocessing
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from data_files import data_path, read_lines
from machine import describe_machine

from ensue.processor import keep_freed_memory
from ensue.ranks import ProcessGroup, use_process_group
from ensue.recipe import read_recipe, recipe_names
from ensue.recipe.tables import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.training.device import use_mode
from ensue.training.gradients import Gradients
from ensue.training.loop import Trainer
from ensue.training.run import begin_job, train_run
from ensue.training.runtime import choose_runtime

MIN_SECONDS, WARM_UP_STEPS = 1.0, 2
MIN_SYSTEM_SHARE = 0.03
"""If system time is a smaller share of user time, the recipe is not measured with freed memory kept."""
SMALLER_BATCHES = {"bert-base": {"train.batch_size": 8}, "bert-large": {"train.batch_size": 4}}
"""Batch sizes that fit the memory of a small machine."""


def first_lines(data: Path, name: str, count: int) -> list[str]:
    """Return the first lines of a file, with line ends."""
    return [f"{line}\n" for line in read_lines(data, name)[:count]]


def write_data(data: Path, folder: Path) -> None:
    """Write a training file for each kind of recipe."""
    texts = {
        "running.txt": first_lines(data, "wikitext-2/train.txt", 6_000),
        "texts.tsv": [line.replace(" ", "\t", 1) for line in first_lines(data, "sst/stsa.fine.train", 9_000)],
        "sentences.conll": first_lines(data, "conll2000/train.txt", 100_000),
        "pairs.tsv": [
            f"{source.strip()}\t{target}"
            for source, target in zip(
                *(first_lines(data, f"multi30k/train.{end}", 7_000) for end in ("de", "en")), strict=True
            )
        ],
    }
    paraphrases = [line.split("\t") for line in first_lines(data, "mrpc/msr_paraphrase_train.txt", 5_000)[1:]]
    texts["paraphrases.tsv"] = [
        "label\ttext1\ttext2\n",
        *(f"{row[0]}\t{row[3]}\t{row[4]}" for row in paraphrases),
    ]
    for name, content in texts.items():
        (folder / name).write_text("".join(content), encoding="utf-8")
    pixels, digits = (
        np.frombuffer(
            gzip.decompress(Path(data_path(data, f"mnist_t10k/t10k-{part}")).read_bytes()), np.uint8, offset=header
        )
        for part, header in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))
    )
    images = pixels.reshape(-1, 28, 28).astype(np.float32)[:2000] / 255
    np.save(folder / "images.npy", images)
    np.savez(folder / "digits.npz", frames=images, labels=[str(digit) for digit in digits[:2000]])
    rows = [f"{n},{','.join(map(str, row))},{digits[n]}" for n in range(500) for row in images[n].round(2)]
    (folder / "frames.csv").write_text("\n".join([f"series,{','.join(f'x{n}' for n in range(28))},label", *rows, ""]))


def data_file(name: str) -> str:
    """Return the name of the file that a recipe trains on."""
    kind = name.partition("-")[0]
    if name in ("draw", "caption-lstm", "read-glimpses"):
        return "images.npy" if name == "draw" else "digits.npz"
    if name.endswith("-frames") or kind in ("storn", "vrnn"):
        return "frames.csv"
    if name == "classify-pairs":
        return "paraphrases.tsv"
    file_names = {"tag": "sentences.conll", "classify": "texts.tsv"}
    return file_names.get(kind, "pairs.tsv" if "decoder" in read_recipe(name).model_dump() else "running.txt")


def recipe_with_data(name: str, folder: Path) -> Recipe:
    """Return a recipe with its training file."""
    settings: dict[str, Any] = {"data.train": str(folder / data_file(name)), **SMALLER_BATCHES.get(name, {})}
    if name.endswith("-pretrained"):
        settings |= {"encoder.from": str(folder / "origin")}
    return read_recipe(name, settings)


def measure(name: str, folder: Path, keeps_memory: bool, connection: Any) -> None:
    """Send the user time and the system time of a step in seconds, and the peak memory in MB."""
    if keeps_memory:
        assert keep_freed_memory()
    recipe = recipe_with_data(name, folder)
    if name.endswith("-pretrained") and not (folder / "origin").exists():
        origin = {"data.train": str(folder / "running.txt"), "train.steps": 2, "train.validations": 1}
        train_run(read_recipe("bert-mini", origin), folder / "origin", threads=1)
    with use_process_group(ProcessGroup()), tempfile.TemporaryDirectory() as run:
        job = begin_job(recipe, None)
        model = job.build_model()
        runtime = choose_runtime(
            recipe, getattr(model, "vocabulary_size", 0), None, device="cpu", threads=1, notify=print
        )
        gradients = Gradients(model, job.task, seed=0, precision=runtime.precision, group=ProcessGroup())
        trainer = Trainer(
            model, job.task, recipe.train, RunDirectory(run), precision=runtime.precision, reporter=Reporter(),
            gradients=gradients,
        )  # fmt: skip
        trainer.log.append = lambda *_, **__: None  # type: ignore[method-assign]
        with use_mode(runtime):
            for _ in range(WARM_UP_STEPS):
                trainer.step()
            before = resource.getrusage(resource.RUSAGE_SELF)
            steps, user, system, usage = 0, 0.0, 0.0, before
            while user + system < MIN_SECONDS:
                trainer.step()
                usage, steps = resource.getrusage(resource.RUSAGE_SELF), steps + 1
                user, system = usage.ru_utime - before.ru_utime, usage.ru_stime - before.ru_stime
    connection.send((user / steps, system / steps, usage.ru_maxrss / 1024))


def main() -> None:
    data, names = Path(sys.argv[1]), sys.argv[2:] or recipe_names()
    print(describe_machine(seed=0))
    print("| recipe | user ms | system ms | peak MB | memory kept: user ms | system ms | peak MB |\n|---|" + "---|" * 6)
    context = multiprocessing.get_context("fork")  # all processes share the modules that are imported here
    with tempfile.TemporaryDirectory() as folder:
        write_data(data, Path(folder))
        for name in names:
            cells = []
            for keeps_memory in (False, True):
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=measure, args=(name, Path(folder), keeps_memory, sender))
                process.start()
                sender.close()
                process.join()
                if process.exitcode == 0:
                    user, system, peak = receiver.recv()
                    cells.append(f"{1000 * user:.1f} | {1000 * system:.1f} | {peak:.0f}")
                    if system < MIN_SYSTEM_SHARE * user:
                        cells.append("| |")
                        break
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
