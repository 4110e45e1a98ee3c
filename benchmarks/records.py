"""Records: processor seconds of one thread until a recipe reaches a target on test data.

    python benchmarks/records.py DATA OUT [NAME ...]

DATA is the folder of the data sets. A record is one command, `ensue train` with a fixed number of steps or epochs. Its
seconds are the processor time of the process and its child processes, from the start of Python to the score of the test
data. The number of steps was chosen by the score on development data; the test data are scored once. The target of Tiny
Shakespeare is in nats per character on the last tenth of the text. Each result is a line of OUT/results.jsonl, and
OUT/NAME.log has the output. A finished result is not measured again; an interrupted run starts again.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from json_lines import append_json_line, read_json_lines, read_metrics
from machine import describe_machine

from ensue.data.decoding import decode


@dataclass(frozen=True)
class Record:
    """A target score, the recipe that reaches the target, and the paths of its data in DATA."""

    score: str
    target: float
    recipe: str
    train: str
    valid: str = ""
    test: str = ""
    settings: tuple[str, ...] = ()
    labels: int | None = None
    """For files in columns: the column of labels. The other columns except the words are removed."""

    def is_reached(self, value: float) -> bool:
        """Return whether a score reaches the target."""
        return value <= self.target if self.score == "nats_per_token" else value >= self.target


MULTI30K = [f"multi30k/{name}.en.gz,multi30k/{name}.de.gz" for name in ("train", "val", "test_2016_flickr")]
EWT = [f"ud_english_ewt/en_ewt-ud-{name}.conllu.xz" for name in ("train", "dev", "test")]
CONLL = [f"conll2003/eng.{name}.xz" for name in ("train", "testa", "testb")]
RECORDS = {
    "shakespeare": Record(
        "nats_per_token", 1.45, "char-lstm", "tinyshakespeare/input.txt.xz", settings=("train.steps=17500",)
    ),
    "ewt": Record("accuracy", 0.955, "tag-lstm", *EWT, settings=("train.epochs=12",)),
    "imdb": Record(
        "accuracy", 0.90, "classify-bag", "imdb/train.jsonl.xz", test="imdb/test.jsonl.xz",
        settings=("train.epochs=3",),
    ),
    "conll": Record("f1", 0.85, "tag-lstm-crf", *CONLL, labels=3, settings=("train.epochs=10",)),
    "multi30k-float32": Record(
        "bleu", 33.0, "translate-transformer", *MULTI30K,
        settings=("train.steps=2300", "train.precision=float32"),
    ),
    "multi30k-bfloat16": Record(
        "bleu", 33.0, "translate-transformer", *MULTI30K,
        settings=("train.steps=2300", "train.precision=bfloat16"),
    ),
}  # fmt: skip


def prepare(record: Record, data: Path, out: Path) -> dict[str, str]:
    """Return the paths of the data. Files in columns are reduced to two columns, and Tiny Shakespeare is divided."""
    parts = {part: getattr(record, part) for part in ("train", "valid", "test") if getattr(record, part)}
    paths = {part: ",".join(str(data / path) for path in paths.split(",")) for part, paths in parts.items()}
    if record.labels is not None:
        for part, path in paths.items():
            rows = (line.split() for line in "".join(decode(Path(path), "")).split("\n"))
            text = "".join(f"{row[0]}\t{row[record.labels]}\n" if row else "\n" for row in rows)
            (out / f"{part}.txt").write_text(text)
            paths[part] = str(out / f"{part}.txt")
    if record.score == "nats_per_token":
        text = "".join(decode(Path(paths["train"]), "utf-8"))
        begin = len(text) * 9 // 10
        for part, content in (("train", text[:begin]), ("valid", text[begin:])):
            (out / f"{part}.txt").write_text(content)
            paths[part] = str(out / f"{part}.txt")
    return paths


def measure(name: str, data: Path, out: Path) -> dict[str, object]:
    """Train and score the recipe of a record. Return scores and seconds."""
    record, folder = RECORDS[name], out / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ensue", "train", record.recipe, "--out", str(folder / "run"), "--overwrite"]
    for part, path in prepare(record, data, folder).items():
        command += [f"--{part}", path]
    for setting in record.settings:
        command += ["--set", setting]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (out / f"{name}.log").open("w") as log:
        subprocess.run(
            [*command, "--threads", "1"], check=True, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    metrics = [line for line in read_metrics(folder / "run") if record.score in line.get("scores", {})]
    scores = {
        kind: [line["scores"][record.score] for line in metrics if line["kind"] == kind] for kind in ("valid", "test")
    }
    best = min if record.score == "nats_per_token" else max
    valid, test = (best(values) if values else None for values in scores.values())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    value = valid if test is None else test
    assert value is not None, f"the run has no {record.score}"
    return {
        "name": name, "target": record.target, "score": record.score, "valid": valid, "test": test,
        "is_reached": record.is_reached(value), "seconds": round(seconds, 1), "commit": commit.strip(),
        "recipe": record.recipe, "settings": record.settings,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECORDS)}; default: all")
    arguments = parser.parse_args()
    file = arguments.out / "results.jsonl"
    measured = {result["name"]: result for result in read_json_lines(file)}
    print(describe_machine(seed=0))
    print("| record | target | valid | test | reached | processor seconds | commit |\n|---|---|---|---|---|---|---|")
    for name in arguments.names or RECORDS:
        if name not in measured:
            measured[name] = measure(name, arguments.data, arguments.out)
            append_json_line(file, measured[name])
        keys = ("name", "target", "valid", "test", "is_reached", "seconds", "commit")
        print(f"| {' | '.join(str(measured[name][key]) for key in keys)} |", flush=True)


if __name__ == "__main__":
    main()
