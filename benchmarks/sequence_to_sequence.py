"""Models from sequence to sequence on real data: translation, inflection, pronunciation, instructions, summaries.

    python benchmarks/sequence_to_sequence.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--dev]
        [--keep FOLDER]

DATA is a folder with the data sets that `DATA_SETS` names. Runs train with one thread. Weights are chosen on the
development data; the test data are scored once, or not at all with `--dev`, which scores the development data.
`--recipe` trains another recipe than the one that a data set is meant for.
CMUdict is divided by words: a word whose SHA-256 begins with a byte below 6 is for testing, below 12 for development,
about 2.3 % each; `cmudict-39` has no stress of vowels, as in most publications. SIGMORPHON 2017 is the setting "high"
of task 1. SCAN's development data are 2 % of its training data; `scan-length-counters` and `scan-jump-verbs` are its
tests after other training files (scan.py). With `--dev` the former trains on sequences of up to 15 actions and is
scored on those of up to 22, the longest of its training file. The development data of the latter are commands of verbs
that its training file has alone.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

from quality import found
from scan import command_and_actions, with_counters, with_more_functions, with_more_verbs, without_counters
from trials import Trial, print_scores, trial_arguments

from ensue.data.decoding import decode
from ensue.metrics.generation import nearest_edits

FEW_ACTIONS, MOST_ACTIONS = 15, 22
"""The most actions of a line for training, with `--dev` and without, in SCAN's division by length."""
LANGUAGES = ("english", "german", "turkish", "finnish")


@dataclass(frozen=True)
class DataSet:
    """Paths in DATA (two with a comma between them are aligned), and the recipe."""

    recipe: str
    train: str
    valid: str
    test: str
    settings: tuple[str, ...] = ()
    written: Callable[..., dict[str, str]] | None = None
    """Writes parts of DATA into a folder, for scores on development data or not, and gives their paths."""
    others: Callable[[Any, str], dict[str, Any]] = Trial.others
    """Scores beside those of the recipe's task."""


def multi30k(source: str, target: str) -> dict[str, str]:
    """The paths of a direction."""
    names = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    return {part: ",".join(f"multi30k/{name}.{side}" for side in (source, target)) for part, name in names.items()}


def enja(source: str, target: str) -> dict[str, str]:
    """The paths of a direction."""
    return {
        part: ",".join(f"small_parallel_enja/{name}.{side}" for side in (source, target))
        for part, name in {"train": "train", "valid": "dev", "test": "test"}.items()
    }


def scan(name: str, *settings: str, **others: Any) -> DataSet:
    """A division of SCAN."""
    train, test = (f"scan/tasks_{part}_{name}.txt" for part in ("train", "test"))
    words = ("tokenizer.kind=words", "target_tokenizer.kind=words", "data.names=[]", "tokens.tied=none")
    exact = ("head.label_smoothing=0", "train.epochs=24", "train.batch_tokens=2000", "train.learning_rate=0.002")
    return DataSet("transduce-lstm", train, "", test, (*words, *exact, "data.valid_fraction=0.02", *settings), **others)


def located(data: Path, paths: str) -> str:
    """The paths in DATA, compressed or not; "" for none."""
    return ",".join(found(data, path) for path in paths.split(",")) if paths else ""


def divided_cmudict(data: Path, folder: Path, *, dev: bool, stress: bool = True) -> dict[str, str]:
    """The parts of CMUdict as files of words and pronunciations, with the stress of vowels or without."""
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for line in "".join(decode(Path(found(data, "cmudict/cmudict")), "utf-8")).splitlines():
        first = hashlib.sha256(line.split()[0].encode()).digest()[0]
        kept = line if stress else re.sub(r"(?<=[A-Z])[012]\b", "", line)
        lines["test" if first < 6 else "valid" if first < 12 else "train"].append(kept + "\n")
    for part, kept in lines.items():
        (folder / f"cmudict.{part}").write_text("".join(kept))
    return {part: str(folder / f"cmudict.{part}") for part in lines}


def scan_with_counters(data: Path, folder: Path, *, dev: bool) -> dict[str, str]:
    """The parts of SCAN's division by length with counters before the actions, and more functions in training."""
    lines = scan_lines(data, "length", "train")
    if dev:
        given = {"train": [*filterfalse(has_many_actions, lines)], "valid": [*filter(has_many_actions, lines)]}
    else:
        given = {"train": lines, "test": scan_lines(data, "length", "test")}
    counted = {part: [*map(with_counters, lines)] for part, lines in given.items()}
    counted["train"] += with_more_functions(FEW_ACTIONS if dev else MOST_ACTIONS)
    return {part: lines_in(folder / f"scan-counters.{part}", lines) for part, lines in counted.items()}


def has_many_actions(line: str) -> bool:
    return len(command_and_actions(line)[1].split()) > FEW_ACTIONS


def scan_with_more_verbs(data: Path, folder: Path, *, dev: bool) -> dict[str, str]:
    """The training part of SCAN's division by "jump", with more verbs, and commands of verbs that it has alone."""
    parts = zip(("train", "valid"), with_more_verbs(scan_lines(data, "addprim_jump", "train")), strict=True)
    return {part: lines_in(folder / f"scan-verbs.{part}", lines) for part, lines in parts}


