"""Records: processor seconds of one thread until a recipe reaches a target on test data.

    python benchmarks/records.py DATA OUT [NAME ...]

DATA is the folder of the data sets. A run is one command, `ensue train` with a fixed number of steps or epochs, from
the start of Python to the score of the test data. Its seconds are the processor time of that process and of those that
it started. The number of steps was chosen by the score on development data; the test data are scored once. For Tiny
Shakespeare the target is one of nats on the last tenth of the text. Each result is a line of OUT/results.jsonl, and
OUT/NAME.log has the output. A result that is there is not measured again; an interrupted run begins again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine

from ensue.data.decoding import decode


@dataclass(frozen=True)
class Record:
    """A target of a score, the recipe that reaches it, and its data in DATA."""

    score: str
    target: float
    recipe: str
    train: str
    valid: str = ""
    test: str = ""
    settings: tuple[str, ...] = ()
    labels: int | None = None
    """For files of columns, the number of the column of labels, which is left with the words alone."""

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
    "conll": Record("f1", 0.85, "tag-lstm-crf", *CONLL, labels=3),
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
    """Return the paths of the parts. Files of columns are written with two columns, and Tiny Shakespeare is divided."""
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
    """Run a record. Return its scores and seconds."""
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
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {
        kind: [
            line["scores"][record.score] for line in lines if line["kind"] == kind and record.score in line["scores"]
        ]
        for kind in ("valid", "test")
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
    options = parser.parse_args()
    file = options.out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    measured = {result["name"]: result for result in results}
    print(describe_machine(seed=0))
    print("| record | target | valid | test | reached | processor seconds | commit |\n|---|---|---|---|---|---|---|")
    for name in options.names or RECORDS:
        if name not in measured:
            measured[name] = measure(name, options.data, options.out)
            with file.open("a") as opened:
                print(json.dumps(measured[name]), file=opened)
        keys = ("name", "target", "valid", "test", "is_reached", "seconds", "commit")
        print(f"| {' | '.join(str(measured[name][key]) for key in keys)} |", flush=True)


if __name__ == "__main__":
    main()
