"""Small versions of the data and the trained runs that the pages of the documentation name."""

import io
import json
import math
import struct
import wave
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensue.recipe import BUDGETS, Recipe, validate_recipe
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.text.schemes import Span, encode

TEXT = "The sea was calm. Nobody spoke, and the sea was calm again; so it began.\n"
PAIR = '{"sentence_good": "The sea was calm.", "sentence_bad": "The sea were calm."}\n'
LINES = {
    "book": 60, "shakespeare": 60, "chapter": 80, "diary": 10, "notes": 10, "letters": 10, "new": 10, "old": 10,
    "letters/first": 60,
}  # fmt: skip

PEOPLE, PLACES = ("Anna/NNP Novak/NNP", "Boris/NNP", "Carla/NNP Quist/NNP"), ("Lima/NNP", "Oslo/NNP Bay/NNP")
NUMBER = dict.fromkeys(("NNP", "NN", "VBZ"), "Number=Sing")
MOODS = {"good": ("calm", "honest", "lovely"), "bad": ("dull", "noisy", "endless")}
THINGS = ("film", "book", "play", "song")
TOPICS = {
    "the sea": ["sailing"], "a choir": ["music"], "a train": ["travel"], "a choir at sea": ["music", "sailing"],
    "a train to the sea": ["sailing", "travel"],
}  # fmt: skip

NOUNS = {"The sea": "Das Meer", "The boat": "Das Boot", "The road": "Die Straße", "The choir": "Der Chor"}
VERBS = {
    "is calm.": "ist ruhig.", "is old.": "ist alt.", "was here.": "war hier.", "is not far.": "ist nicht weit.",
    "is waiting.": "wartet.", "sleeps.": "schläft.",
}  # fmt: skip

RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "run": ("char-lstm", "book.txt", {}), "longer": ("char-lstm", "book.txt", {}),
    "mood": ("classify-lstm", "reviews.tsv", {}), "pos": ("tag-lstm", "train.conllu", {}),
    "names": ("tag-lstm-crf", "names.txt", {}),
    "glove": ("tag-lstm-crf", "train.conllu", {"features.vectors": "glove.txt"}),
    "topics": ("classify-bag", "topics.jsonl", {}), "same": ("classify-lstm", "pairs.tsv", {}),
    "ende": ("translate-transformer", "train.en,train.de", {}),
    "vectors": ("vectors-cbow", "book.txt", {"tokenizer.min_count": 1}),
    "masked": ("bert-tiny", "book.txt", {"tokenizer.max_size": 100}), "elmo": ("elmo-small", "book.txt", {}),
    "contexts": ("context2vec", "book.txt", {"tokenizer.min_count": 1}),
    "senses": ("vectors-skipgram", "book.txt", {"senses.from": "vectors", "senses.words": 5}),
    "spoken": ("classify-frames", "digits", {}), "motion": ("tag-frames", "sensors.csv", {}),
    "next": ("predict-frames", "digits", {}), "vrnn": ("vrnn", "digits", {}),
    "reader": ("read-glimpses", "strips.npz", {}), "painter": ("draw", "images", {"canvas.glimpses": 3}),
    "captioner": ("caption-lstm", "captions.csv", {}),
    "minilm": ("sentence-vectors", "pairs.tsv", {"tokenizer.max_size": 100}),
    "gpt2": ("bpe-transformer", "book.txt", {"tokenizer.max_size": 300}),
    "ende-2": ("translate-transformer", "train.en,train.de", {"train.seed": 1}),
    "cutter": ("cut-lstm", "train.conllu", {}), "tagger": ("tag-columns", "train.conllu", {}),
    "nested": ("tag-nested", "spans.jsonl", {}),
    "tuned": ("minilm/recipe.toml", "pairs.tsv", {"task": "sentence-vectors", "encoder.from": "minilm"}),
}  # fmt: skip
"""Recipe, training data and settings of each run. A run that a setting names is trained first.

`minilm` stands for an imported model; neither has a masked head.
"""


class Tagged(NamedTuple):
    """A sentence: words, their parts of speech, and the spans of names."""

    words: list[str]
    pos: list[str]
    spans: list[Span]


def write_data(folder: Path) -> None:
    """Write all data files under the names that the pages use."""
    files = {f"{name}.txt": TEXT * lines for name, lines in LINES.items()}
    files |= {
        "masks.txt": "The [MASK] was calm.\n",
        "pairs.jsonl": PAIR,
        "similar.tsv": "sea\tcalm\t7.5\nnobody\tspoke\t6\nsea\tnobody\t1\n",
        "reviews.parquet": "PAR1",  # must exist, but is not read
        "story.txt": TEXT,
        "terms.tsv": "boat\tBoot\n\t!Chor\n",
        "texts/dogs.txt": "A dog runs.\nA dog runs.\nThe boat is old.\n",
        "glove.txt": "anna 0.1 0.2\nboat 0.3 -0.4\nlima 0.5 0\nsees -1 1\n",
    }
    files |= labeled_sentences() | labeled_texts() | translations() | judged_texts() | word_uses()
    files |= {"sensors.csv": motions(), "captions.csv": captions()}
    for name, content in (
        {name: text.encode() for name, text in files.items()} | recordings() | images() | strips()
    ).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def motions() -> str:
    """Return nine series of four frames, with two features and a label for each frame."""
    labels = ("rest", "walk")
    rows = [f"{series},{time},{time % 2},{series},{labels[time % 2]}" for series, time in product(range(9), range(4))]
    return "\n".join(["series,time,x,y,label", *rows, ""])


