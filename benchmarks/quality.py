"""Quality of the recipes on real data. Settings were chosen on validation data.

    python benchmarks/quality.py DATA [NAME ...]

DATA is a folder with `tinyshakespeare/input.txt.xz`, `ptb/ptb.{train,valid,test}.txt.xz` and
`wikitext-2/{train,valid,test}.txt.xz` (each file may also be a .gz file or uncompressed). Without names all runs are
made, which takes about four hours. Runs are kept in ./quality-runs; a finished run is not repeated.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from data_files import data_path
from json_lines import best_validation, last_training, read_metrics
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


def measure(data: Path, name: str) -> str:
    """Train a recipe unless its run is finished. Return a row of the table."""
    run, measurement = RUNS / name, MEASUREMENTS[name]
    if not (run / "README.md").exists():
        texts = zip(("--train", "--valid", "--test"), measurement.texts, strict=False)
        paths = [part for option, text in texts for part in (option, data_path(data, text))]
        settings = [part for setting in measurement.settings for part in ("--set", setting)]
        command = ["train", measurement.recipe, *paths, "--out", str(run), "--threads", "1", "--resume", *settings]
        subprocess.run([sys.executable, "-m", "ensue", *command], check=True)
    records = read_metrics(run)
    best, last = best_validation(records), last_training(records)
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
