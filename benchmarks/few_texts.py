"""Language models of characters from 50 and 200 kilobytes of text, beside Kneser-Ney.

    python benchmarks/few_texts.py DATA OUT --sizes 50 200 [--draws 1] [--methods NAME ...]

DATA is the folder of the data sets. Tiny Shakespeare is divided into blocks of whole lines of about 1,000 characters. A
draw takes `size` blocks of the first nine tenths at random, the same for all methods. They are tested on 100 blocks of
the last tenth, without the characters that the training text lacks. The score is in bits per character. ensue's methods
are recipes with their defaults; `auto` is what `ensue train FILE` proposes, with the settings. Kneser-Ney (`pip install
knlm`) has modified discounts; its order is chosen by the last tenth of the training text. Each result is a line of
OUT/results.jsonl; a result that is there is not measured again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

from few_examples import Result, measure_all, train_recipe
from text_sets import lines

PEER, ORDERS = "Kneser-Ney", range(3, 10)
RECIPES = ("auto", "char-lstm", "char-transformer", "bpe-transformer")


def read(data: Path) -> tuple[list[str], list[str]]:
    """Return the blocks for training and for testing."""
    blocks = [""]
    for line in lines(data, "tinyshakespeare/input.txt"):
        if len(blocks[-1]) >= 1_000:
            blocks.append("")
        blocks[-1] += line + "\n"
    return blocks[: len(blocks) * 9 // 10], blocks[len(blocks) * 9 // 10 :]


def kneser_ney(train: str, test: str, order: int) -> float:
    """Return the bits per character of the test text."""
    try:
        from knlm import KneserNey  # noqa: PLC0415
    except ModuleNotFoundError:
        raise SystemExit("no knlm: pip install knlm, or choose other --methods") from None
    model = KneserNey(order, 4)
    model.train(list(train))
    model.optimize()
    return -sum(model.evaluateEachWord(list(test))) / len(test) / math.log(2)


def without(text: str, train: str) -> str:
    """Return the text without characters that `train` lacks."""
    return "".join(filter(set(train).__contains__, text))


def measure(name: str, method: str, train: Sequence[str], test: Sequence[str], folder: Path) -> Result:
    """Fit a method, and return its score and seconds."""
    texts = "".join(train), without("".join(test), "".join(train))
    if method == PEER:
        start, cut = time.process_time(), len(texts[0]) * 9 // 10
        inside, outside = texts[0][:cut], without(texts[0][cut:], texts[0][:cut])
        order = min(ORDERS, key=lambda order: kneser_ney(inside, outside, order))
        score = kneser_ney(*texts, order)
        return {"score": score / 100, "seconds": time.process_time() - start, "order": order}
    files = [folder / f"{part}.txt" for part in ("train", "test")]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    result = train_recipe(method, *files, folder / "run", "bits_per_character")
    records = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    valid = [(record["selection"], record["step"]) for record in records if record["kind"] == "valid"]
    return result | {"score": result["score"] / 100, "best_step": min(valid)[1], "steps": valid[-1][1]}


if __name__ == "__main__":
    defaults = ["auto", PEER]
    measure_all(__doc__, {"shakespeare": read}, [*RECIPES, PEER], measure, draws=1, tested=100, defaults=defaults)
