"""Cases of data: every format, damaged, in any encoding and compression, as file, folder, glob, pipe or nothing."""

import json
from functools import partial
from pathlib import Path
from random import Random

from ensue.data.examples import DocumentSource, PairSource
from ensue.data.examples.formats import write_document
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import TextSource
from ensue.data.vectors import read_vectors
from ensue.extensions.word_vectors.pipeline import read_questions
from fuzz import odd
from fuzz.case import Case, Outcome
from fuzz.damage import damaged
from fuzz.material import CLASSIFIERS, LANGUAGE_MODELS, MASKED, SEQUENCES, TAGGERS, TINY, Material
from fuzz.places import placed, put
from fuzz.samples import gold, sample
from training.tiny_texts import documents


def arrange(choose: Random, case: Case, material: Material) -> None:
    several = [arrange_data_command, arrange_data_command, arrange_round_trip, _asked, _asked, _asked]
    choose.choice([*several, _translated, _paired, _with_vectors, _learned, _mixed])(choose, case, material)


def arrange_data_command(choose: Random, case: Case, material: Material) -> None:
    """Arrange `ensue data`."""
    place, options = placed(choose, case, sample(choose))
    for option in ("--words", "--labels"):
        if choose.random() < 0.15:
            options += [
                option,
                choose.choice([odd.string(choose), "1", "2", "last", "form", "text", "label", "tokens"]),
            ]
    case.arguments = ["data", place, *options, *_format(choose)]


def _translated(choose: Random, case: Case, material: Material) -> None:
    """Arrange a reading of pairs, by `ensue data` or the library."""
    drawn_sample = sample(choose, "translations" if choose.random() < 0.9 else None)
    location, options = placed(choose, case, drawn_sample)
    if choose.random() < 0.3:
        other_file = case.folder / "other"
        put(other_file, damaged(choose, sample(choose, "translations").content.encode(), max_changes=2))
        location = choose.choice([f"{location},{other_file}", f"{other_file},{location}"])
    for option in ("--sources", "--targets", "--against"):
        if choose.random() < 0.15:
            options += [option, choose.choice([odd.string(choose), "1", "2,1", "source", "summary", "en", location])]
    if choose.random() < 0.5:
        case.arguments = ["data", location, *options, *_format(choose)]
    else:
        case.action = partial(_pairs_and_sources, location)


def _pairs_and_sources(place: str) -> None:
    for pair in PairSource(place):
        assert pair.line > 0
        assert any(map(str.strip, pair.sources))
        assert all(map(str.strip, pair.targets))
    assert not any(pair.targets for pair in PairSource(place, is_labeled=False))


def _asked(choose: Random, case: Case, material: Material) -> None:
    """Arrange a command of a model of the same kind, or sometimes of another."""
    kind = choose.choice(["sentences", "sentences", "texts", "texts", "text", "translations"])
    tasks = {
        "sentences": [TAGGERS],
        "texts": [CLASSIFIERS],
        "text": [LANGUAGE_MODELS, TAGGERS, CLASSIFIERS, SEQUENCES, MASKED],
        "translations": [SEQUENCES],
    }[kind]
    run = material.run(choose, *([] if choose.random() < 0.05 else tasks))
    place, options = placed(choose, case, sample(choose, kind))
    if run.task == LANGUAGE_MODELS:
        command = choose.choice(["evaluate", "score"])
    else:
        more = {SEQUENCES: ["score"], MASKED: ["score", "embed"]}.get(run.task, [])
        command = choose.choice(["evaluate", "predict", "predict", *more])
        options += _format(choose)
        if command == "predict" and choose.random() < 0.1:
            options += ["--splitter", choose.choice(["whitespace", "simple", "treebank", "characters", "x"])]
    if choose.random() < 0.3:
        options += ["--json"]
        case.checks.append(is_json)
    case.arguments = [command, str(run.path), place, *options]


def arrange_round_trip(choose: Random, case: Case, material: Material) -> None:
    """Arrange a round trip by the library: the data are read and written back unchanged."""
    drawn_sample = sample(choose, choose.choice(["sentences", "texts", "vectors", "questions"]))
    location, _ = placed(choose, case, drawn_sample, plain=True)
    reads = {
        "sentences": _sentences_and_back, "texts": _documents_and_back, "vectors": _vectors, "questions": _questions,
    }[drawn_sample.kind]  # fmt: skip
    case.action = partial(reads, location)


def _sentences_and_back(place: str) -> None:
    source = SentenceSource(place)
    output = "".join([source.format.write(sentence, source.format.labels(sentence)) for sentence in source])
    if source.format.name != "text":
        assert output + source.rest == "".join(TextSource(source.location, encoding=source.files.encoding).chunks()), (
            f"{source.format.name} is not written as it was"
        )


def _documents_and_back(place: str) -> None:
    source = DocumentSource(place)
    for document in source:
        output = write_document(document, source.layout, document.labels, [0.5] * len(document.labels))
        assert all(word in output for text in document.texts for word in text.split() if word.isalpha()), output


