"""Opening time and memory of batches for a prepared text of 10^12 ids.

The shards are sparse files with valid headers and without data.

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
from machine import describe_machine

from ensue.cache import json_digest
from ensue.data.corpus.batches import Batches, Blocks, Segments
from ensue.data.corpus.prepared import FORMAT_VERSION, INDEX, PreparedTokens
from ensue.data.mapped_file import _HEADER, _MAGIC, TokenHeader
from ensue.text.tokenizers import save_tokenizer, train_tokenizer

SHARD_TOKENS = 1 << 28  # the default of `ensue prepare`


def write_sparse(folder: Path, tokens: int) -> None:
    """Write an index and sparse shards of 16-bit ids."""
    (folder / "train").mkdir()
    tokenizer = train_tokenizer("bytes", [])
    save_tokenizer(tokenizer, folder / "tokenizer.json")
    shards = []
    for number, start in enumerate(range(0, tokens, SHARD_TOKENS)):
        size = min(SHARD_TOKENS, tokens - start)
        path = folder / "train" / f"{number:05}.ids"
        header = TokenHeader(2, 0, size, 0, size)
        with path.open("wb") as file:
            file.write(_HEADER.pack(_MAGIC, *header))
            file.truncate(header.file_bytes)
        shards.append({"file": path.name, "tokens": size, "unknown": 0, "characters": size, "crc32": 0})
    index = {"format_version": FORMAT_VERSION, "complete": True, "tokenizer": json_digest(tokenizer.to_json())}
    (folder / INDEX).write_text(json.dumps({**index, "parts": {"train": shards}}))


def measure(batches: Batches, steps: int) -> None:
    """Read batches from all parts of the text, and print their time and memory."""
    start, before = time.perf_counter(), peak()
    for step in np.linspace(0, 3 * batches.steps_per_epoch, steps, dtype=np.int64).tolist():
        batches.batch(step)
    seconds = (time.perf_counter() - start) / steps
    name = type(batches).__name__
    print(f"{name}: {batches.steps_per_epoch:,} steps per epoch, {1e3 * seconds:.2f} ms per batch of 32 × 256, "
          f"memory +{peak() - before:.0f} MB")  # fmt: skip


def peak() -> float:
    """Return the peak memory until now in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=1e12)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=None, help="the folder of the sparse files")
    arguments = parser.parse_args()
    print(describe_machine(seed=0))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        write_sparse(folder, int(arguments.tokens))
        start, before = time.perf_counter(), peak()
        tokens = PreparedTokens(folder).tokens("train")
        assert tokens is not None
        print(f"{len(tokens):,} ids in {len(list((folder / 'train').iterdir())):,} shards: opened in "
              f"{time.perf_counter() - start:.3f} s, memory +{peak() - before:.0f} MB of {peak():.0f}")  # fmt: skip
        for kind in (Segments, Blocks):
            measure(kind(tokens, batch_size=32, segment_length=256, seed=0), arguments.steps)


if __name__ == "__main__":
    main()