def scan_lines(data: Path, name: str, part: str) -> list[str]:
    path = found(data, f"scan/tasks_{part}_{name}.txt")
    return "".join(decode(Path(path), "utf-8")).splitlines()


def lines_in(path: Path, lines: Iterable[str]) -> str:
    """Writes the lines, and gives the path."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def right_actions(model: Any, path: str) -> dict[str, float]:
    """The share of commands of SCAN whose actions are right, whatever counters are before them."""
    lines = [command_and_actions(line) for line in Path(path).read_text().splitlines()]
    outputs = model.predict([command for command, _ in lines])
    right = sum(
        without_counters(output.text.split()) == without_counters(actions.split())
        for output, (_, actions) in zip(outputs, lines, strict=True)
    )
    return {"right_actions": 100 * right / len(lines)}


def without_stress(model: Any, path: str) -> dict[str, float]:
    """The errors of phonemes and words where the stress of a vowel does not count, as most publications count."""
    listed = defaultdict(list)
    for line in Path(path).read_text().splitlines():
        word, _, *phonemes = line.split()
        listed[word].append([phoneme.rstrip("012") for phoneme in phonemes])
    found = [[phoneme.rstrip("012") for phoneme in output.text.split()] for output in model.predict(list(listed))]
    edits = [nearest_edits(phonemes, listed[word]) for word, phonemes in zip(listed, found, strict=True)]
    phonemes = sum(length for _, length in edits)
    return {
        "edit_rate_without_stress": 100 * sum(count for count, _ in edits) / phonemes,
        "exact_match_without_stress": 100 * sum(not count for count, _ in edits) / len(edits),
    }


WORDS = ("tokenizer.kind=words", "tokenizer.max_size=8000", "target_tokenizer.kind=words", "tokens.tied=target")
PHONEMES = (
    *("target_tokenizer.kind=words", "encoder.num_layers=2", "encoder.dropout=0.2", "decoder.dropout=0.2"),
    *("encoder.dropout_input=0.1", "decoder.dropout_input=0.1"),
    *("train.epochs=12", "train.batch_tokens=3000", "train.learning_rate=0.002"),
)
DATA_SETS = {
    "multi30k-en-de": DataSet("translate-transformer", **multi30k("en", "de")),
    "multi30k-de-en": DataSet("translate-transformer", **multi30k("de", "en")),
    "multi30k-en-fr": DataSet("translate-transformer", **multi30k("en", "fr")),
    "multi30k-en-de-lstm": DataSet("translate-lstm", **multi30k("en", "de")),
    "multi30k-en-de-plain": DataSet("translate-lstm-plain", **multi30k("en", "de")),
    "en-ja": DataSet("translate-transformer", **enja("en", "ja")),
    "ja-en": DataSet("translate-transformer", **enja("ja", "en")),
    "en-ja-words": DataSet("translate-lstm", **enja("en", "ja"), settings=WORDS),
    **{
        f"sigmorphon-{language}": DataSet(
            "transduce-lstm", *(f"sigmorphon2017/{language}-{part}" for part in ("train-high", "dev", "test"))
        )
        for language in LANGUAGES
    },
    "cmudict": DataSet("transduce-lstm", "", "", "", PHONEMES, divided_cmudict, without_stress),
    "cmudict-39": DataSet(
        "transduce-lstm", "", "", "", (*PHONEMES, "data.format=cmudict"),
        partial(divided_cmudict, stress=False), without_stress,
    ),
    "scan-simple": scan("simple"),
    "scan-length": scan("length"),
    "scan-jump": scan("addprim_jump"),
    "scan-length-counters": scan(
        "length", "train.epochs=2", "search.max_tokens=200", "search.beams=1",
        written=scan_with_counters, others=right_actions,
    ),
    "scan-jump-verbs": scan("addprim_jump", "train.epochs=24", "search.beams=1", written=scan_with_more_verbs),
    "samsum-pointer": DataSet("summarize-pointer", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))),
    "samsum-transformer": DataSet(
        "summarize-transformer", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))
    ),
    "samsum-lm": DataSet("summarize-lm", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))),
    "dialogsum": DataSet(
        "summarize-pointer", *(f"dialogsum/dialogsum.{part}.jsonl" for part in ("train", "dev", "test"))
    ),
}  # fmt: skip


def trial_of(data: Path, name: str, folder: Path, *, dev: bool) -> Trial:
    """The data set of that name."""
    chosen = DATA_SETS[name]
    paths = {part: located(data, getattr(chosen, part)) for part in ("train", "valid", "test")}
    if chosen.written is not None:
        paths |= chosen.written(data, folder, dev=dev)
    if dev and not paths["valid"]:
        raise SystemExit(f"{name} has no development file: its validation scores are in the run's metrics.jsonl")
    return Trial(chosen.recipe, paths["train"], paths["valid"], paths["test"], chosen.settings, chosen.others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    given = trial_arguments(parser, list(DATA_SETS))
    print_scores(given, lambda name, folder: trial_of(given.data, name, folder, dev=given.dev))


if __name__ == "__main__":
    main()
