"""Encoders of translators that read layers of other runs as features."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.errors import EnsueError
from ensue.training.run import begin_job
from training.tiny import run_tiny, some_slow
from training.tiny_pairs import pair_recipe
from training.tiny_pairs import pairs as source_and_target


def writes_with(origin: Path, pairs: Path, **tables: Any) -> Any:
    """Return a recipe of a translator whose encoder also reads the layers of a run."""
    table = {"features": {"contextual": [str(origin)]}, "search": {"beams": 1, "max_tokens": 6}}
    return pair_recipe(pairs, train={"steps": 2, "validations": 1}, **table | tables)


WRITERS: dict[str, dict[str, Any]] = {
    "words": {},
    "names": {"tokenizer": {"kind": "words", "lowercase": True}, "data": {"names": [1], "source_tokens": 4}},
    "copies": {
        "head": {"copying": True}, "encoder": {"kind": "lstm", "d_model": 8},
        "tokenizer": {"kind": "words", "min_count": 9},
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", some_slow(WRITERS, "words"))
def test_a_translator_with_contextual_features_needs_no_origin(kind: str, origin: Path, tmp_path: Path) -> None:
    """Scores equal those of training, whose features are cached, and outputs do not depend on the batch."""
    tables, columns = WRITERS[kind], 2 if kind == "names" else 1
    run = Path(shutil.copytree(origin, tmp_path / "origin"))
    rows = source_and_target(9).splitlines()
    (tmp_path / "pairs.tsv").write_text("".join("NOUN;X\t" * (columns - 1) + f"{row}\n" for row in rows))
    data = {"valid": str(tmp_path / "pairs.tsv")} | tables.get("data", {})
    if columns > 1:
        data |= {"sources": ["1", "2"], "targets": ["3"]}
    outcome = run_tiny(writes_with(run, tmp_path / "pairs.tsv", **tables | {"data": data}), tmp_path / "run")
    shutil.rmtree(run)
    model: Any = ensue.load(tmp_path / "run", device="cpu")
    scores = model.evaluate(tmp_path / "pairs.tsv").as_json()
    assert outcome.valid is not None
    assert scores["nats_per_token"] == pytest.approx(outcome.valid["nats_per_token"], abs=1e-5)
    sources = [row.split("\t")[0] if columns == 1 else ("NOUN;X", row.split("\t")[0]) for row in rows[:3]]
    together = [output.text for output in model.predict(sources)]
    assert [model.predict([source])[0].text for source in sources] == together
    assert "nan" not in model.inspect(sources[0]).page
    assert "contextual" in "".join(name for name, _ in model.model.named_parameters())
    both = model.with_others(ensue.load(tmp_path / "run", device="cpu"))
    assert [output.text for output in both.predict(sources)] == together
    with pytest.raises(EnsueError, match=r"models with features\.contextual cannot be contextual features"):
        model.embed_words([["the", "cat"]])


def test_words_are_aligned_with_their_ids(origin: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("NOUN;X\tThe  Cat sees\tder\n" * 5)
    data = {"names": [1], "source_tokens": 5, "sources": ["1", "2"], "targets": ["3"]}
    words = {"kind": "words", "lowercase": True}
    job = begin_job(writes_with(origin, tmp_path / "pairs.tsv", data=data, tokenizer=words), None)
    coder = job.parts.coder  # type: ignore[attr-defined]
    assert coder.words(["NOUN;X", "The  Cat sees"]) == ["", "", "", "The", "Cat", ""]
    for columns in (["", ""], ["NOUN", "the"], ["X;Y;Z;X;X;Y", "a b c"], ["X", "The <UNK> cat"]):
        assert len(coder.words(columns)) == len(coder.encode(columns)[0])


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"tokenizer": {"kind": "bpe"}}, 'the tokens of the source are bpe; expected tokenizer.kind = "words"'),
        ({"encoder": None, "decoder": {"kind": "lstm", "d_model": 8}}, r"features\.contextual needs an encoder"),
        ({"features": {"contextual": ["nowhere"]}}, "nowhere: no such run directory"),
    ],
)
def test_invalid_contextual_features_are_errors_of_one_line(
    tables: dict[str, Any], message: str, origin: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text(source_and_target(9))
    with pytest.raises(EnsueError, match=message) as caught:
        run_tiny(writes_with(origin, tmp_path / "pairs.tsv", **tables), tmp_path / "run")
    assert "\n" not in str(caught.value)
