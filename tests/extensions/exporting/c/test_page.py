"""The commands of the page about models as C work, with the compilers that are installed."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import ensue
from ensue.cli import command_line
from extensions.exporting.c.carried import COMPILERS
from extensions.exporting.c.conftest import HAS_ZIG
from kept_runs.make import unpacked
from page_data import write_data
from pages import REPOSITORY
from training.tiny_texts import documents, tsv

PAGE = REPOSITORY / "docs" / "carried-away.md"


def is_there(program: str) -> bool:
    """Return whether a program can be called; an installer of Rust may provide a `rustc` that fails."""
    if program == "rustc" and shutil.which(program):
        return subprocess.run([program, "-V"], capture_output=True, check=False).returncode == 0
    return shutil.which(program) is not None


def followed() -> dict[str, str]:
    """Write the files of the page, run its commands except training, and return their outputs."""
    outputs, page = {}, PAGE.read_text("utf-8")
    if not HAS_ZIG:
        page = re.sub(r"\n## A web page\n.*?(?=\n## )", "", page, flags=re.DOTALL)
    for language, file, text in re.findall(r"```(\w+)(?: file=(\S+))?\n(.*?)```", page, re.DOTALL):
        if file:
            Path(file).write_text(text, encoding="utf-8")
        for line in text.splitlines() if language in ("bash", "sh") else ():
            first, *others = shlex.split(line)
            if first == "ensue" and others[0] != "train":
                command_line()(others, standalone_mode=False)
            elif first != "ensue" and is_there(first):
                done = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False
                )
                assert (done.returncode, done.stderr) == (0, ""), done.stderr
                outputs[line] = done.stdout
    return outputs


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS or not shutil.which("make"), reason="no compiler, or no make")
def test_the_commands_and_programs_of_the_page_work(tmp_path: Path, in_tmp_path: None) -> None:
    unpacked("char-lstm", tmp_path)
    unpacked("tag-lstm-crf", tmp_path)
    (tmp_path / "char-lstm").rename(tmp_path / "run")
    (tmp_path / "tag-lstm-crf").rename(tmp_path / "tagger")
    (tmp_path / "words.txt").write_text("sea\noven\n")
    model, tagger = ensue.load(tmp_path / "run"), ensue.load(tmp_path / "tagger")
    (tmp_path / "topics.tsv").write_text(tsv(documents(60)))
    (tmp_path / "texts.txt").write_text("salt and the oven\noven\n")
    few = {"train.epochs": 1, "train.validations": 1, "head.ngram_buckets": 999}
    ensue.train("classify-bag", train="topics.tsv", out="classifier", settings=few)
    (tmp_path / "pairs.tsv").write_text("sea\tS IY\noven\tAH V AH N\n" * 30)
    small = {"train.steps": 2, "train.validations": 1, "encoder.d_model": 8, "decoder.d_model": 8}
    ensue.train("transduce-lstm", train="pairs.tsv", out="speller", settings=small)
    write_data(tmp_path)
    small = {"train.steps": 2, "train.validations": 1, "encoder.d_model": 8}
    ensue.train("classify-frames", train="digits", out="spoken", settings=small)
    outputs = followed()
    classified = sorted(ensue.load("spoken").prediction_lines("digits/one"))
    printed = outputs["hear/hear digits/one/*.wav               # name, label, probability"]
    assert sorted(printed.splitlines(True)) == classified
    spelled = [output.text for output in ensue.load("speller").predict(["sea", "oven"])]
    assert outputs["say/say < words.txt                          # the output for each line"].splitlines() == spelled
    predicted = ensue.load("classifier").prediction_lines("texts.txt")
    assert outputs["topics/topics < texts.txt                   # label, probability, text"] == "".join(predicted)
    text = "The sea was calm."
    nats = [round(score.nats, 4) for score in model.score(text)]
    lines = outputs['echo "The sea was calm." | sea/sea'].splitlines()
    assert [float(line.split()[0]) for line in lines[: len(text)]] == pytest.approx(nats, abs=2e-4)
    read = [line.rpartition(" ") for line in outputs["python3 surprise.py"].splitlines()]
    assert "".join(symbol[1:-1] for symbol, _, _ in read) == text
    assert [float(number) for _, _, number in read] == pytest.approx(nats, abs=2e-4)
    some = "".join(model.generate("The ", max_tokens=200, seed=1, temperature=0.8))
    assert outputs["printf 'The ' | sea/sea --generate 200 1 0.8"] == f"The {some}\n"
    alone = "".join(model.generate("", max_tokens=200, seed=1))
    assert {outputs[line] for line in ("./main", "go run main.go") if line in outputs} <= {alone}
    if from_node := outputs.get("node surprise.mjs"):
        assert from_node.endswith(f"\n{some}\ntrue\n")
        read = [line.rpartition(" ") for line in from_node.split("\n")[: len(text)]]
        assert "".join(symbol for symbol, _, _ in read) == text
        assert [float(number) for _, _, number in read] == pytest.approx(nats, abs=2e-4)
    tagged = tagger.predict(["Anna Novak sees Lima."], confidence=True)[0]
    shown = [(word.text, word.label, pytest.approx(word.confidence, abs=6e-5)) for word in tagged]
    printed = outputs['echo "Anna Novak sees Lima." | pos/pos --probabilities']
    lines = [line.split("\t") for line in printed.splitlines()]
    assert [(word, label, float(share)) for word, label, share in lines[:-1]] == shown
    lines = [line.split(" ") for line in outputs["./names"].splitlines()]
    assert [(word, label, float(share)) for word, label, share in lines] == shown
