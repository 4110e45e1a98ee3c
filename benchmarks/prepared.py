"""A prepared text of 10^12 ids: how long it takes to open, and how much memory its batches need.

The shards are sparse files: their headers say what they hold, and nothing is stored.

    python benchmarks/prepared.py --tokens 1e12
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from ensue.cache import json_digest
from ensue.data.corpus.batches import Batches, Blocks, Segments
from ensue.data.corpus.prepared import FORMAT, INDEX, Prepared
from ensue.data.mapped_file import TokenHeader
from ensue.text.tokenizers import save_tokenizer, train_tokenizer

SHARD = 1 << 28  # the default of `ensue prepare`


def simulated(folder: Path, tokens: int) -> None:
    """Writes an index and sparse shards of 16-bit ids."""
    (folder / "train").mkdir()
    tokenizer = train_tokenizer("bytes", [])
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    shards = []
    for number, start in enumerate(range(0, tokens, SHARD)):
        here = min(SHARD, tokens - start)
        header = TokenHeader(2, 0, here, 0, here)
        path = folder / "train" / f"{number:05}.ids"
        with path.open("wb") as file:
            file.write(header.bytes)
            file.truncate(header.file_bytes)
        shards.append({"file": path.name, "tokens": here, "unknown": 0, "characters": here, "crc32": 0})
    index = {"format_version": FORMAT, "complete": True, "tokenizer": json_digest(tokenizer.to_json())}
    (folder / INDEX).write_text(json.dumps({**index, "parts": {"train": shards}}))


def measured(batches: Batches, steps: int) -> None:
    """Reads batches from all over the text."""
    began, before = time.perf_counter(), peak()
    for step in np.linspace(0, 3 * batches.steps_per_epoch, steps, dtype=np.int64).tolist():
        batches.batch(step)
    took = (time.perf_counter() - began) / steps
    name = type(batches).__name__
    print(f"{name}: {batches.steps_per_epoch:,} steps an epoch, {1e3 * took:.2f} ms a batch of 32 × 256, "
          f"memory +{peak() - before:.0f} MB")  # fmt: skip


def peak() -> float:
    """The most memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=1e12)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=None, help="where the sparse files go")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        simulated(folder, int(asked.tokens))
        began, before = time.perf_counter(), peak()
        tokens = Prepared(folder).tokens("train")
        assert tokens is not None
        print(f"{len(tokens):,} ids in {len(list((folder / 'train').iterdir())):,} shards: opened in "
              f"{time.perf_counter() - began:.3f} s, memory +{peak() - before:.0f} MB of {peak():.0f}")  # fmt: skip
        for kind in (Segments, Blocks):
            measured(kind(tokens, batch_size=32, segment_length=256, seed=0), asked.steps)


if __name__ == "__main__":
    main()
