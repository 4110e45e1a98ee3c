"""Taggers and classifiers with the layers of another run, as frozen features or fine-tuned.

    python benchmarks/pretrained.py DATA ORIGIN NAME ... [--seeds 3] [--set KEY=VALUE] [--dev] [--keep FOLDER]

DATA is a folder with the data sets that `DATA_SETS` names. ORIGIN is a run of a language model or text encoder, such as
an imported MiniLM. Runs train with one thread. Weights are chosen on the development data, and the test data are scored
once; `--dev` scores the development data instead. Without `--keep`, the runs are removed. ORIGIN of SST-2 may be the
run of `imdb-tuned` in FOLDER.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from data_files import data_path
from trials import Trial, print_scores, trial_arguments


@dataclass(frozen=True)
class DataSet:
    """A recipe, paths in DATA, and settings with ORIGIN in place of the run."""

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
    """Return the trial of a data set with the layers of `origin`."""
    data_set = DATA_SETS[name]
    settings = [setting.replace("ORIGIN", json.dumps(str(origin))) for setting in data_set.settings]
    train, valid, test = (data_path(data, path) if path else "" for path in data_set.paths)
    return Trial(data_set.recipe, train, valid, test, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("origin", type=Path)
    arguments = trial_arguments(parser, list(DATA_SETS))
    print_scores(arguments, lambda name, folder: trial_of(arguments.data, arguments.origin, name))


if __name__ == "__main__":
    main()
