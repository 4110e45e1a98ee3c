"""Words in a second of processor time that a tagger analyzes: Stanza's, or ensue's in another environment.

    python benchmarks/stanza_tagger.py MODEL TREEBANK.conllu [--sentences 100]

MODEL is a file `.pt` that `python -m stanza.models.tagger` has written, read with the packages of Stanza's environment;
or a run of `tag-columns`. Each side reads the treebank, predicts UPOS, XPOS and FEATS, and is measured the second time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch


def stanza_side(model: str, treebank: str, sentences: int) -> Callable[[], None]:
    """Stanza's part of speech tagger without pretrained vectors, with `sentences` in a batch."""
    from stanza.models.pos.data import Dataset  # noqa: PLC0415 (each side has packages of its own)
    from stanza.models.pos.trainer import Trainer  # noqa: PLC0415
    from stanza.utils.conll import CoNLL  # noqa: PLC0415

    trainer = Trainer(model_file=model, pretrain=None, device="cpu", args={"charlm_forward_file": None})

    def predict() -> None:
        document = CoNLL.conll2doc(treebank)
        data = Dataset(document, trainer.args, None, vocab=trainer.vocab, evaluation=True, sort_during_eval=True)
        for batch in data.to_loader(batch_size=sentences):
            trainer.predict(batch)

    return predict


def ensue_side(model: str, treebank: str) -> Callable[[], None]:
    """A tagger of ensue, as `ensue predict` uses it."""
    import ensue  # noqa: PLC0415

    pipeline = ensue.load(model, device="cpu")

    def predict() -> None:
        for _ in pipeline.prediction_lines(treebank, format="conllu"):
            pass

    return predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("treebank")
    parser.add_argument("--sentences", type=int, default=100)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with open(asked.treebank, encoding="utf-8") as file:
        words = sum(line.partition("\t")[0].isdecimal() for line in file)
    if asked.model.endswith(".pt"):
        predict = stanza_side(asked.model, asked.treebank, asked.sentences)
    else:
        predict = ensue_side(asked.model, asked.treebank)
    predict()
    begun = time.process_time()
    predict()
    print(f"{words:,} words, {words / (time.process_time() - begun):,.0f} a second of processor time")


if __name__ == "__main__":
    main()
