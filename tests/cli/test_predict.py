"""Taggers and classifiers on the command line: predictions for files and pipes in every format, and scores."""

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import ensue as package
from command_fixtures import Ensue
from ensue.cli.options import with_tagger
from ensue.nn.layer import Recurrent
from forgetting import forget_notices
from kept_runs.make import unpacked
from training.tiny import seal
from training.tiny_texts import columns, conllu, documents, json_lines, quoted_csv, sentences, tsv

pytestmark = pytest.mark.usefixtures("in_tmp_path")


def tags(run: Path, texts: list[list[str]]) -> list[list[str]]:
    return [answer.labels for answer in package.load(run, device="cpu").predict(texts)]


def test_raw_text_from_stdin_gives_words_with_labels(ensue: Ensue, runs: Path) -> None:
    result = ensue("predict", runs / "names", stdin=b"Anna Novak sees Lima.\n\nthe house\n")
    assert (result.status, result.err) == (0, "")
    (first, third) = tags(runs / "names", [["Anna", "Novak", "sees", "Lima", "."], ["the", "house"]])
    lines = [f"{w}\t{t}" for w, t in zip(["Anna", "Novak", "sees", "Lima", "."], first, strict=True)]
    assert result.out.splitlines() == [
        *lines, "", "", *(f"{w}\t{t}" for w, t in zip(["the", "house"], third, strict=True)), "",
    ]  # fmt: skip
    assert ensue("predict", runs / "names", "-", stdin=b"Anna Novak sees Lima.\n\nthe house\n").out == result.out
    assert ensue("predict", runs / "names", stdin=b"").out == ""


def test_columns_come_back_with_predicted_labels(ensue: Ensue, runs: Path) -> None:
    tagged = sentences(30, seed=5)
    asked = columns(tagged).replace(" B-", " X-").replace(" I-", " X-").replace("\n\n", "\n\n\n")
    Path("asked.txt").write_text("-DOCSTART- -X- O\n\n" + asked)
    out = ensue("predict", runs / "names", "asked.txt").out
    labels_of_sentences = tags(runs / "names", [s.words for s in tagged])
    answered = iter(label for labels in labels_of_sentences for label in labels)
    expected = re.sub(r"(\S+ \S+) \S+\n", lambda match: f"{match[1]} {next(answered)}\n", asked)
    assert out == "-DOCSTART- -X- O\n\n" + expected
    with gzip.open("asked.txt.gz", "wt") as file:
        file.write("-DOCSTART- -X- O\n\n" + asked)
    assert ensue("predict", runs / "names", "asked.txt.gz").out == out
    assert ensue("predict", runs / "names", stdin=Path("asked.txt").read_bytes()).out == out


@pytest.mark.sampled(1)
@pytest.mark.parametrize("columns", ["form", "form and part of speech"])
def test_columns_without_labels_get_another_column(columns: str, ensue: Ensue, runs: Path) -> None:
    """The last column has no label of the model, and stays."""
    words = sentences(20, seed=5)
    rows = [zip(s.words, s.pos, strict=True) for s in words]
    text = "\n".join("".join((w if columns == "form" else f"{w} {p}") + "\n" for w, p in row) for row in rows)
    Path("asked.conll").write_text(text)
    out = ensue("predict", runs / "names", "asked.conll").out
    labels_of_words = [label for labels in tags(runs / "names", [s.words for s in words]) for label in labels]
    assert [line.split()[-1] for line in out.splitlines() if line] == labels_of_words
    assert re.sub(r"[ \t]\S+$", "", out, flags=re.MULTILINE) == text


def test_conllu_comes_back_with_predicted_labels(ensue: Ensue, runs: Path) -> None:
    tagged = sentences(30, seed=6)
    Path("gold.conllu").write_text(conllu(tagged))
    Path("asked.conllu").write_text(re.sub(r"^(\d+\t\w+\t\w+)\t\w+", r"\1\t_", conllu(tagged), flags=re.MULTILINE))
    out = ensue("predict", runs / "upos", "asked.conllu").out
    labels_of_sentences = tags(runs / "upos", [s.words for s in tagged])
    guessed = conllu([s._replace(pos=labels) for s, labels in zip(tagged, labels_of_sentences, strict=True)])
    original = conllu(tagged)
    for line, guess, gold in zip(out.splitlines(), guessed.splitlines(), original.splitlines(), strict=True):
        fields, expected = line.split("\t"), gold.split("\t")
        if len(expected) == 10 and expected[0].isdecimal():
            expected[3] = guess.split("\t")[3]
        assert fields == expected


