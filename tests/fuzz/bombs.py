"""Shape bombs: small files of every format that are wide, deep, long, repetitive or extremely compressed.

Reading one may take `SECONDS` of processor time and `MIB` of memory for each uncompressed megabyte.
"""

import gzip
import json
import lzma
from collections.abc import Callable
from random import Random

from ensue.data.decoding import MAX_RATIO, RATIO_BYTES
from fuzz.case import Case
from fuzz.material import Material

SECONDS, MIB = 10, 500
LARGEST = 1 << 20
Bomb = Callable[[int], str]
"""A function from a number of characters to a content of about that size."""


def numbered(pattern: str, size: int) -> str:
    """Return the repeated pattern, with its number in place of each #."""
    count = max(1, size // (len(pattern) + 4))
    return "".join(pattern.replace("#", str(number)) for number in range(count))


def xml(content: str) -> str:
    return f'<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>{content}</body></tmx>'


def spans(size: int, form: Callable[[int], list[object]]) -> str:
    count = size // 24
    return json.dumps({"text": "ab " * count, "label": [form(number) for number in range(count)]}) + "\n"


def regions(size: int, form: str) -> str:
    """Return a text and annotations of its words. # is the number of a word, @ its start, and ! its end."""
    words = [
        form.replace("#", str(number)).replace("@", str(3 * number)).replace("!", str(3 * number + 2))
        for number in range(max(1, size // (len(form) + 10)))
    ]
    return json.dumps("ab " * len(words)) + "\0" + ", ".join(words)


def annotated(size: int, form: str, around: str) -> str:
    text, _, words = regions(size, form).partition("\0")
    return around.replace("TEXT", text).replace("WORDS", words)


REGION = '{"type": "labels", "from_name": "n", "value": {"start": @, "end": !, "text": "ab", "labels": ["X"]}}'
FLAT = '{"start": @, "end": !, "text": "ab", "labels": ["X"]}'
CELLS = "annotator,annotation_id,text,ner\n"
CELL = '1,#,"ab ","[{""start"":0,""end"":2,""text"":""ab"",""labels"":[""X""]}]"\n'
TU = '<tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv>'
ROW = "1\tw\tw\tX\t_\t{}\t0\troot\t_\t{}\n"
SHAPES: dict[str, Bomb] = {
    "width.conll": lambda size: "a\t" * (size // 2) + "O\n",
    "blanks.conll": lambda size: "x " * (size // 2) + "O\ny O\n\n",
    "paragraph.conll": lambda size: "a O\n" * (size // 4),
    "word.conll": lambda size: "a" * size + " O\n\n",
    "labels.conll": lambda size: numbered("a B-#\n\n", size),
    "paragraph.conllu": lambda size: numbered(ROW.format("_", "_").replace("1", "#", 1), size),
    "features.conllu": lambda size: ROW.format(numbered("K#=V|", size) + "A=B", "_") + "\n",
    "keys.conllu": lambda size: numbered(ROW.format("_", "K#=#") + "\n", size),
    "comments.conllu": lambda size: "# c\n" * (size // 4) + ROW.format("_", "_") + "\n",
    "width.csv": lambda size: numbered("c#,", size // 2) + "z\n" + numbered("#,", size // 2) + "z\n",
    "width.tsv": lambda size: numbered("c#\t", size // 2) + "z\n" + numbered("#\t", size // 2) + "z\n",
    "empty.csv": lambda size: "," * size + "\n",
    "row.csv": lambda size: "label,text\n" + "a," * (size // 2) + "\n",
    "quotes.csv": lambda size: 'label,text\na,"' + '""' * (size // 2) + '"\n',
    "open.csv": lambda size: 'label,text\na,"' + "x\n" * (size // 2),
    "labels.csv": lambda size: "label,text\n" + numbered("l#,t#\n", size),
    "cell.csv": lambda size: 'label,text\n"' + numbered("l#,", size) + '",t\n"a,b",t\n',
    "series.csv": lambda size: "series,time,x,label\n" + numbered("s#,0,1,a\n", size // 4),
    "columns.csv": lambda size: "series,time,label," + numbered("x#,", size // 8) + "z\n" + "s,1,a,0\n",
    "lines.txt": lambda size: "\n" * size,
    "blanks.txt": lambda size: " " * size,
    "line.txt": lambda size: "a " * (size // 2),
    "words.txt": lambda size: numbered("w# ", size),
    "accents.txt": lambda size: "a" + "\u0301" * (size // 2),
    "tabs.txt": lambda size: "\t" * size + "\n",
    "classes.txt": lambda size: numbered("__label__l# t\n", size),
    "class.txt": lambda size: numbered("__label__l# ", size) + "text\n",
    "deep.json": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "array.json": lambda size: "[" + "1," * (size // 2) + "1]",
    "value.json": lambda size: json.dumps([{f"k{number}": "v" for number in range(size // 14)}]),
    "deep.jsonl": lambda size: '{"text": ' + '{"a": ' * (size // 7) + "1" + "}" * (size // 7) + "}\n",
    "keys.jsonl": lambda size: "{" + numbered('"k#": 1, ', size) + '"text": "a"}\n',
    "rows.jsonl": lambda size: numbered('{"text": "t", "label": "a", "k#": 1}\n', size),
    "number.jsonl": lambda size: '{"text": "t", "label": 1' + "0" * size + "}\n",
    "labels.jsonl": lambda size: '{"text": "t", "labels": [' + numbered('"l#", ', size) + '"z"]}\n',
    "tokens.jsonl": lambda size: json.dumps({"tokens": ["a"] * (size // 10), "tags": ["O"] * (size // 10)}) + "\n",
    "spans.jsonl": lambda size: spans(size, lambda number: [3 * number, 3 * number + 2, "X"]),
    "same.jsonl": lambda size: spans(size, lambda number: [0, 2, "X"]),
    "nested.jsonl": lambda size: spans(size, lambda number: [0, 3 * number + 2, f"X{number}"]),
    "regions.json": lambda size: annotated(
        size, REGION, '[{"data": {"text": TEXT}, "annotations": [{"result": [WORDS]}]}]'
    ),
    "flat.json": lambda size: annotated(
        size, FLAT, '[{"annotator": 1, "annotation_id": 1, "text": TEXT, "ner": [WORDS]}]'
    ),
    "tuple.json": lambda size: annotated(size, '[@, !, "X"]', '[[TEXT, {"entities": [WORDS]}]]'),
    "turks.json": lambda size: annotated(
        size, '{"label": ["X"], "points": [{"start": @, "end": !}]}', '{"content": TEXT, "annotation": [WORDS]}'
    ),
    "tasks.json": lambda size: "[" + numbered('{"data": {"text": "a#"}, "annotations": []}, ', size) + "{}]",
    "cats.json": lambda size: '[["a", {"cats": {' + numbered('"c#": 1, ', size) + '"z": 1}}]]',
    "split.json": lambda size: '{"columns": ["text", "label"], "data": [' + numbered('["a#", "b"], ', size) + "[]]}",
    "columns.json": lambda size: "{" + numbered('"c#": {"0": "a"}, ', size) + '"text": {"0": "a"}}',
    "index.json": lambda size: "{" + numbered('"#": {"text": "a", "label": "b"}, ', size) + '"x": {}}',
    "values.json": lambda size: "[" + numbered('["a#", "b"], ', size) + '["a", "b"]]',
    "intents.json": lambda size: '{"intents": [' + numbered('{"tag": "t#", "patterns": ["p"]}, ', size) + "{}]}",
    "patterns.json": lambda size: '{"intents": [{"tag": "t", "patterns": [' + numbered('"p#", ', size) + '"z"]}]}',
    "lists.json": lambda size: "{" + numbered('"k#": [{"text": "a"}], ', size) + '"z": [{"text": "b"}]}',
    "one.json": lambda size: '{"a":\n' * (size // 8) + "1" + "}" * (size // 8),
    "several.json": lambda size: '{"text":\n"a", "label": "b"}' * (size // 26),
    "twice.json": lambda size: "{\n" + '"text": "a", ' * (size // 13) + '"label": "b"}',
    "words.csv": lambda size: "sentence,word,tag\n1,w,O\n" + ",w,O\n" * (size // 5),
    "wide.csv": lambda size: "sentence,word,tag," + "," * 999 + "\n" + ("1,w,O," + "," * 999 + "\n") * (size // 1006),
    "cells.csv": lambda size: CELLS + numbered(CELL, size),
    "cell_deep.csv": lambda size: CELLS + '1,1,a,"' + "[" * size + '"\n' + CELL,
    "cell_open.csv": lambda size: CELLS + CELL + '1,1,"' + "a\n" * (size // 2),
    "ids.conll": lambda size: numbered("# id #\na O\nb O\n\n", size),
    "units.tmx": lambda size: xml(("<tu>" + TU.format("b") + "</tu>") * (size // 90)),
    "deep.tmx": lambda size: xml("<tu>" + TU.format("<hi>" * (size // 9) + "</hi>" * (size // 9)) + "</tu>"),
    "languages.tmx": lambda size: xml("<tu>" + numbered('<tuv xml:lang="l#"><seg>a</seg></tuv>', size) + "</tu>"),
    "messages.po": lambda size: numbered('msgid "a#"\nmsgstr "b"\n\n', size),
    "message.po": lambda size: 'msgid ""\n' + '"a"\n' * (size // 4) + 'msgstr "b"\n',
    "rows.vec": lambda size: f"{size // 14} 3\n" + numbered("w# 1 2 3\n", size),
    "width.vec": lambda size: "w " + "0.5 " * (size // 4) + "\n",
}
PACKED: dict[str, bytes] = {
    "ones.txt": b"a", "lines.txt": b"\n", "words.txt": b"a b c\n", "words.conll": b"a O\n\n", "rows.csv": b"a,b c\n",
    "rows.jsonl": b'{"text": "a", "label": "b"}\n', "rows.conllu": ROW.format("_", "_").encode() + b"\n",
}  # fmt: skip
"""Contents that are repeated in a compressed file, at most twice as long as the part that is read."""
NAMES = [*SHAPES, *(f"{name}.{suffix}" for name in PACKED for suffix in ("xz", "gz"))]


def arrange(choose: Random, case: Case, material: Material) -> None:
    """Arrange `ensue data` on a bomb of any size up to a megabyte."""
    put(case, choose.choice(NAMES), choose.randint(1, LARGEST))


def put(case: Case, name: str, size: int) -> None:
    """Write a bomb, and bound the time and memory of its reading."""
    path = case.folder / name
    if name in SHAPES:
        path.write_text(SHAPES[name](size), encoding="utf-8")
        size = path.stat().st_size
    else:
        stem, _, suffix = name.rpartition(".")
        content = PACKED[stem] * (size * 64 // len(PACKED[stem]))
        path.write_bytes(lzma.compress(content, preset=0) if suffix == "xz" else gzip.compress(content, 1))
        size = min(len(content), max(RATIO_BYTES, MAX_RATIO * path.stat().st_size))
    megabytes = max(1.0, size / LARGEST)
    case.arguments = ["data", name]
    case.cpu_seconds, case.peak_mib = int(SECONDS * megabytes), int(MIB * megabytes)
