"""Training sequence-to-sequence models: data, notes, and contradicting settings."""

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.console.reporter import first_lines
from ensue.data.examples import Pair
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.recipe import read_recipe
from ensue.recipe.tables import TokenizerRecipe
from ensue.tasks.sequence_to_sequence.job import SequenceToSequenceJob
from ensue.tasks.sequence_to_sequence.texts import PairCoder, with_other_stems
from training.divided import job
from training.tiny import run_tiny
from training.tiny_pairs import LEARNED, LSTM, SMALL, pair_recipe, pairs
from training.tiny_texts import Listener

SOON = LEARNED | {"steps": 60, "batch_tokens": 100, "validations": 1}
"""Enough steps to learn a single rule."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("translators") / "train.tsv"
    path.write_text(pairs(200))
    return path


def test_tied_embeddings_need_one_vocabulary(corpus: Path, tmp_path: Path) -> None:
    tables = {"tokens": {"d_embedding": 16, "tied": "all"}, "target_tokenizer": {"kind": "words"}}
    with pytest.raises(RecipeError, match="needs one vocabulary"):
        run_tiny(pair_recipe(corpus, **tables), tmp_path / "run")


@pytest.mark.parametrize("kind", ["characters", "bytes"])
@pytest.mark.parametrize("target", [None, TokenizerRecipe(kind="bytes")])
def test_names_are_symbols_with_tokens_of_any_kind(kind: Any, target: TokenizerRecipe | None) -> None:
    """A name may be spelled like a special token."""
    pairs_of_names = [Pair(("walk", "V;PST"), ("walked",)), Pair(("walk", "<end>|<unknown>"), ("walks",))]
    coder = PairCoder.train(pairs_of_names, TokenizerRecipe(kind=kind), target, names=[2])
    ids = [coder.encode(pair.sources)[0] for pair in pairs_of_names]
    names = [[coder.source.symbol(id) for id in row[4:-1]] for row in ids]
    assert names == [["V", "PST"], ["<end>", "<unknown>"]]
    special = {coder.source.end_id, coder.source.unknown_name_id}
    assert not special & {id for row in ids for id in row[:-1].tolist()}


def test_long_sources_are_cut_and_long_targets_left_out_with_notes(corpus: Path, tmp_path: Path) -> None:
    recipe = pair_recipe(corpus, data={"source_tokens": 5, "target_tokens": 6}, train={"steps": 1})
    listener = Listener()
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    assert listener.facts is not None
    notes = listener.facts.notes
    assert any("sources have 5 tokens or more; the first 5 are read" in note for note in notes)
    assert any("left out: targets of over 6 tokens" in note for note in notes)
    assert SequenceToSequenceJob(recipe).task.train.sources.lengths.max() == 6  # with the end symbol


BAD = {
    "one pair": ("a\tb\n", None),
    "an empty side": ("a\tb\nc\t\n", "train.tsv:2: an empty target"),
    "nothing": ("", "train.tsv: no rows"),
    "no tab": ("a b\nc d\n", "expected a source, a tab and a target"),
    "all too long": ("a b c d\te f g h\n" * 3, "no training pair: all targets are longer than data.target_tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_pairs_are_errors_of_one_line(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    (tmp_path / "train.tsv").write_text(content)
    data = {"target_tokens": 1} if case == "all too long" else {}
    recipe = pair_recipe(tmp_path / "train.tsv", data=data, train={"steps": 1, "validations": 1})
    if message is None:
        run_tiny(recipe, tmp_path / "run")
        assert math.isfinite(ensue.load(tmp_path / "run").score("a", "b"))
        return
    with pytest.raises(DataError, match=message) as raised:
        run_tiny(recipe, tmp_path / "run")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "train"), [(60, SOON | {"learning_rate": 0.05}), (380, LEARNED | {"learning_rate": 0.02})]
)
def test_unknown_words_are_copied(known: int, train: dict[str, Any], tmp_path: Path) -> None:
    """Names unknown to training appear in the outputs."""
    choose = random.Random(0)
    names = ["".join(choose.choices("abcdefgh", k=5)) for _ in range(400)]
    lines = [f"hello {name} !\t{name} says hello\n" for name in names]
    (tmp_path / "train.tsv").write_text("".join(lines[:known]))
    recipe = pair_recipe(
        tmp_path / "train.tsv", encoder=LSTM, decoder=LSTM, attention={"kind": "bilinear"}, head={"copying": True},
        tokenizer={"kind": "words", "min_count": 5}, train=train,
    )  # fmt: skip
    run_tiny(recipe, tmp_path / "run")
    model = ensue.load(tmp_path / "run")
    outputs = [str(output) for output in model.predict([line.split("\t")[0] for line in lines[380:]])]
    assert outputs == [f"{name} says hello" for name in names[380:]]
    assert model.score("hello gabfh !", "gabfh says hello") < 1
    assert math.isfinite(model.score("hello gabfh !", "other says hello"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"decoder": {"kind": "window"}}, "decoder.kind window has no state"),
        ({"encoder": None, "head": {"copying": True}}, "head.copying needs an encoder"),
        ({"encoder": None, "decoder": SMALL["decoder"] | {"positions": "learned"}}, "without an encoder, decoder.pos"),
        ({"encoder": None, "target_tokenizer": {"kind": "words"}}, "without an encoder, both sides need one"),
        ({"decoder": {"kind": "none"}}, "decoder.kind none has no state"),
        ({"attention": {"kind": "dot"}}, "a transformer as decoder"),
        ({"head": {"copying": True, "label_smoothing": 0.1}}, "label_smoothing cannot be combined with head.copying"),
        ({"head": {"copying": True}, "target_tokenizer": {"kind": "words"}}, "copying needs one vocabulary"),
        ({"decoder": LSTM, "attention": {"kind": "dot"}, "encoder": LSTM}, "dot products need d_in = d_memory"),
        ({"decoder": LSTM, "attention": {"num_heads": 3}}, "is not divisible by attention.num_heads"),
    ],
)
def test_contradictions_are_refused(
    tables: dict[str, dict[str, object]], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message):
        run_tiny(pair_recipe(corpus, **tables), tmp_path / "run")


def test_pairs_in_another_encoding_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(pairs(20).encode("latin-1"))
    job = SequenceToSequenceJob(
        pair_recipe(tmp_path / "train.tsv", data={"encoding": "latin-1", "valid_fraction": 0.5})
    )
    assert any("\u00f6" in target or "\u00fc" in target for pair in job.valid_pairs for target in pair.targets)
    with pytest.raises(DataError, match="not UTF-8"):
        SequenceToSequenceJob(pair_recipe(tmp_path / "train.tsv"))


def test_all_samples_are_shown(corpus: Path) -> None:
    job = SequenceToSequenceJob(pair_recipe(corpus, train={"samples": 3}))
    shown = first_lines(job.task.sample(job.build_model().eval(), 0))
    for line, pair in zip(shown, job.valid_pairs[:3], strict=True):
        assert re.fullmatch(f"{pair.sources[0]} → .*\\({pair.targets[0]}\\)", line)


@pytest.mark.parametrize("search", [{"length_penalty": 11}, {"min_tokens": 9, "max_tokens": 8}])
def test_an_invalid_search_is_refused_before_training(search: dict[str, object], corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(EnsueError, match=r"length_penalty|min_tokens is 9"):
        run_tiny(pair_recipe(corpus, search=search), tmp_path / "run")
    assert not (tmp_path / "run").exists()


LEMMAS = ("spielen", "sagen", "machen", "lernen", "kochen", "wohnen", "fragen", "putzen", "suchen", "danken")


def participle(lemma: str) -> str:
    return f"ge{lemma[:-2]}t"


def test_copies_with_other_stems_keep_the_inflection_of_their_pair() -> None:
    pairs = [Pair((lemma, "V;PTCP"), (participle(lemma),)) for lemma in LEMMAS]
    short, copies = Pair(("tun", "V;PTCP"), ("getan",)), list(with_other_stems(pairs, 3))
    assert copies[:10] == pairs
    assert len(copies) == 40
    for source, tags, (target,) in ((*pair.sources, pair.targets) for pair in copies):
        assert (tags, target, source[-2:]) == ("V;PTCP", participle(source), "en")
    assert len({pair.sources for pair in copies}) > 35
    assert {letter for pair in copies for letter in pair.sources[0]} <= {letter for word in LEMMAS for letter in word}
    assert list(with_other_stems([short], 3)) == [short]
    assert list(with_other_stems(pairs, 0)) == pairs


def test_other_stems_are_only_in_training_data(tmp_path: Path) -> None:
    rows = [f"{lemma}\t{participle(lemma)}\tV;PTCP\n" for lemma in LEMMAS]
    (tmp_path / "a.tsv").write_text("".join(rows))
    sigmorphon_job = job("transduce-lstm", tmp_path / "a.tsv", format="sigmorphon", other_stems=4)
    assert (len(sigmorphon_job.task.train), len(sigmorphon_job.valid_pairs)) == (9 * 5, 1)
    assert sigmorphon_job.valid_pairs[0].sources[0] in LEMMAS
    for setting in ("tokenizer.kind=words", "target_tokenizer.kind=words", "data.names=[1]"):
        with pytest.raises(RecipeError, match="needs words as the first source column"):
            read_recipe("transduce-lstm", ["data.other_stems=1", setting])