def strips() -> dict[str, bytes]:
    """Return 12 images with labels of one or two words."""
    file = io.BytesIO()
    np.savez(file, frames=np.eye(16, 40, dtype=np.float32)[None].repeat(12, 0), labels=["one", "two one"] * 6)
    return {"strips.npz": file.getvalue()}


def recordings() -> dict[str, bytes]:
    """Return short tones in two folders, one for each pitch."""
    files = {}
    for label, pitch in (("zero", 200), ("one", 900)):
        for number in range(9):
            samples = [int(9000 * math.sin(pitch * n / 1273 + number)) for n in range(1200)]
            file = io.BytesIO()
            with wave.open(file, "wb") as out:
                out.setparams((1, 2, 8000, len(samples), "NONE", ""))
                out.writeframes(struct.pack(f"<{len(samples)}h", *samples))
            files[f"digits/{label}/{number}.wav"] = file.getvalue()
    return files


def images() -> dict[str, bytes]:
    """Return images of one size in two folders."""
    files = {}
    for place, count in (("images", 9), ("others", 3)):
        for number in range(count):
            file = io.BytesIO()
            np.save(file, np.eye(7, 6, k=number - 4))
            files[f"{place}/{number}.npy"] = file.getvalue()
    return files


def captions() -> str:
    """Return a table of images with their captions."""
    rows = (f"images/{number}.npy,a line {'above' if number > 4 else 'below'}" for number in range(9))
    return "\n".join(["path,caption", *rows, ""])


def judged_texts() -> dict[str, str]:
    """Return pairs of texts with their similarity."""
    pairs = "The sea is calm.\tThe boat is old.\t1\nThe sea is calm.\tThe sea was calm.\t4\n"
    return {"sts-dev.tsv": pairs, "sts-test.tsv": pairs}


def word_uses() -> dict[str, str]:
    """Return uses of a word with their senses, and pairs of uses."""
    uses, senses = "1\tthe boat was here\n2\tthe old boat\n", "0\n1\n"
    files = {"CoarseWSD-20/boat/classes_map.txt": '{"0": "boat_sea", "1": "boat_toy"}'}
    for part in ("train", "test"):
        files |= {f"CoarseWSD-20/boat/{part}.data.txt": uses, f"CoarseWSD-20/boat/{part}.gold.txt": senses}
    for part in ("dev", "test"):
        pairs = "boat\tN\t1-2\tthe boat was here\tthe old boat\nboat\tN\t1-1\tthe boat\tthe boat\n"
        files |= {f"{part}.data.txt": pairs, f"{part}.gold.txt": "F\nT\n"}
    return files


def labeled_sentences() -> dict[str, str]:
    tagged = list(sentences())
    nested = json.dumps({"text": "Bank of Lima grew", "spans": [[0, 12, "ORG"], [8, 12, "LOC"]]}) + "\n"
    parts = {"train": tagged, "dev": tagged[::3], "test": tagged[1::3]}
    return {
        "names.txt": "\n".join(map(columns, tagged)), "test.txt": "\n".join(map(columns, parts["test"])),
        "valid.txt": "\n".join(map(columns, parts["dev"])), "new.txt": "Anna Novak sees Lima.\n",
        "organizations.txt": "Lima NNP B-ORG\nBay NNP I-ORG\ngrew VBD O\n" * 2, "spans.jsonl": nested * 20,
        "dev.jsonl": nested, "new.jsonl": '{"text": "Bank of Oslo grew"}\n',
    } | {f"{name}.conllu": "".join(map(conllu, part)) for name, part in parts.items()}  # fmt: skip


def sentences() -> Iterator[Tagged]:
    for person, place in product(PEOPLE, PLACES):
        yield tagged((person, "PER"), ("sees/VBZ", ""), (place, "LOC"), ("./.", ""))
    for place in PLACES:
        yield tagged(("The/DT old/JJ boat/NN leaves/VBZ", ""), (place, "LOC"), ("./.", ""))
    for person in PEOPLE:
        yield tagged((person, "PER"), ("waits/VBZ ./.", ""))


def tagged(*parts: tuple[str, str]) -> Tagged:
    """Build a sentence from parts: tokens such as `old/JJ`, and the class if the part is a name, else ""."""
    sentence = Tagged([], [], [])
    for text, kind in parts:
        start = len(sentence.words)
        for word, pos in (token.split("/") for token in text.split()):
            sentence.words.append(word)
            sentence.pos.append(pos)
        sentence.spans.extend([Span(kind, start, len(sentence.words))] if kind else [])
    return sentence


