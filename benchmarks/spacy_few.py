"""spaCy's side of `few_labels.py` and `few_sentences.py`, in spaCy's own environment.

    python spacy_few.py {textcat,ner} TRAIN.jsonl TEST.jsonl FOLDER

A line of TRAIN and TEST has a text and its label, or a list of words and a list of their labels in the scheme IOBES. A
blank English pipeline is trained with the configuration of `spacy init config --optimize efficiency`. The number of
steps is a multiple of 50. For texts, three-fold cross-validation chooses it, up to 500; for words, a fifth of the
sentences chooses it, up to 1,500. Then a pipeline is trained on all of TRAIN. The script writes FOLDER/answers.json:
the predicted labels of TEST, the processor seconds of training and of prediction, and the bytes of the model.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import spacy
from spacy.cli.init_config import init_config
from spacy.cli.train import train
from spacy.tokens import Doc, DocBin
from spacy.training import biluo_tags_to_spans, offsets_to_biluo_tags

PREFIXES = {"E": "L", "S": "U"}
"""Prefixes of the scheme IOBES and of spaCy's scheme BILUO."""
MAX_STEPS, FOLDS = {"textcat": 500, "ner": 1_500}, {"textcat": (3, 3), "ner": (5, 1)}
"""The maximum number of steps; the number of folds, and the number of folds that are used for validation."""


def read(path: Path) -> list[tuple[Any, Any]]:
    """Return the texts, or the words, with their labels."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]


def document(nlp: Any, text: Any) -> Doc:
    """Return the document of a text, or of words."""
    return nlp.make_doc(text) if isinstance(text, str) else Doc(nlp.vocab, words=text)


def with_prefixes(labels: list[str], prefixes: dict[str, str]) -> list[str]:
    """Return the labels with other prefixes."""
    return [prefixes.get(label[0], label[0]) + label[1:] for label in labels]


def convert(nlp: Any, examples: list[tuple[Any, Any]], labels: list[str], path: Path) -> Path:
    """Write documents with their labels in spaCy's format. `labels` are all labels of texts."""
    documents = DocBin()
    for text, answer in examples:
        doc = document(nlp, text)
        if labels:
            doc.cats = {label: float(label == answer) for label in labels}
        else:
            doc.ents = biluo_tags_to_spans(doc, with_prefixes(answer, PREFIXES))
        documents.add(doc)
    documents.to_disk(path)
    return path


def answer(doc: Doc) -> Any:
    """Return the predicted labels of a document."""
    if doc.cats:
        return max(doc.cats, key=lambda label: doc.cats[label])
    tags = offsets_to_biluo_tags(doc, [(span.start_char, span.end_char, span.label_) for span in doc.ents])
    return with_prefixes(tags, {new: old for old, new in PREFIXES.items()})


class Trainer:
    """Training of a component on examples, with files in a folder."""

    def __init__(self, component: str, examples: list[tuple[Any, Any]], folder: Path) -> None:
        self.nlp, self.examples, self.folder, self.config = spacy.blank("en"), examples, folder, folder / "config.cfg"
        self.labels = sorted({label for _, label in examples if isinstance(label, str)})
        init_config(lang="en", pipeline=[component], optimize="efficiency").to_disk(self.config)

    def scores(self, fold: int, count: int, max_steps: int) -> dict[int, float]:
        """Return the score on a fold by the number of steps, after training on the other folds."""
        train_examples = [example for number, example in enumerate(self.examples) if number % count != fold]
        self._train(train_examples, self.examples[fold::count], max_steps)
        lines = map(json.loads, (self.folder / "log.jsonl").read_text(encoding="utf-8").splitlines())
        return {line["step"]: line["score"] for line in lines if line["step"]}

    def fit(self, steps: int) -> Path:
        """Train on all examples, and return the folder of the model."""
        self._train(self.examples, self.examples[:5], steps, patience=0)
        return self.folder / "model" / "model-last"

    def _train(
        self, train_examples: list[tuple[Any, Any]], dev: list[tuple[Any, Any]], steps: int, *, patience: int = 400
    ) -> None:
        parts = {"train": train_examples, "dev": dev}
        paths = {
            name: convert(self.nlp, part, self.labels, self.folder / f"{name}.spacy") for name, part in parts.items()
        }
        overrides: dict[str, Any] = {f"paths.{name}": str(path) for name, path in paths.items()}
        overrides |= {"training.max_steps": steps, "training.patience": patience, "training.eval_frequency": 50}
        overrides |= {"training.logger.@loggers": "spacy.ConsoleLogger.v2"}
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        overrides |= {"training.logger.output_file": str(self.folder / "log.jsonl")}
        train(self.config, self.folder / "model", overrides=overrides)


def main(component: str, train_file: Path, test_file: Path, folder: Path) -> None:
    """Train, predict, and write the answers."""
    start = time.process_time()
    trainer = Trainer(component, read(train_file), folder)
    count, num_validated = FOLDS[component]
    by_fold = [trainer.scores(fold, count, MAX_STEPS[component]) for fold in range(num_validated)]
    steps = set.intersection(*map(set, by_fold))
    model = trainer.fit(best := max(steps, key=lambda step: sum(scores[step] for scores in by_fold)))
    nlp = spacy.load(model)
    seconds, start = time.process_time() - start, time.process_time()
    answers = [answer(doc) for doc in nlp.pipe(document(nlp, text) for text, _ in read(test_file))]
    result = {"seconds": seconds, "test_seconds": time.process_time() - start, "steps": best, "answers": answers}
    result["bytes"] = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    (folder / "answers.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
