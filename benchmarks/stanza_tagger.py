"""Speed of a tagger of Stanza or of ensue, in words per second of processor time.

    python benchmarks/stanza_tagger.py MODEL TREEBANK.conllu [--sentences 100]

MODEL is a file `.pt` of `python -m stanza.models.tagger`, for which the script runs in Stanza's environment, or a run
of `tag-columns`. The tagger reads the treebank and predicts UPOS, XPOS and FEATS. The second of two passes is measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch


def load_stanza(model: str, treebank: str, sentences: int) -> Callable[[], None]:
    """Return a function that predicts with Stanza's part-of-speech tagger without pretrained vectors."""
    from stanza.models.pos.data import Dataset  # noqa: PLC0415 (only one of the two packages is installed)
    from stanza.models.pos.trainer import Trainer  # noqa: PLC0415
    from stanza.utils.conll import CoNLL  # noqa: PLC0415

    trainer = Trainer(model_file=model, pretrain=None, device="cpu", args={"charlm_forward_file": None})

    def predict() -> None:
        document = CoNLL.conll2doc(treebank)
        data = Dataset(document, trainer.args, None, vocab=trainer.vocab, evaluation=True, sort_during_eval=True)
        for batch in data.to_loader(batch_size=sentences):
            trainer.predict(batch)

    return predict


def load_ensue(model: str, treebank: str) -> Callable[[], None]:
    """Return a function that predicts with ensue, like `ensue predict`."""
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
    parser.add_argument("--sentences", type=int, default=100, help="the batch size of Stanza")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with open(arguments.treebank, encoding="utf-8") as file:
        words = sum(line.partition("\t")[0].isdecimal() for line in file)
    if arguments.model.endswith(".pt"):
        predict = load_stanza(arguments.model, arguments.treebank, arguments.sentences)
    else:
        predict = load_ensue(arguments.model, arguments.treebank)
    predict()
    start = time.process_time()
    predict()
    print(f"{words:,} words, {words / (time.process_time() - start):,.0f} per second of processor time")


if __name__ == "__main__":
    main()