def test_json_lines_come_back_with_predicted_labels(ensue: Ensue, runs: Path) -> None:
    Path("a.jsonl").write_text('{"id": 1, "tokens": ["Anna", "sees"]}\n{"tokens": [], "x": "é"}\n')
    out = [json.loads(line) for line in ensue("predict", runs / "names", "a.jsonl").out.splitlines()]
    assert out == [
        {"id": 1, "tokens": ["Anna", "sees"], "labels": tags(runs / "names", [["Anna", "sees"]])[0]},
        {"tokens": [], "x": "é", "labels": []},
    ]
    output = ensue("predict", runs / "names", stdin=b'{"text": "Anna Novak, sees"}\n').out
    answer = package.load(runs / "names", device="cpu").predict(["Anna Novak, sees"])[0]
    assert json.loads(output)["spans"] == [
        {"start": span.start, "end": span.end, "label": span.label} for span in answer.spans
    ]


def test_json_has_offsets_of_words_and_confidences(ensue: Ensue, runs: Path) -> None:
    text = "  Anna Novak \U0001f468\u200d\U0001f469\u200d\U0001f467 sees \u05d0\u05e0\u05d4!"
    result = ensue("predict", runs / "names", "--json", stdin=f"{text}\n\n".encode())
    first, second = (json.loads(line) for line in result.out.splitlines())
    assert first["text"] == text
    assert second == {"text": "", "words": [], "spans": []}
    (answer,) = package.load(runs / "names", device="cpu").predict([text], confidence=True)
    assert [(w["text"], w["label"]) for w in first["words"]] == [(w.text, w.label) for w in answer]
    for word, expected in zip(first["words"], answer, strict=True):
        assert text[word["start"] : word["end"]] == word["text"]
        assert word["confidence"] == pytest.approx(expected.confidence, abs=1e-5)
    assert [tuple(span.values()) for span in first["spans"]] == [
        (*span[:4], round(span.probability, 6)) for span in answer.spans
    ]


def test_the_best_paths_have_their_probabilities(ensue: Ensue, refused: Callable[..., str], runs: Path) -> None:
    shown = ensue("predict", runs / "names", "--n-best", "3", stdin=b"Anna Novak sees Lima\nAnna\n").out
    several = package.load(runs / "names", device="cpu").predict(["Anna Novak sees Lima", "Anna"], n_best=3)
    expected = [[f"{path.probability:.4f}\t{path!r}" for path in answer.paths] for answer in several]
    assert [part.splitlines() for part in shown.split("\n\n")[:-1]] == expected
    assert [path.labels for path in (several[0].paths[0], several[0])] == [several[0].labels] * 2
    (line, _) = ensue(
        "predict", runs / "names", "--n-best=3", "--json", stdin=b"Anna Novak sees Lima\n\n"
    ).out.splitlines()
    paths = json.loads(line)["paths"]
    assert [path["labels"] for path in paths] == [path.labels for path in several[0].paths]
    assert [list(path) for path in paths] == [["probability", "labels", "spans"]] * 3
    shares = [path["probability"] for path in paths]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1
    message = refused("predict", runs / "names", "--n-best", "101", stdin=b"a\n")
    assert "n_best" in message


