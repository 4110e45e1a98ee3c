"""Small exported models of every task, each with the input of its program."""

from collections.abc import Callable

import numpy as np

from extensions.exporting.c import classifiers, framed, models, taggers, transducers
from extensions.exporting.c.printing import files_of

FILES = dict[str, bytes]
Calls = tuple[tuple[tuple[str, ...], str], ...]
"""The arguments and the input of each call of a program."""
WRITES = (("--generate", "300", "7", "1.1"), "The sea")


def language(kind: str) -> Callable[[str], tuple[FILES, Calls]]:
    def made(precision: str) -> tuple[FILES, Calls]:
        model = models.pipeline(kind, **(models.TRANSFORMER if kind == "words" else {}))
        return files_of(model, "some", precision=precision), (((), models.MIXED), WRITES)

    return made


def tagger(kind: str) -> Callable[[str], tuple[FILES, Calls]]:
    def made(precision: str) -> tuple[FILES, Calls]:
        files = files_of(taggers.pipeline_of(kind), "some", precision=precision)
        return files, ((("--probabilities",), "\n".join(taggers.TEXTS)),)

    return made


def classifier(kind: str) -> Callable[[str], tuple[FILES, Calls]]:
    def made(precision: str) -> tuple[FILES, Calls]:
        pipeline = classifiers.classifier(**classifiers.KINDS[kind])
        files = files_of(pipeline, "some", precision=precision)
        separator = "\t" if "pair" in kind else " "
        return files, (((), "\n".join(f"the Sea{separator}was {word} a" for word in classifiers.SIGNS[:-1])),)

    return made


def transducer(kind: str) -> Callable[[str], tuple[FILES, Calls]]:
    def made(precision: str) -> tuple[FILES, Calls]:
        pipeline = transducers.transducer(**transducers.KINDS[kind])
        files = files_of(pipeline, "some", precision=precision)
        lines = ["\t".join([lemma, "V;PST", "N"][: pipeline.num_texts]) for lemma in transducers.LEMMAS]
        return files, ((("--beams", "6", "--n-best", "3"), "\n".join(lines)),)

    return made


def frames(kind: str) -> Callable[[str], tuple[FILES, Calls]]:
    def made(precision: str) -> tuple[FILES, Calls]:
        pipeline, names = framed.pipeline(kind), []
        files = files_of(pipeline, "some", precision=precision)
        rng = np.random.default_rng(3)
        for k in range(6):
            if kind == "sounds":
                names.append(f"{k}.wav")
                files[names[-1]] = framed.wav(rng.integers(-9999, 9999, 3000 + 500 * k, np.int16).tobytes())
            else:
                series = rng.normal(size=(3 + 4 * k, pipeline.statistics.shape.width)).astype("<f4")
                names.append(f"{k}.csv")
                head = ",".join(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in pipeline.statistics.shape.columns)
                rows = [",".join(map(repr, row)) for row in series.tolist()]
                files[names[-1]] = "\n".join([*[head] * bool(head), *rows, ""]).encode()
        return files, (((*["--probabilities"] * (kind in ("spans", "crf")),), "\n".join(names)),)

    return made


MODELS: dict[str, Callable[[str], tuple[FILES, Calls]]] = {
    "characters": language("characters"), "transformer": language("words"), "tagger": tagger("layers"),
    "tagger with a CRF": tagger("crf"), "tagger of letters": tagger("cnn"), "classifier": classifier("both_ways"),
    "classifier of pairs": classifier("pair_of_layers"), "transducer": transducer("additive"),
    "transducer with heads": transducer("heads"), "frames": frames("one"), "sounds": frames("sounds"),
    "tags of frames": frames("crf"),
}  # fmt: skip
