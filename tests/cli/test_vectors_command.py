"""`ensue embed`, `neighbors` and `export`: lines and files."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ensue as library
from command_fixtures import Ensue
from ensue.data.vectors import read_vectors


def test_embed_writes_a_vector_for_each_line(ensue: Ensue, vectors: Path) -> None:
    texts, model = ["salt oven", "", "nowhere"], library.load(vectors)
    lines = ensue("embed", vectors, "--json", stdin="\n".join([*texts, ""]).encode()).out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [line["text"] for line in rows] == texts
    assert (np.array([line["vector"] for line in rows], np.float32) == model.embed(texts)).all()
    plain = ensue("embed", vectors, "-", "--pooling", "max", stdin=b"salt oven").out
    text, numbers = plain.rstrip("\n").split("\t")
    assert text == "salt oven"
    expected = model.embed(["salt oven"], pooling="max")[0]
    np.testing.assert_allclose(np.array(numbers.split(" "), float), expected, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".vec", ".bin"])
def test_the_suffix_of_a_file_sets_its_format(suffix: str, ensue: Ensue, vectors: Path, tmp_path: Path) -> None:
    words, out = tmp_path / "words.txt", tmp_path / f"out{suffix}"
    words.write_text("salt\npiano\n", encoding="utf-8")
    assert f"wrote 2 vectors to {out}" in ensue("embed", vectors, words, "--out", out).err
    if suffix == ".npy":
        matrix = np.load(out)
    elif suffix == ".jsonl":
        matrix = np.array([json.loads(line)["vector"] for line in out.read_text().splitlines()], np.float32)
    else:
        matrix = read_vectors(out)[1]
    assert (matrix == library.load(vectors).embed(["salt", "piano"])).all()


def test_neighbors_and_exported_vectors_are_correct(ensue: Ensue, vectors: Path, tmp_path: Path) -> None:
    lines = ensue("neighbors", vectors, "salt", "--count", "2", "--json").out.splitlines()
    expected = library.load(vectors).neighbors("salt", 2)
    assert [json.loads(line) for line in lines] == [{"text": n.word, "similarity": n.similarity} for n in expected]
    first = ensue("neighbors", vectors, "salt").out.splitlines()[0]
    assert first == f"{expected[0].word}\t{expected[0].similarity:.4f}"
    assert ensue("export", vectors, "--format", "word2vec", "--out", tmp_path / "x.txt").status == 0
    assert read_vectors(tmp_path / "x.txt")[0] == list(library.load(vectors).words)


@pytest.mark.parametrize("option", [["--int8"], ["--embed"], ["--precision", "f16"]])
def test_vectors_refuse_options_of_models(
    option: list[str], refused: Callable[..., str], vectors: Path, tmp_path: Path
) -> None:
    line = refused("export", vectors, "--format", "word2vec", "--out", tmp_path / "x.txt", *option)
    assert f"{option[0]} is not for --format word2vec: word vectors are 32-bit numbers in one file" in line


def test_errors_are_one_line(refused: Callable[..., str], vectors: Path, tmp_path: Path) -> None:
    assert 'no vector for the word "slat"; did you mean "salt"?' in refused("neighbors", vectors, "slat")
    assert "its embed has no --layer" in refused("embed", vectors, "--layer", "1")
    assert "this format is for words" in refused("embed", vectors, "--out", tmp_path / "x.vec", stdin=b"a b\n")
    assert 'no format of vectors is named ".nyp"' in refused("embed", vectors, "--out", tmp_path / "x.nyp", stdin=b"a")
    assert "for neighbors, inspect, embed, evaluate and export" in refused("predict", vectors)
    out = tmp_path / "out"
    assert 'no format "word2vek"' in refused("export", vectors, "--format", "word2vek", "--out", out)


def test_word_vectors_cannot_be_exported_as_a_graph(refused: Callable[..., str], vectors: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
    message = refused("export", vectors, "--format", "onnx", "--out", tmp_path / "out")
    assert message.endswith("models of this kind cannot be exported")
    assert not (tmp_path / "out").exists()


def test_neighbors_searches_texts_by_vectors_of_a_file(
    ensue: Ensue, refused: Callable[..., str], vectors: Path, tmp_path: Path
) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.npy"
    texts.write_text("salt oven\npiano\nsalt\noven salt\n", encoding="utf-8")
    assert "wrote 4 vectors" in ensue("embed", vectors, texts, "--out", out, "--half").err
    model = library.load(vectors)
    stored = np.load(out)
    assert (stored == model.embed(texts.read_text().splitlines()).astype(np.float16)).all()
    for options in ([], ["--vectors", out]):
        lines = ensue("neighbors", vectors, "salt", "--in", texts, *options, "--count", "2").out.splitlines()
        assert lines[0] == "salt\t1.0000"
        assert lines[1] == f"salt oven\t{model.similarity('salt', 'salt oven'):.4f}"
        output = ensue("neighbors", vectors, "--in", texts, *options, "--near-duplicates", "0.999", "--json").out
        assert [json.loads(line)["texts"] for line in output.splitlines()] == [["salt oven", "oven salt"]]
        output = ensue("neighbors", vectors, "--in", texts, *options, "--near-duplicates", "-1").out
        cosines = [float(line.split("\t")[0]) for line in output.splitlines()]
        assert (len(cosines), cosines) == (4, sorted(cosines, reverse=True))
    texts.write_text("salt\n", encoding="utf-8")
    assert "4 vectors;" in refused("neighbors", vectors, "salt", "--in", texts, "--vectors", out)
    archive = io.BytesIO()
    np.savez(archive, stored)
    for content in (b"salt\n", b"PK\x03\x04", archive.getvalue()):
        out.write_bytes(content)
        assert "cannot be read as vectors" in refused("neighbors", vectors, "salt", "--in", texts, "--vectors", out)
    assert "are for texts: --in TEXTS" in refused("neighbors", vectors, "salt", "--vectors", out)
    assert "or --near-duplicates" in refused("neighbors", vectors, "--in", texts)
    assert "--out FILE.npy" in refused("embed", vectors, texts, "--half")
