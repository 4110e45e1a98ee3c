"""An unlabeled pool for distillation on SST-2: sentences of film reviews by critics and by viewers.

    python benchmarks/critics.py DATA POOL

DATA is a folder with `sst`, `mr`, `subj` and `imdb`. A sentence is written on each line of POOL. The 60,000 candidates
are the neutral training sentences of SST, MR, SUBJ, and up to two sentences of each training or unlabeled review of
IMDb. A candidate is left out if it has 25 consecutive letters in common with a sentence of SST's development or test
data, or contains such a sentence of 9 to 24 letters, since MR has longer parts of the same reviews.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from data_files import read_lines

NUM_CANDIDATES, MIN_OVERLAP_LETTERS = 60_000, 25


def letters(text: str) -> str:
    """Return the letters and digits of a text, since the data sets divide words in different ways."""
    return re.sub(r"[\W_]", "", text.lower().replace("-lrb-", "").replace("-rrb-", ""))


def letter_runs(text: str) -> set[str]:
    """Return all runs of MIN_OVERLAP_LETTERS consecutive letters, or a shorter text itself."""
    return {text[n : n + MIN_OVERLAP_LETTERS] for n in range(max(1, len(text) - MIN_OVERLAP_LETTERS + 1))}


def sentences(review: str) -> list[str]:
    """Return the sentences of 5 to 40 words, with blanks around punctuation as in SST."""
    parts = re.split(r"(?<=[.!?])\s+|<br\s*/?>", review)
    spaced = (
        re.sub(r"(n't|'s|'re|'ve|'ll|'d|'m)\b", r" \1", re.sub(r'([.,!?;:()"])', r" \1 ", part)) for part in parts
    )
    lowered = [" ".join(part.lower().split()) for part in spaced]
    return [part for part in lowered if 5 <= len(part.split()) <= 40]


def candidates(data: Path) -> Iterator[str]:
    """Yield all sentences, those of critics first."""
    critics = {"sst/stsa.fine.train": "utf-8", "mr/rt-polarity.all": "cp1252", "subj/subj.all": "cp1252"}
    for name, encoding in critics.items():
        yield from (line.partition(" ")[2].strip() for line in read_lines(data, name, encoding))
    reviews = [json.loads(line)["text"] for line in read_lines(data, "imdb/train.jsonl")]
    reviews += [
        *read_lines(data, "imdb/unsup.txt"),
        "",
    ]  # with the empty text the random draws are those of docs/teachers.md
    generator = random.Random(0)
    generator.shuffle(reviews)
    sampled = [part for parts in map(sentences, reviews) for part in generator.sample(parts, min(2, len(parts)))]
    generator.shuffle(sampled)
    yield from sampled


def pool(data: Path) -> Iterator[str]:
    """Yield the candidates without a long overlap with SST's development or test data."""
    held_out = [letters(line.partition(" ")[2]) for kind in ("binary", "fine") for part in ("dev", "test")
            for line in read_lines(data, f"sst/stsa.{kind}.{part}")]  # fmt: skip
    held_out_runs = set[str]().union(*map(letter_runs, held_out))
    short = [text for text in set(held_out) if 8 < len(text) < MIN_OVERLAP_LETTERS]
    seen = {letters(line.partition(" ")[2]) for line in read_lines(data, "sst/stsa.binary.train")} | set(held_out)
    count = 0
    for sentence in candidates(data):
        text = letters(sentence)
        if text in seen or not 3 <= len(sentence.split()) <= 45:
            continue
        seen.add(text)
        count += 1
        if held_out_runs.isdisjoint(letter_runs(text)) and not any(
            sentence_letters in text for sentence_letters in short
        ):
            yield sentence
        if count == NUM_CANDIDATES:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("pool", type=Path)
    arguments = parser.parse_args()
    arguments.pool.write_text("".join(f"{sentence}\n" for sentence in pool(arguments.data)), encoding="utf-8")


if __name__ == "__main__":
    main()
