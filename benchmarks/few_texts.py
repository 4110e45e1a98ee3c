"""Language models of characters from 50 and 200 kilobytes of text, beside Kneser-Ney.

    python benchmarks/few_texts.py DATA OUT --sizes 50 200 [--draws 1] [--methods NAME ...]

DATA is the folder of the data sets. Tiny Shakespeare is divided into blocks of whole lines, of about 1,000 characters.
A draw is a random sample of `size` blocks from the first nine tenths of the text, the same for all methods. All methods
are tested on 100 blocks of the last tenth, without the characters that the training text lacks. The score is in bits
per character. Methods of ensue are recipes with their default settings; `auto` is the recipe with the settings that
`ensue train FILE` chooses. Kneser-Ney (`pip install knlm`) has modified discounts; the last tenth of the training text
chooses its order. Each result is a line of OUT/results.jsonl; a finished result is not measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from data_files import read_lines
from few_examples import Result, measure_all, train_recipe
from json_lines import read_metrics

PEER, ORDERS = "Kneser-Ney", range(3, 10)
RECIPES = ("auto", "char-lstm", "char-transformer", "bpe-transformer")


def read(data: Path) -> tuple[list[str], list[str]]:
    """Return the blocks for training and for testing."""
    blocks = [""]
    for line in read_lines(data, "tinyshakespeare/input.txt"):
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


def remove_unknown(text: str, train: str) -> str:
    """Return the text without the characters that `train` lacks."""
    return "".join(filter(set(train).__contains__, text))


def measure(name: str, method: str, train: Sequence[str], test: Sequence[str], folder: Path) -> Result:
    """Train a method. Return its score and seconds."""
    train_text = "".join(train)
    test_text = remove_unknown("".join(test), train_text)
    if method == PEER:
        start, cut = time.process_time(), len(train_text) * 9 // 10
        fitted, held_out = train_text[:cut], remove_unknown(train_text[cut:], train_text[:cut])
        order = min(ORDERS, key=lambda order: kneser_ney(fitted, held_out, order))
        score = kneser_ney(train_text, test_text, order)
        return {"score": score / 100, "seconds": time.process_time() - start, "order": order}
    train_file, test_file, run = folder / "train.txt", folder / "test.txt", folder / "run"
    train_file.write_text(train_text, encoding="utf-8")
    test_file.write_text(test_text, encoding="utf-8")
    result = train_recipe(method, train_file, test_file, run, "bits_per_character")
    valid = [(record["selection"], record["step"]) for record in read_metrics(run) if record["kind"] == "valid"]
    return result | {"score": result["score"] / 100, "best_step": min(valid)[1], "steps": valid[-1][1]}


if __name__ == "__main__":
    defaults = ["auto", PEER]
    measure_all(__doc__, {"shakespeare": read}, [*RECIPES, PEER], measure, draws=1, tested=100, defaults=defaults)
