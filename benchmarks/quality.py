"""The recipes on real data: trains, scores, and prints a line for each. The settings were chosen on validation data.

    python benchmarks/quality.py DATA [NAME ...]

DATA is a folder with `tinyshakespeare/input.txt.xz`, `ptb/ptb.{train,valid,test}.txt.xz` and
`wikitext-2/{train,valid,test}.txt.xz` (any of them also unpacked or as .gz). Without names everything is run, which
takes about four hours. Runs are kept in ./quality-runs, and a run that is there is not repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine

RUNS = Path("quality-runs")
SHAKESPEARE = ("tinyshakespeare/input.txt",)
PTB = ("ptb/ptb.train.txt", "ptb/ptb.valid.txt", "ptb/ptb.test.txt")
WIKITEXT = ("wikitext-2/train.txt", "wikitext-2/valid.txt", "wikitext-2/test.txt")


@dataclass(frozen=True)
class Measurement:
    recipe: str
    texts: tuple[str, ...]
    settings: tuple[str, ...] = ()


MEASUREMENTS = {
    "char-lstm-13s": Measurement("char-lstm", SHAKESPEARE, ("train.seconds=13",)),
    "char-lstm": Measurement("char-lstm", SHAKESPEARE),
    "char-lstm-wide-13s": Measurement("char-lstm-wide", SHAKESPEARE, ("train.seconds=13",)),
    "char-lstm-wide": Measurement("char-lstm-wide", SHAKESPEARE),
    "char-lstm-large": Measurement("char-lstm-large", SHAKESPEARE),
    "char-gru": Measurement("char-gru", SHAKESPEARE),
    "char-elman": Measurement("char-elman", SHAKESPEARE),
    "char-transformer": Measurement("char-transformer", SHAKESPEARE),
    "bpe-transformer": Measurement("bpe-transformer", SHAKESPEARE),
    "word-window": Measurement("word-window", PTB),
    "word-elman": Measurement("word-elman", PTB),
    "word-lstm": Measurement("word-lstm", PTB),
    "word-lstm-wikitext": Measurement("word-lstm", WIKITEXT, ("train.seconds=2400", "train.batch_size=32")),
    "word-lstm-wikitext-sampled": Measurement(
        "word-lstm", WIKITEXT, ("train.seconds=2400", "train.batch_size=32", "head.sampled=4096")
    ),
}


def found(data: Path, name: str) -> str:
    """The text of that name, packed or not."""
    candidates = [data / f"{name}{ending}" for ending in ("", ".xz", ".gz")]
    path = next((candidate for candidate in candidates if candidate.exists()), None)
    if path is None:
        raise SystemExit(f"{data / name}: not there, nor with .xz or .gz")
    return str(path)


def measure(data: Path, name: str) -> str:
    """Train one and describe what came out of it, as a row of a table."""
    run, measurement = RUNS / name, MEASUREMENTS[name]
    if not (run / "README.md").exists():
        texts = zip(("--train", "--valid", "--test"), measurement.texts, strict=False)
        paths = [part for option, text in texts for part in (option, found(data, text))]
        settings = [part for setting in measurement.settings for part in ("--set", setting)]
        command = ["train", measurement.recipe, *paths, "--out", str(run), "--threads", "1", "--resume", *settings]
        subprocess.run([sys.executable, "-m", "ensue", *command], check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    best = [record for record in records if record["kind"] == "valid" and record["best"]][-1]
    last = [record for record in records if record["kind"] == "train"][-1]
    test = next((record["scores"]["perplexity"] for record in records if record["kind"] == "test"), None)
    scores = best["scores"]
    return (
        f"| {name} | {last['seconds']:,.0f} | {last['step']:,} | {last['tokens'] / last['seconds']:,.0f} "
        f"| {scores['nats_per_token']:.4f} | {scores['perplexity']:.2f} | {scores['bits_per_character']:.4f} "
        f"| {'-' if test is None else f'{test:.2f}'} |"
    )


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    print(describe_machine(seed=0))
    print(
        "| run | seconds | steps | tokens/s | valid nats/token | valid perplexity | bits/character | test perplexity |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in sys.argv[2:] or MEASUREMENTS:
        print(measure(Path(sys.argv[1]), name), flush=True)


if __name__ == "__main__":
    main()
