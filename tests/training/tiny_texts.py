"""Tiny labeled texts of random words, whose labels are learned in a fraction of a second, and their recipes."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ensue.recipe import validate_recipe
from ensue.runs.pictures import draw_curve
from ensue.runs.reporter import Facts
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.contract.data_set import draw_confusion
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.text.schemes import Scheme, Span, encode
from layer_tables import layer_tables
from training.tiny import Recorder, run_tiny

PARTS_OF_SPEECH = {
    "DET": ["the", "a", "some", "this"], "ADJ": ["old", "red", "quiet", "small", "warm"],
    "NOUN": ["house", "river", "bird", "train", "letter", "garden"],
    "VERB": ["sees", "finds", "likes", "leaves", "paints"], "ADV": ["often", "never", "slowly"], "PROPN": [],
}  # fmt: skip
NAMES = {
    "PER": (["Anna", "Boris", "Carla"], ["Maria", "Pavel"], ["Novak", "Ortiz", "Quist"]),
    "LOC": (["Lima", "Oslo", "Quito"], ["Bay", "Hill"], ["North", "South"]),
}
TOPICS = {
    "cooking": ["salt", "oven", "butter", "onion", "recipe"],
    "music": ["piano", "choir", "rhythm", "violin", "chord"],
    "sports": ["goal", "team", "race", "coach", "medal"],
}
FILLERS = ["the", "and", "we", "had", "a", "very", "good", "today", "again", "with"]

ENCODERS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "size": 2, "d_model": 8},
    "elman": {"kind": "elman", "d_model": 8},
    "lstm": {"kind": "lstm", "d_model": 8},
    "gru": {"kind": "gru", "d_model": 8},
    "transformer": {"kind": "transformer", "d_model": 8, "num_heads": 2, "positions": "sinusoidal"},
    "none": {"kind": "none"},
}
TRAIN: dict[str, Any] = {
    "steps": 12, "batch_size": 16, "batch_tokens": 80, "learning_rate": 0.05, "validations": 1, "precision": "float32",
}  # fmt: skip
FEATURES: dict[str, Any] = {"d_words": 8, "min_count": 1, "dropout_words": 0.0}


class Tagged(NamedTuple):
    """Words, their parts of speech, and the names among them as spans."""

    words: list[str]
    pos: list[str]
    spans: list[Span]

    def labels(self, scheme: Scheme = "bio") -> list[str]:
        return encode(self.spans, len(self.words), scheme)


def sentences(count: int, *, seed: int = 0) -> list[Tagged]:
    """Return sentences of 1 to 18 words; a word determines its part of speech and its place in a name."""
    choose = random.Random(seed)
    return [_sentence(choose) for _ in range(count)]


def _sentence(choose: random.Random) -> Tagged:
    sentence = Tagged([], [], [])
    for _ in range(choose.randint(1, 6)):
        pos = choose.choice([*PARTS_OF_SPEECH, "PROPN", "PROPN"])
        if pos != "PROPN":
            sentence.words.append(choose.choice(PARTS_OF_SPEECH[pos]))
            sentence.pos.append(pos)
            continue
        kind, start = choose.choice(list(NAMES)), len(sentence.words)
        sentence.words.extend(choose.choice(part) for part in NAMES[kind][: choose.randint(1, 3)])
        sentence.pos.extend(["PROPN"] * (len(sentence.words) - start))
        sentence.spans.append(Span(kind, start, len(sentence.words)))
    return sentence


def columns(tagged: Sequence[Tagged], scheme: Scheme = "bio", separator: str = " ") -> str:
    """Return columns of word, part of speech and label."""
    rows = (zip(s.words, s.pos, s.labels(scheme), strict=True) for s in tagged)
    return "\n".join("".join(separator.join(row) + "\n" for row in sentence) for sentence in rows)


def conllu(tagged: Sequence[Tagged]) -> str:
    """Return CoNLL-U with features, names in MISC, comments, and multiword tokens of the first two words of some."""
    parts = []
    for number, sentence in enumerate(tagged):
        rows = [f"# sent_id = {number}"]
        for place, (word, pos, label) in enumerate(zip(sentence.words, sentence.pos, sentence.labels(), strict=True)):
            if place == 0 and number % 3 == 0 and len(sentence.words) > 1:
                rows.append("\t".join(["1-2", word + sentence.words[1], *"________"]))
            feats = f"Length={'Short' if len(word) < 5 else 'Long'}|Kind={pos.title()}"
            misc = "_" if label == "O" else f"NER={label}"
            rows.append("\t".join([str(place + 1), word, word.lower(), pos, pos[:2], feats, "_", "_", "_", misc]))
        parts.append("\n".join(rows) + "\n\n")
    return "".join(parts)


def json_tokens(tagged: Sequence[Tagged], scheme: Scheme = "bio", key: str = "labels") -> str:
    return "".join(json.dumps({"tokens": s.words, key: s.labels(scheme), "id": 7}) + "\n" for s in tagged)


def json_spans(tagged: Sequence[Tagged]) -> str:
    """Return JSON lines of texts and spans of names."""
    lines = []
    for sentence in tagged:
        starts = [sum(len(word) + 1 for word in sentence.words[:place]) for place in range(len(sentence.words))]
        spans = [
            {"start": starts[s.start], "end": starts[s.end - 1] + len(sentence.words[s.end - 1]), "label": s.label}
            for s in sentence.spans
        ]
        lines.append(json.dumps({"text": " ".join(sentence.words), "spans": spans}) + "\n")
    return "".join(lines)


class Topical(NamedTuple):
    """A text and its topics."""

    text: str
    labels: list[str]


def documents(count: int, *, seed: int = 0, most_labels: int = 1, longest: int = 6) -> list[Topical]:
    """Return texts of 1 to `most_labels` topics, which their words determine."""
    choose = random.Random(seed)
    texts = []
    for _ in range(count):
        labels = sorted(choose.sample(list(TOPICS), choose.randint(1, most_labels)))
        words = [choose.choice(TOPICS[label]) for label in labels for _ in range(3)]
        words += [choose.choice(FILLERS) for _ in range(choose.randint(1, longest))]
        choose.shuffle(words)
        texts.append(Topical(" ".join(words), labels))
    return texts


def tsv(texts: Sequence[Topical]) -> str:
    return "label\ttext\n" + "".join(f"{d.labels[0]}\t{d.text}\n" for d in texts)


def quoted_csv(texts: Sequence[Topical], delimiter: str = ",") -> str:
    """Return a CSV table in which some texts have quotes, delimiters and line breaks."""
    rows = []
    for number, document in enumerate(texts):
        text = document.text.replace(" ", f'{delimiter}\n"" ', 1) if number % 2 else document.text
        rows.append(delimiter.join([str(number), f'"{text}"', document.labels[0]]) + "\r\n")
    return delimiter.join(["id", "text", "label"]) + "\r\n" + "".join(rows)


def json_lines(texts: Sequence[Topical]) -> str:
    """Return JSON lines; `label` is a list if some text has several labels."""
    single = all(len(d.labels) == 1 for d in texts)
    return "".join(
        json.dumps({"id": n, "text": d.text, "label": d.labels[0] if single else d.labels}) + "\n"
        for n, d in enumerate(texts)
    )


def fasttext(texts: Sequence[Topical]) -> str:
    return "".join(" ".join([*(f"__label__{label}" for label in d.labels), d.text]) + "\n" for d in texts)


def first_word(texts: Sequence[Topical]) -> str:
    return "".join(f"{d.labels[0]} {d.text}\n" for d in texts)


def folders(texts: Sequence[Topical], root: Path) -> Path:
    for number, document in enumerate(texts):
        folder = root / document.labels[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.txt").write_text(document.text)
    return root


def class_files(texts: Sequence[Topical], root: Path) -> Path:
    """Write a file for each topic, with a text on each line."""
    root.mkdir(parents=True, exist_ok=True)
    for label in {document.labels[0] for document in texts}:
        lines = [f"{document.text}\n" for document in texts if document.labels[0] == label]
        (root / f"{label}.txt").write_text("".join(lines))
    return root


def pairs(count: int, *, seed: int = 0) -> str:
    """Return a table of two texts, and whether they have the same topic."""
    choose = random.Random(seed)
    rows = ["sentence1\tsentence2\tlabel\n"]
    for _ in range(count):
        topics = [choose.choice(list(TOPICS)) for _ in range(2)]
        texts = [" ".join(choose.sample(TOPICS[topic] + FILLERS[:3], 4)) for topic in topics]
        rows.append("\t".join([*texts, "same" if topics[0] == topics[1] else "other"]) + "\n")
    return "".join(rows)


def tagging(train: Path, *, encoder: str | dict[str, Any] = "lstm", **changes: Any) -> LabelingRecipe:
    """Return a tagger's recipe; `data`, `features` and `head` change their tables, other keywords `[train]`."""
    recipe = validate_recipe(_document("labeling", train, encoder, changes), where="tiny")
    assert isinstance(recipe, LabelingRecipe)
    return recipe