@pytest.mark.sampled(1)
@pytest.mark.parametrize("writer", [tsv, quoted_csv, json_lines])
def test_classified_files_have_labels_and_probabilities(writer: object, ensue: Ensue, runs: Path) -> None:
    name = {tsv: "a.tsv", quoted_csv: "a.csv", json_lines: "a.jsonl"}[writer]  # type: ignore[index]
    texts = documents(20, seed=3)
    Path(name).write_text(writer(texts), newline="")  # type: ignore[operator]
    plain = ensue("predict", runs / "topics", name).out
    asked = [json.loads(line) for line in ensue("predict", runs / "topics", name, "--json").out.splitlines()]
    assert [list(entry) for entry in asked] == [["texts", "labels", "probabilities"]] * 20
    for entry in asked:
        assert sum(entry["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert entry["labels"] == [max(entry["probabilities"], key=entry["probabilities"].get)]
    probabilities = [f"{entry['probabilities'][entry['labels'][0]]:.4f}" for entry in asked]
    if writer is json_lines:
        rows = [json.loads(line) for line in plain.splitlines()]
        assert [row["label"] for row in rows] == [entry["labels"][0] for entry in asked]
        assert [f"{row['probability']:.4f}" for row in rows] == probabilities
    else:
        assert re.findall(r"(?m)[\t,](0\.\d{4}|1\.0000)\r?$", plain.replace("\r\n", "\n")) == probabilities


def test_a_table_has_as_many_columns_in_every_row_where_some_texts_have_no_label(
    ensue: Ensue, runs: Path, tmp_path: Path
) -> None:
    """The model predicts several labels or none, and the threshold gives both cases."""
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", runs / "several", run], check=True)
    probabilities = [a.probability for a in package.load(run, device="cpu").predict(["salt oven butter", "the", ""])]
    labels = json.loads((run / "labels.json").read_text())
    (run / "labels.json").write_text(json.dumps(labels | {"threshold": sorted(probabilities)[-1] - 1e-4}))
    seal(run)
    for header in ("text\tn\n", ""):
        Path("a.tsv").write_text(f"{header}the\t1\nsalt oven butter\t2\nthe\t3\n")
        result = ensue("predict", run, "a.tsv", *([] if header else ["--format", "tsv"])).succeeded()
        rows = [line.split("\t") for line in result.out.splitlines()]
        assert {len(row) for row in rows} == {4}
        shown = [row for row in rows if row[1] != "n"]
        assert [row[2] != "" for row in shown] == [False, True, False]
        assert all(0 < float(row[3].split(",")[0]) < 1 for row in shown)


@pytest.mark.filterwarnings("default::ensue.notices.Notice")
def test_raw_texts_are_written_after_label_and_probability(ensue: Ensue, runs: Path) -> None:
    forget_notices()
    result = ensue("predict", runs / "topics", stdin="salt and oven\n\na choir, é\nxyzzy plugh\n".encode())
    assert result.err.splitlines() == [
        "ensue: stdin: a text is empty; predictions for them are meaningless",
        "ensue: stdin: a text has no word of the training data; predictions for them are unreliable",
        "4 of 9 words (44%) are not known from the training data",
    ]
    answers = package.load(runs / "topics", device="cpu").predict(["salt and oven", "", "a choir, é", "xyzzy plugh"])
    assert result.out.splitlines() == [f"{a.label}\t{a.probability:.4f}\t{a.texts[0]}" for a in answers]
    Path("lines.txt").write_text("salt and oven\n\na choir, é\nxyzzy plugh\n")
    assert ensue("predict", runs / "topics", "lines.txt").out == result.out
    assert ensue("predict", runs / "topics", stdin=b"").out == ""


@pytest.mark.filterwarnings("ignore:.* no word of the training data")
def test_named_formats_are_used(ensue: Ensue, runs: Path) -> None:
    columns_like = b"one two\nthree four\n\n"
    as_text = ensue("predict", runs / "names", "--format", "text", stdin=columns_like).out
    assert [line.split("\t")[0] for line in as_text.splitlines() if line] == ["one", "two", "three", "four"]
    as_columns = ensue("predict", runs / "names", "--format", "columns", stdin=columns_like).out
    assert [line.split()[0] for line in as_columns.splitlines() if line] == ["one", "three"]
    as_lines = ensue("predict", runs / "topics", "--format", "plain", stdin=b"a\tb\nc\td\n").out
    assert [line.split("\t", 2)[2] for line in as_lines.splitlines()] == ["a\tb", "c\td"]
    first_word = ensue("predict", runs / "topics", "--format", "first-word", stdin=b"x salt oven\n").out
    assert first_word in {f"{label} salt oven\n" for label in ("cooking", "music", "sports")}


def test_a_terminal_shows_words_above_their_labels(
    ensue: Ensue, runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Path("a.txt").write_text("Anna sees the old \u4e2d\u6587 house and [b]Lima[/b]\n")
    for run in ("names", "topics"):
        out = re.sub(
            r"\x1b\[[\d;]*m",
            "",
            ensue("predict", runs / run, "a.txt", "--format", "text" if run == "names" else "plain").out,
        )
        if run == "topics":
            assert re.fullmatch(r"\w+ \d\.\d\d  Anna sees the old 中文 house and \[b\]Lima\[/b\]\n", out)
            continue
        lines = [line for line in out.splitlines() if line]
        (answer,) = package.load(runs / run, device="cpu").predict([Path("a.txt").read_text().strip()])
        assert " ".join(" ".join(lines[::2]).split()) == " ".join(w.text for w in answer)
        assert " ".join(lines[1::2]).split() == answer.labels
        assert max(map(len, lines)) <= 24


def test_evaluate_json_of_a_tagger_has_its_scores(ensue: Ensue, runs: Path) -> None:
    Path("test.txt").write_text(columns(sentences(40, seed=8)))
    result = ensue("evaluate", runs / "names", "test.txt", "--json")
    scores = json.loads(result.out)
    assert result.out.count("\n") == 1
    assert {"accuracy", "precision", "recall", "f1", "tokens", "per_label"} <= scores.keys()
    assert scores == json.loads(json.dumps(package.load(runs / "names", device="cpu").evaluate("test.txt").as_json()))
    assert set(scores["per_label"]) == {"LOC", "PER"}
    assert {"precision", "recall", "f1", "support"} <= scores["per_label"]["PER"].keys()
    assert result.err == "spans are read and counted as conlleval does\n"
    table = ensue("evaluate", runs / "names", "test.txt").out
    assert re.search(r"^f1 +0\.\d+|^f1 +1\.0", table, flags=re.MULTILINE)
    assert re.search(rf"^PER .* {scores['per_label']['PER']['support']} *$", table, flags=re.MULTILINE)


def test_evaluate_json_of_a_classifier_has_its_scores(ensue: Ensue, runs: Path) -> None:
    Path("test.tsv").write_text(tsv(documents(40, seed=8)))
    result = ensue("evaluate", runs / "topics", "test.tsv", "--json")
    scores = json.loads(result.out)
    assert result.out.count("\n") == 1
    assert {"accuracy", "macro_f1", "examples", "per_label"} <= scores.keys()
    assert scores["examples"] == 40
    assert set(scores["per_label"]) == {"cooking", "music", "sports"}
    assert result.err == "texts are read whole, in one piece\n"
    Path("other.tsv").write_text(tsv(documents(40, seed=8)).replace("music\t", "history\t"))
    table = ensue("evaluate", runs / "topics", "other.tsv").out
    assert re.search(r"\d+ errors? from labels that the model lacks: history", table)


@pytest.mark.filterwarnings("ignore:.* no word of the training data")
def test_other_encodings_are_read(ensue: Ensue, runs: Path) -> None:
    Path("old.txt").write_bytes("caf\u00e9 Anna\n".encode("latin-1"))
    result = ensue("predict", runs / "names", "old.txt", "--encoding", "latin-1")
    assert result.out.splitlines()[0].split("\t")[0] == "caf\u00e9"
    piped = ensue("predict", runs / "names", "--encoding", "latin-1", stdin=Path("old.txt").read_bytes())
    assert piped.out == result.out
    assert ensue("predict", runs / "topics", "old.txt", "--encoding", "latin-1").out.endswith("\tcaf\u00e9 Anna\n")


def test_a_run_behind_another_has_the_same_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked("tag-lstm", tmp_path)
    monkeypatch.setattr("ensue.library.has_bfloat16", lambda: True)
    first = SimpleNamespace(before=lambda pipeline: pipeline)
    for precision, expected in (("float32", False), ("bfloat16", True)):
        pipeline = with_tagger("predict", first, tmp_path / "tag-lstm", "cpu", None, precision)  # type: ignore[arg-type]
        assert {layer.in_bfloat16 for layer in pipeline.model.modules() if isinstance(layer, Recurrent)} == {expected}
