"""Data as they are meant to be, of every format; small, and new in every case."""

from __future__ import annotations

import json
import struct
from functools import partial
from random import Random
from typing import NamedTuple, get_args

from ensue.text.schemes import Scheme
from training.tiny import words
from training.tiny_texts import (
    columns,
    conllu,
    documents,
    fasttext,
    first_word,
    json_lines,
    json_spans,
    json_tokens,
    pairs,
    quoted_csv,
    sentences,
    tsv,
)


class Sample(NamedTuple):
    """Data as they are meant to be: the usual suffix, the content, and the tasks that read such data."""

    suffix: str
    content: str
    kind: str


def sample(choose: Random, kind: str | None = None) -> Sample:
    """Some data of that kind ("sentences", "texts", "text", "pairs", "vectors"), or of any."""
    kind = kind or choose.choice(list(SAMPLES))
    suffix, make = choose.choice(SAMPLES[kind])
    return Sample(suffix, make(choose), kind)


def glove(choose: Random) -> str:
    found = dict.fromkeys([*words(60).split(), "anna", "lima", "sees", "novak"])
    return "".join(
        f"{word} {choose.gauss(0, 1):.4f} {choose.gauss(0, 1):.4f} {choose.gauss(0, 1):.4f}\n" for word in found
    )


def word2vec(choose: Random) -> str:
    rows = glove(choose)
    return f"{rows.count(chr(10))} 3\n{rows}"


def binary_vectors(choose: Random) -> str:
    """The bytes of word2vec's binary format, as text in latin-1."""
    rows = [row.split() for row in glove(choose).splitlines()]
    parts = [row[0].encode() + b" " + struct.pack("<3f", *map(float, row[1:])) + b"\n" for row in rows]
    return f"{len(parts)} 3\n" + b"".join(parts).decode("latin-1")


def blimp(choose: Random) -> str:
    rows = [{"sentence_good": words(5, seed=n), "sentence_bad": words(5, seed=n + 99), "UID": "x"} for n in range(6)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def table_of_pairs(choose: Random) -> str:
    rows = ["pattern\tform\tclass\tprefix"]
    for number in range(4):
        prefix = words(4, seed=number).replace("\n", " ").strip()
        rows += [f"p\tsat\tcorrect\t{prefix}", f"p\tsits\twrong\t{prefix}"]
    return "\n".join(rows) + "\n"


def gold_sentences(choose: Random) -> str:
    return "".join(words(6, seed=number).replace("\n", " ").strip() + "\n" for number in range(5))


def gold(choose: Random) -> str:
    return "".join(f"{number % 3}\tsat\tsits\t{number}\n" for number in range(5))


def _tagged(write: object, choose: Random) -> str:
    return write(sentences(choose.randint(1, 12), seed=choose.randint(0, 99)))  # type: ignore[operator]


def _topical(write: object, choose: Random) -> str:
    return write(documents(choose.randint(4, 30), seed=choose.randint(0, 99)))  # type: ignore[operator]


def array(lines: str, choose: Random) -> str:
    """JSON lines as one array, in one of the ways in which programs write it."""
    form = choose.choice([{}, {"indent": 2}, {"separators": (",", ":")}])
    return json.dumps([json.loads(line) for line in lines.splitlines()], **form) + choose.choice(["", "\n"])  # type: ignore[arg-type]


def _tagged_array(write: object, choose: Random) -> str:
    return array(_tagged(write, choose), choose)


def _topical_array(choose: Random) -> str:
    return array(_topical(json_lines, choose), choose)


def _any_scheme(choose: Random) -> str:
    return _tagged(partial(columns, scheme=choose.choice(get_args(Scheme))), choose)


def _running(choose: Random) -> str:
    return words(choose.randint(1, 200), seed=choose.randint(0, 99))


SAMPLES = {
    "sentences": [
        (".txt", partial(_tagged, columns)),
        (".conll", partial(_tagged, partial(columns, separator="\t"))),
        (".conllu", partial(_tagged, conllu)),
        (".jsonl", partial(_tagged, json_tokens)),
        (".jsonl", partial(_tagged, json_spans)),
        (".conll", _any_scheme),
        (".json", partial(_tagged_array, json_tokens)),
        (".json", partial(_tagged_array, json_spans)),
    ],
    "texts": [
        (".tsv", partial(_topical, tsv)),
        (".csv", partial(_topical, quoted_csv)),
        (".csv", partial(_topical, partial(quoted_csv, delimiter=";"))),
        (".jsonl", partial(_topical, json_lines)),
        (".json", _topical_array),
        (".txt", partial(_topical, fasttext)),
        (".txt", partial(_topical, first_word)),
        (".tsv", lambda choose: pairs(choose.randint(2, 20), seed=choose.randint(0, 99))),
    ],
    "text": [(".txt", _running), ("", _running)],
    "pairs": [(".jsonl", blimp), (".tab", table_of_pairs), (".text", gold_sentences)],
    "vectors": [(".txt", glove), (".vec", word2vec), (".bin", binary_vectors)],
}
