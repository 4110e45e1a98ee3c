"""A pool for students of SST-2: sentences of film critics and of viewers, without labels.

    python benchmarks/critics.py DATA POOL

DATA is a folder with `sst`, `mr`, `subj` and `imdb`. POOL gets a sentence on each line: SST's training sentences that
are neutral, MR, SUBJ, and up to two sentences of each review of IMDb without its test part, 60,000 in all. Of these the
ones are left out that share 25 letters in a row with one of SST's development or test data, since MR has longer pieces
of the same reviews.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from text_sets import lines

COUNT, SHARED = 60_000, 25


def letters(text: str) -> str:
    """Its letters and digits alone, since the data sets divide words in different ways."""
    return re.sub(r"[\W_]", "", text.lower().replace("-lrb-", "").replace("-rrb-", ""))


def sentences(review: str) -> list[str]:
    """Those of 5 to 40 words, with blanks as in SST."""
    parts = re.split(r"(?<=[.!?])\s+|<br\s*/?>", review)
    spaced = (
        re.sub(r"(n't|'s|'re|'ve|'ll|'d|'m)\b", r" \1", re.sub(r'([.,!?;:()"])', r" \1 ", part)) for part in parts
    )
    found = [" ".join(part.lower().split()) for part in spaced]
    return [part for part in found if 5 <= len(part.split()) <= 40]


def candidates(data: Path) -> Iterator[str]:
    """All sentences, those of critics first."""
    of_critics = {"sst/stsa.fine.train": "utf-8", "mr/rt-polarity.all": "cp1252", "subj/subj.all": "cp1252"}
    for name, encoding in of_critics.items():
        yield from (line.partition(" ")[2].strip() for line in lines(data, name, encoding))
    reviews = [json.loads(line)["text"] for line in lines(data, "imdb/train.jsonl")]
    reviews += [*lines(data, "imdb/unsup.txt"), ""]  # the empty one keeps the draws of docs/teachers.md
    draw = random.Random(0)
    draw.shuffle(reviews)
    chosen = [one for review in map(sentences, reviews) for one in draw.sample(review, min(2, len(review)))]
    draw.shuffle(chosen)
    yield from chosen


def pool(data: Path) -> Iterator[str]:
    held = [letters(line.partition(" ")[2]) for kind in ("binary", "fine") for part in ("dev", "test")
            for line in lines(data, f"sst/stsa.{kind}.{part}")]  # fmt: skip
    parts = {text[place : place + SHARED] for text in held for place in range(max(1, len(text) - SHARED + 1))}
    short = [text for text in set(held) if 8 < len(text) < SHARED]
    seen = {letters(line.partition(" ")[2]) for line in lines(data, "sst/stsa.binary.train")} | set(held)
    count = 0
    for sentence in candidates(data):
        text = letters(sentence)
        if text in seen or not 3 <= len(sentence.split()) <= 45:
            continue
        seen.add(text)
        count += 1
        pieces = (text[place : place + SHARED] for place in range(max(1, len(text) - SHARED + 1)))
        if parts.isdisjoint(pieces) and not any(one in text for one in short):
            yield sentence
        if count == COUNT:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("pool", type=Path)
    asked = parser.parse_args()
    asked.pool.write_text("".join(f"{sentence}\n" for sentence in pool(asked.data)), encoding="utf-8")


if __name__ == "__main__":
    main()
