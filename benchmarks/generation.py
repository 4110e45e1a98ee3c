"""Speed of generation by an untrained character LSTM (1×256, 65 symbols): one stream and 64 streams, one thread.

python benchmarks/generation.py
"""

from __future__ import annotations

import time
from typing import Any

import torch
from machine import describe_machine

from ensue.decode.generation import generate_ids
from ensue.decode.sampling import Sampling
from ensue.models.build_text import build_language_model
from ensue.models.specification import LSTMEncoder, Tokens

VOCABULARY_SIZE, SEED = 65, 0
RUNS = ((1, 3000, Sampling()), (64, 300, Sampling()), (1, 3000, Sampling(top_p=0.9)), (64, 300, Sampling(top_p=0.9)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = build_language_model(Tokens(), LSTMEncoder(kind="lstm"), vocabulary_size=VOCABULARY_SIZE)
    print(describe_machine(seed=SEED))
    print("| streams | sampling | characters per second, best of 3 |")
    print("|---|---|---|")
    for streams, max_tokens, sampling in RUNS:
        name = "plain" if sampling == Sampling() else f"top-p {sampling.top_p}"
        rate = max(characters_per_second(model, streams, max_tokens, sampling) for _ in range(3))
        print(f"| {streams} | {name} | {rate:,.0f} |")


def characters_per_second(model: Any, streams: int, max_tokens: int, sampling: Sampling) -> float:
    """Return the characters per second of all streams together."""
    start = time.perf_counter()
    prompts = [[0]] * streams
    for ids in generate_ids(model, prompts, max_tokens=max_tokens, start_id=0, sampling=sampling, seed=SEED):
        ids.tolist()
    return streams * max_tokens / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
