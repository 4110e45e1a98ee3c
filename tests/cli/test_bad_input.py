"""Wrong input is one line on stderr with exit status 2, and changes no file."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import SMALL, Ensue, contents

pytestmark = pytest.mark.usefixtures("in_tmp_path")

Refused = Callable[..., str]


def train(path: object, out: object = "out", *more: object) -> list[object]:
    key = {str(value).partition("=")[0] for value in more}
    pairs = [
        pair for pair in pairs_of(SMALL) if pair[1].partition("=")[0] not in key and pair[0] not in key - {"--set"}
    ]
    return ["train", "char-lstm", "--train", path, "--out", out, *(word for pair in pairs for word in pair), *more]


def pairs_of(arguments: list[str]) -> list[tuple[str, str]]:
    return list(zip(arguments[::2], arguments[1::2], strict=True))


@pytest.mark.slow
def test_paths_that_do_not_exist_are_refused(refused: Refused, text: Path) -> None:
    assert refused(*train(text.with_name("txet.txt"))).endswith('no such file or folder; did you mean "text.txt"?')
    assert "no file matches" in refused(*train("*.txt"))
    assert "other.txt: no such file" in refused(*train(text, "out", "--valid", "other.txt"))
    assert "other.txt: no such file" in refused(*train(text, "out", "--test", "other.txt"))
    assert "no training text" in refused("train", "char-lstm", "--out", "out")
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train.learnig_rate=0.1", 'unknown key "train.learnig_rate" in train; did you mean "learning_rate"?'),
        ("train.batch_size=many", "train.batch_size: input should be a valid integer"),
        ("train.learning_rate=inf", "train.learning_rate: input should be a finite number"),
        ("train.accumulate=3", "batch_size 4 cannot be split into 3 equal parts"),
        ("data.encoding=utf-9", 'unknown encoding "utf-9"'),
        ("model=3", "model"),
        ("nonsense", '--set takes key=value, for example train.steps=500; found "nonsense"'),
        ("about.x=1", '"about" in "about.x" is a value, not a table'),
    ],
)
def test_invalid_settings_are_refused(setting: str, expected: str, refused: Refused, text: Path) -> None:
    assert expected in refused(*train(text, "out", "--set", setting))
    assert os.listdir() == []


def test_sizes_that_do_not_fit_each_other_are_refused(refused: Refused, text: Path) -> None:
    line = refused(
        "train", "char-transformer", "--train", text, "--out", "out", "--set", "encoder.d_model=10",
        "--set", "encoder.num_heads=3", "--set", "encoder.context=12", "--set", "tokens.d_embedding=10",
    )  # fmt: skip
    assert line == "model: 10 features cannot be divided among 3 heads"
    assert os.listdir() == []


def test_missing_recipes_and_wrong_toml_are_refused(refused: Refused, text: Path) -> None:
    assert 'no recipe named "char-lst"; did you mean "char-lstm"?' in refused(
        "train", "char-lst", "--train", text, "--out", "out"
    )
    message = refused("train", text.with_name("txet.txt"), "--out", "o")
    assert message.endswith(f'file or folder; did you mean "{text.name}"?')
    Path("empty.csv").touch()
    assert refused("train", "empty.csv", "--out", "out") == "empty.csv: the text is empty"
    os.remove("empty.csv")
    assert refused("train", "mine.toml", "--train", text, "--out", "out") == "mine.toml: no such recipe file"
    Path("mine.toml").write_text("[train\n")
    assert refused("train", "mine.toml", "--train", text, "--out", "out").startswith("mine.toml: not TOML")
    Path("mine.toml").write_bytes(b"\xff\xfe")
    assert "UTF-8" in refused("train", "mine.toml", "--train", text, "--out", "out")
    Path("mine.toml").write_text('[model]\nencoder = "lstm"\n[train]\n')
    assert "needs exactly one of steps, epochs, tokens, seconds" in refused(
        "train", "mine.toml", "--train", text, "--out", "out"
    )
    assert refused("train", "--train", text).endswith("; --out RUN trains it")
    assert os.listdir() == ["mine.toml"]


def test_an_existing_run_is_not_changed(refused: Refused, ensue: Ensue, run: Path, text: Path) -> None:
    before = contents(run)
    assert "there is a run already; --resume continues it, --overwrite removes it" in refused(*train(text, run))
    assert "choose one" in refused(*train(text, run, "--resume", "--overwrite"))
    assert "another " in refused(*train(text, run, "--resume"))
    assert ensue("train", text, "--out", run, "--resume").status == 0  # the data instead of a recipe
    before = contents(run)
    Path("short.txt").write_text("short")
    assert "one segment" in refused(*train("short.txt", run, "--overwrite"))
    assert "no such file" in refused(*train("none.txt", run, "--overwrite"))
    assert "no device" in refused(*train(text, run, "--overwrite", "--device", "gpu"))
    assert contents(run) == before
    assert ensue(*train(text, run, "--overwrite")).status == 0
    assert contents(run) != before


def test_resuming_with_a_changed_key_is_refused_with_its_name(refused: Refused, run: Path) -> None:
    before = contents(run)
    line = refused("train", "--resume", "--out", run, "--set", "train.learning_rate=0.5")
    assert line.endswith("cannot continue with another train.learning_rate: the run has 0.01, found 0.5")
    assert contents(run) == before


def test_paths_that_cannot_hold_a_run_are_refused(refused: Refused, text: Path) -> None:
    Path("file").write_text("precious")
    Path("folder").mkdir()
    Path("folder/photo.jpg").write_text("precious")
    assert "is a file; --out names a directory" in refused(*train(text, "file"))
    assert "cannot be written" in refused(*train(text, "file/below"))
    for options in ([], ["--overwrite"], ["--resume"]):
        assert "not empty and not a run directory (found photo.jpg)" in refused(*train(text, "folder", *options))
    assert "nowhere: no run to continue" in refused("train", "--resume", "--out", "nowhere")
    assert contents(Path()) == {"file": b"precious", "folder/photo.jpg": b"precious"}


@pytest.mark.parametrize("command", ["generate", "score", "evaluate"])
def test_every_command_checks_the_manifest(command: str, refused: Refused, run: Path, text: Path) -> None:
    (run / "model.safetensors").write_bytes(b"")
    assert "model.safetensors: damaged" in refused(command, run, *([] if command == "generate" else [text]))


def test_a_folder_without_a_run_is_refused(refused: Refused, text: Path) -> None:
    assert refused("generate", "nowhere") == "nowhere: no such run directory"
    assert "not a run directory" in refused("evaluate", ".", text)
    assert os.listdir() == []


def test_a_prompt_longer_than_the_context_is_refused(refused: Refused, ensue: Ensue, trained: Path) -> None:
    line = refused("generate", trained / "transformer", "--prompt", "the cat sat on")
    assert line == "the prompt has 14 tokens; this model's context has 12"
    assert ensue("generate", trained / "transformer", "--prompt", "the cat sat ", "--max-tokens", 20).status == 0
    assert ensue("generate", trained / "lstm", "--prompt", "the cat sat on " * 300, "--max-tokens", 2).status == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--temperature", "-1"], "temperature"), (["--top-k", "0"], "top_k"), (["--top-p", "1.5"], "top_p"),
        (["--min-p", "-0.1"], "min_p"), (["--repetition-penalty", "0"], "repetition"), (["--seed", "-1"], "seed"),
        (["--samples", "0"], "--samples"), (["--max-tokens", "0"], "--max-tokens"), (["--temperature", "x"], "--temp"),
        (["--temperature", "nan"], "temperature"), (["--threads", "0"], "--threads"),
        (["--samples", "999999999999"], "--samples"), (["--beams", "0"], "--beams"),
        (["--beams", "2", "--seed", "1"], "--seed has no effect with --beams"),
        (["--out", "x.npz"], "its generate has no --out"), (["--frames", "3"], "its generate has no --frames"),
        (["--n-best", "2"], "--n-best needs --beams"), (["--beams", "2", "--n-best", "3"], "n_best is 3"),
    ],
)  # fmt: skip
def test_invalid_values_of_sampling_are_refused(options: list[str], word: str, refused: Refused, trained: Path) -> None:
    assert word in refused("generate", trained / "lstm", *options)


def test_missing_devices_are_refused(refused: Refused, trained: Path, text: Path) -> None:
    for name in ("gpu", "cuda:99", "meta", "mps"):
        assert name in refused("generate", trained / "lstm", "--device", name)
        assert name in refused(*train(text, "out", "--device", name))
    assert os.listdir() == []


def test_unknown_commands_and_options_are_refused(refused: Refused) -> None:
    assert refused("trian") == "No such command 'trian'. Did you mean 'train'?"
    assert "No such option: --prompts" in refused("generate", "run", "--prompts", "x")
    assert "Missing option '--out'" in refused("train", "char-lstm")
    assert "Missing argument 'run'" in refused("generate")
    assert "unexpected extra argument" in refused("recipes", "char-lstm", "more")
    assert 'no recipe named "word-lst"' in refused("recipes", "word-lst")


def test_evaluate_takes_one_kind_of_data(refused: Refused, trained: Path, text: Path) -> None:
    both = [text, "--minimal-pairs", text]
    for inputs in ([], both):
        assert "takes a PATH, or a file with one of" in refused("evaluate", trained / "lstm", *inputs)
    assert "go together" in refused("evaluate", trained / "lstm", "--word-in-context", text)
    assert "has no --similarity" in refused("evaluate", trained / "lstm", "--similarity", text)
    assert "no classes_map.txt in this folder" in refused("evaluate", trained / "lstm", "--senses", ".")
    assert "encoding" in refused("evaluate", trained / "lstm", text, "--encoding", "nope")
    Path("empty.txt").touch()
    assert refused("evaluate", trained / "lstm", "empty.txt") == "empty.txt: the text is empty"
    assert "no such file" in refused("evaluate", trained / "lstm", "--minimal-pairs", "none.jsonl")


def test_input_of_score_that_is_not_text_is_refused(ensue: Ensue, refused: Refused, trained: Path) -> None:
    run = trained / "lstm"
    assert "no such file" in refused("score", run, "none.txt")
    Path("empty.txt").touch()
    assert "empty" in refused("score", run, "empty.txt")
    assert "encoding" in refused("score", run, "-", "--encoding", "nope", stdin=b"the")
    result = ensue("score", run, stdin=b"the\ncat \xff\n")
    assert result.status == 2
    assert result.err == (
        "ensue: stdin:2: not UTF-8 (byte 0xff in column 5); for Windows' Western European try --encoding cp1252\n"
    )
    assert ensue("score", run, "--encoding", "cp1252", stdin=b"cat \xff\n").status == 0
    assert "not UTF-8" in refused("generate", run, "--prompt", "-", stdin=b"\xff\xff")


def test_a_closed_stdin_is_refused(refused: Refused, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused("score", trained / "lstm") == "stdin: closed"


def test_quickstart_overwrites_no_file(refused: Refused, text: Path) -> None:
    Path("mine").mkdir()
    assert "mine: exists" in refused("quickstart", text, "--out", "mine", "--seconds", 1)
    assert "--seconds" in refused("quickstart", text, "--seconds", 0)
    Path("short.txt").write_text("brief")
    assert "one segment needs" in refused("quickstart", "short.txt", "--seconds", 1)
    assert sorted(os.listdir()) == ["mine", "short.txt"]