def _vectors(place: str) -> None:
    words, matrix = read_vectors(place)
    assert len(words) == len(matrix)


def _questions(place: str) -> None:
    assert all(len(question.texts) in (2, 4) for question in read_questions(place))


def _paired(choose: Random, case: Case, material: Material) -> None:
    """Arrange `--minimal-pairs`."""
    drawn_sample = sample(choose, "pairs")
    location, options = placed(choose, case, drawn_sample)
    if drawn_sample.suffix == ".text" and choose.random() < 0.9:
        beside = case.folder / (
            Path(location).name.removesuffix(".gz").removesuffix(".xz").removesuffix(".text") + ".gold"
        )
        if not beside.exists():
            put(beside, damaged(choose, gold(choose).encode(), max_changes=2))
    if choose.random() < 0.3:
        options += ["--json"]
        case.checks.append(is_json)
    run = material.run(choose, LANGUAGE_MODELS)
    case.arguments = ["evaluate", str(run.path), "--minimal-pairs", location, *options]


def _with_vectors(choose: Random, case: Case, material: Material) -> None:
    """Arrange a command with vectors, of a model with or without vectors."""
    place, _ = placed(choose, case, sample(choose, "vectors"))
    run = (
        str(material.folder / "wide") if choose.random() < 0.8 else str(material.run(choose, TAGGERS, CLASSIFIERS).path)
    )
    case.arguments = ["predict", run, "-", "--vectors", place]
    case.stdin = b"Anna sees rain over Lima\n\nthe cat Novak\n"


def _learned(choose: Random, case: Case, material: Material) -> None:
    """Arrange a training of a few steps."""
    kind = choose.choice(["sentences", "texts", "text", "translations"])
    recipe = {
        "sentences": "tag-lstm", "texts": "classify-lstm", "text": "char-lstm", "translations": "translate-lstm",
    }[kind]  # fmt: skip
    place, options = placed(choose, case, sample(choose, kind))
    sizes = ["encoder.d_model=4", "train.steps=1"] + (
        ["tokens.d_embedding=4"] if kind in ("text", "translations") else ["features.d_words=4"]
    )
    sizes += ["decoder.d_model=4"] if kind == "translations" else []
    if "--encoding" in options:
        sizes.append(f"data.encoding={json.dumps(options[options.index('--encoding') + 1])}")
    case.arguments = ["train", recipe, "--train", place, "--out", "out", *TINY]
    for size in sizes:
        case.arguments += ["--set", size]
    if choose.random() < 0.3:
        case.arguments += [
            "--test" if choose.random() < 0.5 else "--valid",
            placed(choose, case, sample(choose, kind))[0],
        ]
    case.writes_progress = True


def _mixed(choose: Random, case: Case, material: Material) -> None:
    """Arrange several files with different orders of columns, all of whose texts must be in the output."""
    folder = case.folder / "mixed"
    folder.mkdir()
    texts = []
    for number in range(choose.randint(1, 3)):
        drawn_documents = documents(choose.randint(1, 8), seed=choose.randint(0, 999))
        texts += [document.text for document in drawn_documents]
        names = choose.sample(["text", "label", "id"], choose.randint(1, 3))
        names = names if "text" in names else [*names, "text"]
        rows = [{"text": document.text, "label": document.labels[0], "id": "7"} for document in drawn_documents]
        match choose.choice(["tsv", "tsv", "csv", "jsonl"]):
            case "jsonl":
                lines = [json.dumps({name: row[name] for name in names}) for row in rows]
                path = folder / f"{number}.jsonl"
            case suffix:
                between = "\t" if suffix == "tsv" else ","
                lines = [between.join(names)] + [between.join(row[name] for name in names) for row in rows]
                path = folder / f"{number}.{suffix}"
        path.write_text("\n".join(lines) + choose.choice(["\n", "", "\n\n"]))
    case.arguments = [
        "predict",
        str(material.folder / choose.choice(["topics", "bag"])),
        choose.choice(["mixed", "mixed/*"]),
    ]
    if choose.random() < 0.3:
        case.arguments.append("--json")
    case.checks.append(partial(_has_all, texts))


def _has_all(texts: list[str], outcome: Outcome) -> str | None:
    position, output = 0, outcome.out.decode()
    for text in texts:
        position = output.find(text, position)
        if position < 0:
            return f"a text is lost: {text}"
        position += len(text)
    return None


def is_json(outcome: Outcome) -> str | None:
    """Return a fault unless each line of stdout is standard JSON."""
    for line in outcome.out.decode(errors="replace").split("\n"):
        try:
            if line:
                json.loads(line, parse_constant=_refused)
        except ValueError as error:
            return f"no JSON: {error}: {line[:80]}"
    return None


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _format(choose: Random) -> list[str]:
    return ["--format", choose.choice(odd.FORMATS)] if choose.random() < 0.2 else []
