"""Valid data of every format, small, and different in every case."""

import json
import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple, get_args

from ensue.text.schemes import Scheme
from training import tiny_texts
from training.tiny import words


class Sample(NamedTuple):
    """Valid data: the usual suffix, the content, and the tasks that read such data."""

    suffix: str
    content: str
    kind: str


def sample(choose: Random, kind: str | None = None) -> Sample:
    """Return data of a kind of `SAMPLES`, or of any kind."""
    kind = kind or choose.choice(list(SAMPLES))
    suffix, make = choose.choice(SAMPLES[kind])
    return Sample(suffix, make(choose), kind)


def glove(choose: Random) -> str:
    vocabulary = dict.fromkeys([*words(60).split(), "anna", "lima", "sees", "novak"])
    return "".join(
        f"{word} {choose.gauss(0, 1):.4f} {choose.gauss(0, 1):.4f} {choose.gauss(0, 1):.4f}\n" for word in vocabulary
    )


def word2vec(choose: Random) -> str:
    rows = glove(choose)
    return f"{rows.count(chr(10))} 3\n{rows}"


def binary_vectors(choose: Random) -> str:
    """Return bytes of word2vec's binary format as text in latin-1."""
    rows = [row.split() for row in glove(choose).splitlines()]
    rows_of_bytes = [row[0].encode() + b" " + struct.pack("<3f", *map(float, row[1:])) + b"\n" for row in rows]
    return f"{len(rows_of_bytes)} 3\n" + b"".join(rows_of_bytes).decode("latin-1")


def similarities(choose: Random) -> str:
    sign = choose.choice("\t, ;")
    head = choose.choice(["", sign.join(["one", "other", "similarity\n"])])
    rows = [sign.join([*choose.choices(words(60).split(), k=2), f"{choose.uniform(0, 10):.2f}"]) for _ in range(8)]
    return head + "".join(f"{row}\n" for row in rows)


def analogies(choose: Random) -> str:
    rows = [" ".join(choose.choices(words(60).split(), k=4)) + "\n" for _ in range(6)]
    return ": first\n" + "".join(rows[:3]) + ": second\n" + "".join(rows[3:])


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


def translated(write: Callable[[list[tuple[str, str]]], str], choose: Random) -> str:
    """Return pairs of source and target in a format."""
    texts = [words(choose.randint(1, 9), seed=choose.randint(0, 999)).replace("\n", " ").strip() for _ in range(40)]
    return write(list(zip(texts[: choose.randint(1, 20)], texts[20:], strict=False)))


def _tmx(rows: list[tuple[str, str]]) -> str:
    variants = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = (f"<tu>{variants.format('en', row[0])}{variants.format('de-AT', row[1])}</tu>\n" for row in rows)
    return f'<?xml version="1.0"?>\n<tmx version="1.4"><body>\n{"".join(units)}</body></tmx>\n'


def _po(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"msgid {json.dumps(row[0])}\nmsgstr {json.dumps(row[1])}\n" for row in rows)


def _xliff(rows: list[tuple[str, str]]) -> str:
    units = "".join(f"<trans-unit><source>{row[0]}</source><target>{row[1]}</target></trans-unit>\n" for row in rows)
    return f'<?xml version="1.0"?>\n<xliff version="1.2"><file><body>\n{units}</body></file></xliff>\n'


def _pair_table(rows: list[tuple[str, str]], delimiter: str = "\t", header: bool = True) -> str:
    return "".join(f"{delimiter.join(row)}\n" for row in [*[("source", "target")] * header, *rows])


def _pair_objects(rows: list[tuple[str, str]]) -> str:
    objects = ({"dialogue": row[0], "summary1": row[1], "summary2": row[0]} for row in rows)
    return "".join(f"{json.dumps(content)}\n" for content in objects)


def _tagged(write: object, choose: Random) -> str:
    return write(tiny_texts.sentences(choose.randint(1, 12), seed=choose.randint(0, 99)))  # type: ignore[operator]


def _topical(write: object, choose: Random) -> str:
    return write(tiny_texts.documents(choose.randint(4, 30), seed=choose.randint(0, 99)))  # type: ignore[operator]


def array(lines: str, choose: Random) -> str:
    """Return JSON lines as one array, in a form that programs write."""
    form = choose.choice([{}, {"indent": 2}, {"separators": (",", ":")}])
    return json.dumps([json.loads(line) for line in lines.splitlines()], **form) + choose.choice(["", "\n"])  # type: ignore[arg-type]


def _tagged_array(write: object, choose: Random) -> str:
    return array(_tagged(write, choose), choose)


def _topical_array(choose: Random) -> str:
    return array(_topical(tiny_texts.json_lines, choose), choose)


def _any_scheme(choose: Random) -> str:
    return _tagged(partial(tiny_texts.columns, scheme=choose.choice(get_args(Scheme))), choose)


def _running(choose: Random) -> str:
    return words(choose.randint(1, 200), seed=choose.randint(0, 99))


SAMPLES = {
    "sentences": [
        (".txt", partial(_tagged, tiny_texts.columns)),
        (".conll", partial(_tagged, partial(tiny_texts.columns, separator="\t"))),
        (".conllu", partial(_tagged, tiny_texts.conllu)), (".jsonl", partial(_tagged, tiny_texts.json_tokens)),
        (".jsonl", partial(_tagged, tiny_texts.json_spans)), (".conll", _any_scheme),
        (".json", partial(_tagged_array, tiny_texts.json_tokens)),
        (".json", partial(_tagged_array, tiny_texts.json_spans)),
    ],
    "texts": [
        (".tsv", partial(_topical, tiny_texts.tsv)), (".csv", partial(_topical, tiny_texts.quoted_csv)),
        (".csv", partial(_topical, partial(tiny_texts.quoted_csv, delimiter=";"))),
        (".jsonl", partial(_topical, tiny_texts.json_lines)),
        (".json", _topical_array), (".txt", partial(_topical, tiny_texts.fasttext)),
        (".txt", partial(_topical, tiny_texts.first_word)),
        (".tsv", lambda choose: tiny_texts.pairs(choose.randint(2, 20), seed=choose.randint(0, 99))),
    ],
    "text": [(".txt", _running), ("", _running)],
    "pairs": [(".jsonl", blimp), (".tab", table_of_pairs), (".text", gold_sentences)],
    "translations": [
        (".tsv", partial(translated, _pair_table)),
        (".txt", partial(translated, partial(_pair_table, header=False))),
        (".csv", partial(translated, partial(_pair_table, delimiter=","))),
        (".jsonl", partial(translated, _pair_objects)),
        (".tmx", partial(translated, _tmx)),
        (".po", partial(translated, _po)),
        (".xlf", partial(translated, _xliff)),
        (".txt", partial(translated, lambda rows: "".join(f"IN: {row[0]} OUT: {row[1]}\n" for row in rows))),
        ("", partial(translated, lambda rows: "".join(f"{row[0].split()[0]} 1 AH0 B\n" for row in rows))),
        ("", partial(translated, lambda rows: "".join(f"{row[0]}\t{row[1]}\tV;PST\n" for row in rows))),
    ],
    "questions": [(".tsv", similarities), (".txt", analogies)],
    "vectors": [(".txt", glove), (".vec", word2vec), (".bin", binary_vectors)],
}  # fmt: skip