def classifying(train: Path, *, encoder: str | dict[str, Any] = "lstm", **changes: Any) -> ClassificationRecipe:
    """Return a classifier's recipe; keywords are those of `tagging`."""
    changes = {"batch_tokens": 200} | changes
    recipe = validate_recipe(_document("classification", train, encoder, changes), where="tiny")
    assert isinstance(recipe, ClassificationRecipe)
    return recipe


def _document(task: str, train: Path, encoder: str | dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    data, features, head = (changes.pop(table, {}) for table in ("data", "features", "head"))
    table = TRAIN | changes
    if {"epochs", "tokens", "seconds"} & changes.keys():
        del table["steps"]
    return {
        "task": task, "data": {"train": str(train), "valid_fraction": 0.2} | data, "features": FEATURES | features,
        **layer_tables(ENCODERS[encoder] if isinstance(encoder, str) else encoder), "head": head, "train": table,
    }  # fmt: skip


PICTURES = {"training.run.draw_curve": draw_curve, "tasks.contract.data_set.draw_confusion": draw_confusion}


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Turn off the pictures of runs, which take most of the time of a tiny run."""
    for name in PICTURES:
        patch.setattr(f"ensue.{name}", lambda *args, **kwargs: None)


def with_few_evaluations(patch: pytest.MonkeyPatch) -> None:
    """Let linear models try one strength of regularization, and linear taggers stop early."""
    patch.setattr("ensue.models.ngram_bag.INVERSE_STRENGTHS", (10.0,))
    patch.setattr("ensue.tasks.labeling.task.INVERSE_STRENGTHS", (10.0,))
    for name in ("TOLERANCE", "FINAL_TOLERANCE"):
        patch.setattr(f"ensue.tasks.labeling.task.{name}", 1e-3)


def with_pictures(patch: pytest.MonkeyPatch) -> None:
    for name, draw in PICTURES.items():
        patch.setattr(f"ensue.{name}", draw)


def labelers(folder: Path) -> Path:
    """Write data and train the runs names, upos, topics, several and pairs in the folder, which is returned."""
    data = {
        "names.txt": columns(sentences(120)), "upos.conllu": conllu(sentences(120)), "topics.tsv": tsv(documents(120)),
        "several.txt": fasttext(documents(120, most_labels=3)), "pairs.tsv": pairs(60),
    }  # fmt: skip
    for name, content in data.items():
        (folder / name).write_text(content)
    recipes = [
        tagging(folder / "names.txt", head={"kind": "crf"}, steps=30),
        tagging(folder / "upos.conllu", encoder="none", steps=15),
        classifying(folder / "topics.tsv"),
        classifying(folder / "several.txt", head={"pooling": ["max"]}),
        classifying(folder / "pairs.tsv", steps=2),
    ]
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        for file, recipe in zip(data, recipes, strict=True):
            run_tiny(recipe, folder / Path(file).stem)
    return folder


class Listener(Recorder):
    """Records also the facts before the first step, and the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: Facts | None = None
        self.notes: list[str] = []

    def started(self, facts: Facts) -> None:
        self.facts = facts

    def noted(self, note: str) -> None:
        self.notes.append(note)


MEANINGS = {"noun": (1.0, 0.0, 0.5), "verb": (0.0, 1.0, -0.5)}


def vector_file(folder: Path) -> tuple[Path, Path]:
    """Write labeled sentences with words 0 to 9 of each label, and vectors of words 0 to 19 that encode the label."""
    choose = random.Random(0)
    words = {f"{kind}{number}": kind for kind in MEANINGS for number in range(20)}
    lines = []
    for _ in range(50):
        chosen = choose.choices([word for word in words if int(word[4:]) < 10], k=choose.randint(1, 5))
        lines.append("".join(f"{word.title()} {words[word]}\n" for word in chosen))
    (folder / "kinds.txt").write_text("\n".join(lines))
    rows = (" ".join([word, *map(str, MEANINGS[kind])]) + "\n" for word, kind in words.items())
    (folder / "vectors.txt").write_text("".join(rows))
    return folder / "kinds.txt", folder / "vectors.txt"


TREEBANK = """# newpar
1\tDogs\tdog\tNOUN\t_\t_\t_\t_\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_
3\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

1\tGo\tgo\tVERB\t_\t_\t_\t_\t_\tSpaceAfter=No
2\t!\t!\tPUNCT\t_\t_\t_\t_\t_\t_

"""


def cutting(train: Path) -> Any:
    return validate_recipe(
        {
            "task": "cutting", "data": {"train": str(train), "valid": str(train)}, "features": FEATURES,
            "encoder": {"kind": "lstm", "d_model": 16}, "train": TRAIN | {"steps": 60, "batch_tokens": 400},
        },
        where="x",
    )  # fmt: skip