def columns(sentence: Tagged) -> str:
    rows = zip(sentence.words, sentence.pos, encode(sentence.spans, len(sentence.words), "bio"), strict=True)
    return "".join(" ".join(row) + "\n" for row in rows)


def conllu(sentence: Tagged) -> str:
    rows = enumerate(zip(sentence.words, sentence.pos, strict=True), start=1)
    columns = ([str(id), word, word.lower(), pos, pos, NUMBER.get(pos, "_"), *"____"] for id, (word, pos) in rows)
    return "".join("\t".join(row) + "\n" for row in columns) + "\n"


def labeled_texts() -> dict[str, str]:
    moods = [(mood, f"A {word} {thing}.") for mood, words in MOODS.items() for word, thing in product(words, THINGS)]
    topics = [json.dumps({"text": f"About {what}.", "labels": labels}) for what, labels in TOPICS.items()]
    export = [
        {"data": {"text": text}, "annotations": [{"result": [{"type": "choices", "value": {"choices": [mood]}}]}]}
        for mood, text in moods
    ]
    pairs = [(first, second, "same" if a == b else "other") for a, first in moods[::4] for b, second in moods[1::4]]
    later = "mood\ttext\n" + "".join(
        f"mixed\tPartly {word}, a {thing}.\n" for word, thing in product(["so", "odd"], THINGS)
    )
    return {
        "may.tsv": later + "".join(f"{mood}\t{text}\n" for mood, text in moods[1::3]),
        "june.tsv": later + "".join(f"{mood}\t{text}\n" for mood, text in moods[2::3]),
        "june.csv": "comment,verdict,text\n" + "".join(f"{text},{mood},a note\n" for mood, text in moods[2::3]),
        "reviews.tsv": "mood\ttext\n" + "".join(f"{mood}\t{text}\n" for mood, text in moods),
        "new.tsv": "text\n" + "".join(f"{text}\n" for _, text in moods[::5]),
        "valid.tsv": "mood\ttext\n" + "".join(f"{mood}\t{text}\n" for mood, text in moods[::4]),
        "comments.csv": "text,toxic,insult,spam\n" + "Bad words.,1,1,0\nBuy this.,0,0,1\nA calm day.,0,0,0\n" * 9,
        "moods.txt": "".join(f"__label__{mood} {text}\n" for mood, text in moods),
        "export.json": json.dumps(export),
        "topics.jsonl": "".join(f"{line}\n" for line in topics * 6),
        "pairs.tsv": "sentence1\tsentence2\tlabel\n" + "".join("\t".join(pair) + "\n" for pair in pairs),
    }


def translations() -> dict[str, str]:
    """Return aligned files; some training pairs are copies, have a second target, or are not translations."""
    train = [(f"{noun} {verb}", f"{NOUNS[noun]} {VERBS[verb]}") for noun, verb in product(NOUNS, VERBS)]
    train += [
        ("Lima", "Lima"),
        ("The sea is calm.", "Ruhig ist das Meer."),
        ("The old boat is not here tonight.", "@@"),
    ]
    test = [train[0], ("The sea is not calm.", "Das Meer ist nicht ruhig.")]
    return {
        f"{part}.{language}": "".join(f"{pair[side]}\n" for pair in pairs)
        for part, pairs in (("train", train), ("dev", train[::5]), ("test", test))
        for side, language in enumerate(("en", "de"))
    }


def tiny(recipe: Recipe) -> Recipe:
    """Return the recipe with tiny sizes and at most two steps."""
    document = recipe.model_dump(exclude_none=True)
    sizes = {
        "encoder": {"d_model": 16, "num_layers": 1},
        "tokens": {"d_embedding": 8},
        "features": {"d_words": 8, "min_count": 1},
        "head": {"ngram_buckets": 256},
    }
    if recipe.task == "word-vectors":
        sizes = {"vectors": {"d_words": 8, "ngram_buckets": 64}}
    if recipe.task == "drawing":
        sizes["decoder"] = {"d_model": 16}
    if recipe.task == "sequence-to-sequence":
        layers = {"d_model": 16, "num_layers": 1, "d_feedforward": 16}
        sizes |= {"encoder": layers, "decoder": layers, "tokens": {"d_embedding": 16}, "search": {"max_tokens": 8}}
    for name, small in sizes.items():
        table = document.get(name, {})
        table |= {key: size for key, size in small.items() if key in table}
    steps = 1 if document.get("head", {}).get("solver") == "lbfgs" else 2
    train = {"steps": steps, "validations": 1, "batch_size": 4, "precision": "float32"}
    if isinstance(recipe, LanguageModelingRecipe):
        train["sample_tokens"] = 8
    document["train"] = {key: value for key, value in document["train"].items() if key not in BUDGETS} | train
    return validate_recipe(document, where="docs")
