"""Taggers and classifiers that begin from another run: its layers as frozen features, or trained with the task.

    python benchmarks/pretrained.py DATA ORIGIN NAME ... [--seeds 3] [--set KEY=VALUE] [--dev] [--keep FOLDER]

DATA is a folder with the data sets that `DATA_SETS` names, ORIGIN a run that reads text (an imported MiniLM, say). Runs
train with one thread. Weights are chosen on the development data; the test data are scored once, or not at all with
`--dev`, which scores the development data. Without `--keep` nothing is left behind. SST-2 may begin from what
`imdb-tuned` left in FOLDER.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from quality import found
from trials import Trial, print_scores, trial_arguments


@dataclass(frozen=True)
class DataSet:
    """Paths in DATA, the recipe, and settings, in which ORIGIN is the run."""

    recipe: str
    paths: tuple[str, str, str]
    settings: tuple[str, ...]


FEATURES, WEIGHTS = "features.contextual=[ORIGIN]", "encoder.from=ORIGIN"
CONLL2003 = ("conll2003/eng.train", "conll2003/eng.testa", "conll2003/eng.testb")
EWT = tuple(f"ud_english_ewt/en_ewt-ud-{part}.conllu" for part in ("train", "dev", "test"))
SST2 = tuple(f"sst/stsa.binary.{part}" for part in ("train", "dev", "test"))
DATA_SETS = {
    "conll2003-features": DataSet(
        "tag-lstm-crf", CONLL2003, (FEATURES, "features.columns=[2,3]", "train.epochs=12", "train.validations=12")
    ),
    "conll2003-tuned": DataSet("tag-pretrained", CONLL2003, (WEIGHTS,)),
    "ewt-features": DataSet("tag-lstm", EWT, (FEATURES,)),
    "sst2-features": DataSet("classify-lstm", SST2, (FEATURES,)),
    "sst2-tuned": DataSet("classify-pretrained", SST2, (WEIGHTS,)),
    "imdb-tuned": DataSet(
        "classify-pretrained",
        ("imdb/train.jsonl", "", "imdb/test.jsonl"),
        (
            WEIGHTS,
            "data.max_tokens=110",
            "data.keep=both",
            "data.valid_fraction=0.06",
            "train.epochs=1",
            "train.batch_size=32",
            "train.batch_tokens=8000",
            "train.validations=2",
        ),
    ),
}


def trial_of(data: Path, origin: Path, name: str) -> Trial:
    """The data set of that name, with the run that it begins from."""
    chosen = DATA_SETS[name]
    settings = [setting.replace("ORIGIN", json.dumps(str(origin))) for setting in chosen.settings]
    return Trial(chosen.recipe, *(found(data, path) for path in chosen.paths), settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("origin", type=Path)
    given = trial_arguments(parser, list(DATA_SETS))
    print_scores(given, lambda name, folder: trial_of(given.data, given.origin, name))


if __name__ == "__main__":
    main()
