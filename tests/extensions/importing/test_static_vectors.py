"""Files of word vectors as runs: fastText with its vectors of unknown words, word2vec, GloVe, and invalid files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

import ensue
from ensue.errors import DataError, EnsueError
from ensue.extensions.importing.importing import import_run
from ensue.recipe import read_recipe
from ensue.training.run import begin_job

from . import published
from .published import FASTTEXT_ROWS as ROWS
from .published import FASTTEXT_WORDS as WORDS
from .published import fasttext_model


def fnv(text: bytes) -> int:
    value = 2166136261
    for byte in text:
        signed = byte - 256 if byte > 127 else byte
        value = ((value ^ (signed & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
    return value


def expected(word: str) -> NDArray[np.float64]:
    """Return the vector of a word: the mean of its own row, if any, and of the rows of its n-grams."""
    spelled = f"<{word}>"
    ngrams = [spelled[a:b] for a in range(len(spelled)) for b in (a + 2, a + 3) if b <= len(spelled)]
    rows = [ROWS[len(WORDS) + fnv(ngram.encode()) % (len(ROWS) - len(WORDS))] for ngram in ngrams]
    if word in WORDS:
        rows = [ROWS[WORDS.index(word)], *(rows if word != "</s>" else [])]
    return np.mean(rows, axis=0, dtype=np.float64)


def imported(path: Path, tmp_path: Path) -> Any:
    import_run(path, tmp_path / "run")
    return ensue.load(tmp_path / "run", device="cpu")


def test_a_model_of_fasttext_has_vectors_for_unknown_words(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(fasttext_model())
    pipeline = imported(tmp_path / "model.bin", tmp_path)
    assert pipeline.words == ("</s>", "the", "house", "мир", "été")
    for word in [*pipeline.words, "houses", "миры", "x"]:
        np.testing.assert_allclose(pipeline.vector(word), expected(word), atol=1e-6)


def test_imported_vectors_are_not_trained(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 1 2 3\nhouse 4 5 6\n")
    imported(tmp_path / "glove.txt", tmp_path)
    (tmp_path / "text.txt").write_text("the house\n" * 9)
    recipe = read_recipe(tmp_path / "run" / "recipe.toml", {"data.train": str(tmp_path / "text.txt")})
    with pytest.raises(EnsueError, match=r'vectors\.kind "static" cannot be trained; expected cbow'):
        begin_job(recipe, None)


def test_without_ngrams_a_word_has_its_row(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(fasttext_model(minn=0, maxn=0, model=1))
    pipeline = imported(tmp_path / "model.bin", tmp_path)
    np.testing.assert_array_equal(pipeline.vector("house"), ROWS[2])
    with pytest.raises(EnsueError, match="no vector"):
        pipeline.vector("houses")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 10}, "expected 11 or 12"), ({"model": 3}, "a classifier of fastText"),
        ({"quantized": True}, "quantized"), ({"labels": 2}, "a model with labels"),
        ({"size": 1_000_000_000}, "truncated or damaged: 10,000,000,000 bytes expected"),
        ({"size": -1}, "a size of -1"), ({"rows": 1 << 40}, "truncated or damaged: 1,099,511,627,776 × 3 numbers"),
        ({"dim": 4}, "truncated or damaged"), ({"dim": -4}, "vectors of -4 numbers"),
        ({"minn": -3}, "n-grams of -3 to 3 characters"), ({"maxn": 1_000_000}, "n-grams of 2 to 1000000 characters"),
    ],
)  # fmt: skip
def test_invalid_and_unsupported_models_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "model.bin").write_bytes(fasttext_model(**changes))
    with pytest.raises(EnsueError) as caught:
        import_run(tmp_path / "model.bin", tmp_path / "run")
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_model_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    content = fasttext_model()
    for end in range(4, len(content), 13):
        (tmp_path / "model.bin").write_bytes(content[:end])
        with pytest.raises(EnsueError, match="truncated or damaged"):
            import_run(tmp_path / "model.bin", tmp_path / "run")


def test_a_file_without_the_magic_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(fasttext_model()[8:])
    with pytest.raises(EnsueError, match="version 11 or 12"):
        import_run(tmp_path / "model.bin", tmp_path / "run")


def test_vectors_are_read_from_text_and_binary_files(tmp_path: Path) -> None:
    rows = ["the 1 2 3", "house 4 5 6", "<unk> 7 8 9"]
    (tmp_path / "glove.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "word2vec.txt").write_text("\n".join(["3 3", *rows]) + "\n")
    binary = b"".join(b"%s " % row.split()[0].encode() + np.array(row.split()[1:], "<f4").tobytes() for row in rows)
    (tmp_path / "word2vec.bin").write_bytes(b"3 3\n" + binary)
    for name in ("glove.txt", "word2vec.txt", "word2vec.bin"):
        import_run(tmp_path / name, tmp_path / "run", overwrite=True)
        pipeline = ensue.load(tmp_path / "run", device="cpu")
        assert (pipeline.words, pipeline.kind) == (("the", "house"), "static 3")
        assert pipeline.num_parameters == 4 * 3  # no other table remains
        np.testing.assert_array_equal(pipeline.vector("house"), [4, 5, 6])
    (tmp_path / "glove.txt").write_text("the 1 2 3\nhouse 4 5\n")
    with pytest.raises(EnsueError, match=r"glove\.txt:2: expected a word and 3 numbers, found 2"):
        import_run(tmp_path / "glove.txt", tmp_path / "run", overwrite=True)


@pytest.mark.parametrize("newer", [False, True])
def test_an_imported_model2vec_embeds_the_mean_of_the_pieces(tmp_path: Path, newer: bool) -> None:
    """Unknown pieces have no vector. Newer models map pieces to shared rows, with a factor for each piece."""
    library, draw = published.wordpiece(), np.random.default_rng(0)
    published.write(tmp_path, library)
    size = library.get_vocab_size()
    tensors = {"embeddings": draw.normal(size=(9 if newer else size, 5)).astype("<f4")}
    rows = tensors["embeddings"]
    if newer:
        tensors |= {"mapping": draw.integers(9, size=size), "weights": draw.normal(size=size)}
        rows = rows[tensors["mapping"]] * tensors["weights"][:, None]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": newer}))
    model, texts = (
        imported(tmp_path, tmp_path.with_name(f"{tmp_path.name}-runs")),
        ["The sun, un-done!", "Café ☃ 1,000.5", "the", "##s", "☃", ""],
    )
    library.no_truncation()
    library.no_padding()
    for text, vector in zip(texts, model.embed(texts), strict=True):
        ids = [id for id in library.encode(text, add_special_tokens=False).ids if id != library.token_to_id("[UNK]")]
        expected = rows[ids].mean(0) if ids else np.zeros(5)
        expected = expected / max(np.linalg.norm(expected), 1e-9) if newer else expected
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    for mapping in (
        np.full(size, -1), np.full(size, 9), np.zeros(size - 1, int), np.zeros(size), np.zeros((size, 1), int),
    ):  # fmt: skip
        save_file({"embeddings": tensors["embeddings"][:9], "mapping": mapping}, tmp_path / "model.safetensors")
        with pytest.raises(DataError, match="no vectors of these pieces"):
            import_run(tmp_path, tmp_path.with_name(f"{tmp_path.name}-runs") / "wrong")
    assert model.neighbors("The sun", 3)
    (tmp_path / "tokenizer.json").write_text(wordpiece_of("a b").to_str())
    with pytest.raises(DataError, match="no vectors of these pieces"):
        import_run(tmp_path, tmp_path.with_name("other"))


def wordpiece_of(text: str) -> Any:
    return published.wordpiece(corpus=[text])
