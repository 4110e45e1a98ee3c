"""Exported classifiers and taggers over fine-tuned layers compute the same in transformers."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.errors import EnsueError
from ensue.extensions.exporting.exporting import export_run
from ensue.extensions.importing.importing import import_run
from training.classifiers import TEXTS, write_files
from training.taggers import TAGGED
from training.tiny import run_tiny, small_recipe, tiny_recipe
from training.tiny_masked import masked_recipe

from .published import FRAME, Bert, byte_level, wordpiece, write_bert

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs
TANH = {"d_hidden": 8, "activation": "tanh"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and masked models: ensue's without segments, a published one, one with one segment."""
    path = tmp_path_factory.mktemp("heads")
    write_files(path)
    corpus = (path / "text.txt").read_text().splitlines()
    run_tiny(masked_recipe(path / "text.txt", train={"steps": 2, "validations": 1}), path / "ours")
    reads = wordpiece(corpus=corpus)
    write_bert(path / "bert", Bert.random(reads.get_vocab_size(), context=64), reads)
    import_run(path / "bert", path / "published")
    reads = byte_level(FRAME, first=True)
    single = Bert.random(reads.get_vocab_size(), context=64)
    single.tensors["embeddings.token_type_embeddings.weight"] = torch.ones(1, 8)
    write_bert(path / "one", single, reads, type_vocab_size=1)
    import_run(path / "one", path / "single")
    return path


def tuned(folder: Path, origin: str, task: str, train: str, out: Path, **tables: Any) -> Any:
    """Fine-tune a run for a few steps, and return its pipeline."""
    encoder = {"from": str(folder / origin)}
    run_tiny(
        small_recipe(task, folder / train, tables, encoder=encoder, steps=6, batch_size=8, learning_rate=0.02), out
    )
    return ensue.load(out, device="cpu")


def exported(kind: str, run: Path, out: Path) -> tuple[Any, Any]:
    """Load an export with transformers; no tensor is missing or unexpected."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (ensue[parity])")
    export_run(run, out)
    model, info = getattr(transformers, kind).from_pretrained(out, output_loading_info=True)
    assert not any(info[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval(), transformers.AutoTokenizer.from_pretrained(out)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and causal language models of the shapes of GPT."""
    path = tmp_path_factory.mktemp("causal")
    write_files(path)
    attends = {"kind": "transformer", "d_embedding": 8, "d_model": 8, "num_heads": 2, "context": 64}
    shapes: dict[str, dict[str, Any]] = {
        "pre": {"positions": "learned"},
        "post": {"positions": "learned", "norm": "post", "activation": "gelu-tanh"},
        "rotary": {"positions": "rotary", "d_embedding": 6},
    }
    for name, shape in shapes.items():
        bpe = {"kind": "bpe", "max_size": 300}
        recipe = tiny_recipe(path / "text.txt", model=attends | shape, tokenizer=bpe, steps=2, validations=1)
        run_tiny(recipe, path / name)
    return path


@pytest.mark.parametrize("origin", ["pre", "post", "rotary"])
@pytest.mark.parametrize("splitter", ["simple", "whitespace"])
def test_a_classifier_over_a_causal_model_computes_the_same_in_transformers(
    origin: str, splitter: str, causal: Path, tmp_path: Path
) -> None:
    """Texts with odd whitespace and punctuation, alone and in a batch, where padding follows the end symbol."""
    pipeline = tuned(
        causal, origin, "classification", "topics.tsv", tmp_path / "run", head={"pooling": ["last"]},
        data={"splitter": splitter},
    )  # fmt: skip
    theirs, reads = exported("AutoModelForSequenceClassification", tmp_path / "run", tmp_path / "out")
    inputs = [*(text for text, _ in TEXTS[:8]), "salt...  oven ,,\tpiano", "é", "it isn't [a] 3,000-goal race!?"]
    expected = np.array([list(answer.probabilities.values()) for answer in pipeline.predict(inputs)])
    with torch.inference_mode():
        together = theirs(**reads(inputs, return_tensors="pt", padding=True)).logits.numpy()
        alone = np.concatenate([theirs(**reads(text, return_tensors="pt")).logits.numpy() for text in inputs])
    for logits in (together, alone):
        centered = logits - logits.mean(1, keepdims=True)
        np.testing.assert_allclose(centered, [log_odds(shares) for shares in expected], atol=1e-4)


@pytest.mark.parametrize("origin", ["pre", "rotary"])
def test_a_tagger_over_a_causal_model_computes_the_same_in_transformers(
    origin: str, causal: Path, tmp_path: Path
) -> None:
    pipeline = tuned(causal, origin, "labeling", "names.txt", tmp_path / "run")
    theirs, reads = exported("AutoModelForTokenClassification", tmp_path / "run", tmp_path / "out")
    assert tuple(theirs.config.id2label.values()) == tuple(pipeline.labels.tags.symbols)
    for sentence in TAGGED[:12]:
        batch = reads(" ".join(sentence.words), return_tensors="pt", return_offsets_mapping=True)
        ends = [end for _, end in batch.pop("offset_mapping")[0].tolist()]
        with torch.inference_mode():
            logits = theirs(**batch).logits[0].numpy()
        words = np.cumsum([len(word) + 1 for word in sentence.words]) - 1
        subwords = pipeline.subwords.texts([sentence.words]).batch(np.zeros(1, np.int64), torch.device("cpu"))
        with torch.inference_mode():
            x = torch.zeros(1, len(words), 0)
            expected = pipeline.model.emissions(x, torch.zeros(1, len(words), dtype=torch.int64), None, subwords)[0]
        np.testing.assert_allclose(logits[[ends.index(end) for end in words]], expected, atol=1e-4)


def log_odds(probabilities: Any) -> Any:
    log_probabilities = np.log(np.asarray(list(probabilities), np.float64))
    return log_probabilities - log_probabilities.mean()


@pytest.mark.parametrize(
    ("origin", "data", "head"),
    [
        ("published", "topics.tsv", {}), ("published", "topics.tsv", TANH), ("published", "pairs.tsv", TANH),
        ("ours", "pairs.tsv", {}), ("single", "pairs.tsv", {}),
    ],
)  # fmt: skip
def test_a_classifier_over_a_masked_model_computes_the_same_in_transformers(
    origin: str, data: str, head: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    table = {"max_tokens": 3} if data == "pairs.tsv" else {}
    pipeline = tuned(
        folder, origin, "classification", data, tmp_path / "run", head={"pooling": ["first"], **head}, data=table
    )
    theirs, reads = exported("AutoModelForSequenceClassification", tmp_path / "run", tmp_path / "out")
    texts = [text for text, _ in TEXTS[:12]]
    inputs: Any = texts if data == "topics.tsv" else [(a[:12].strip(), b[:12].strip()) for a, b in pairwise(texts)]
    for one, answer in zip(inputs, pipeline.predict(inputs), strict=True):
        batch = reads(*([one] if isinstance(one, str) else one), return_tensors="pt")
        with torch.inference_mode():
            logits = theirs(**batch).logits[0]
        expected = [answer.probabilities[theirs.config.id2label[n]] for n in range(len(logits))]
        np.testing.assert_allclose(logits - logits.mean(), log_odds(expected), atol=1e-4)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_a_tagger_over_a_masked_model_computes_the_same_in_transformers(
    pooling: str, folder: Path, tmp_path: Path
) -> None:
    """The scores of the subwords of a word are pooled as in ensue."""
    encoder = {"pooling": pooling}
    pipeline = tuned(folder, "published", "labeling", "names.txt", tmp_path / "run", encoder=encoder)
    theirs, reads = exported("AutoModelForTokenClassification", tmp_path / "run", tmp_path / "out")
    assert tuple(theirs.config.id2label.values()) == tuple(pipeline.labels.tags.symbols)
    for sentence in TAGGED[:12]:
        batch = reads(sentence.words, is_split_into_words=True, return_tensors="pt")
        with torch.inference_mode():
            logits = theirs(**batch).logits[0].numpy()
        owners = np.array([-1 if owner is None else owner for owner in batch.word_ids()])
        places = [np.flatnonzero(owners == number) for number in range(len(sentence.words))]
        pooled = [logits[positions[:1] if pooling == "first" else positions].mean(0) for positions in places]
        words, _ = pipeline.reader.read([sentence.words])
        subwords = pipeline.subwords.texts([sentence.words]).batch(np.zeros(1, np.int64), torch.device("cpu"))
        x = words.vectors.new_zeros(1, len(pooled), 0)
        with torch.inference_mode():
            expected = pipeline.model.emissions(x, torch.zeros(1, len(pooled), dtype=torch.int64), None, subwords)[0]
        np.testing.assert_allclose(pooled, expected, atol=1e-4)


LAST: dict[str, Any] = {"head": {"pooling": ["last"]}}
FIRST: dict[str, Any] = {"head": {"pooling": ["first"]}}
SPLIT: dict[str, Any] = {"data": {"splitter": "treebank"}}
WORDS: dict[str, Any] = {"features": {"d_words": 3}}
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("classification", "pre", {}, r"head.pooling = \['mean', 'max'\]; a class of transformers reads only the last"),
    ("classification", "pre", {"head": {"pooling": ["last"], "d_hidden": 8}}, "head.d_hidden; a class of"),
    ("classification", "pre", LAST | SPLIT, "data.splitter = treebank, which no tokenizer"),
    ("labeling", "post", {}, "norm = post; GPT has no class of transformers for tags"),
    ("labeling", "pre", {"head": {"kind": "crf"}}, "head.kind = crf; transformers predicts"),
    ("labeling", "pre", WORDS, "word features in addition to the layers"),
    ("classification", "published", {}, r"\['mean', 'max'\]; a class of transformers reads only \[CLS\]"),
    ("classification", "published", {"head": {"pooling": ["first"], "ngrams": 1}}, "head.ngrams; no class of"),
    ("classification", "published", {"head": {"pooling": ["first"], "d_hidden": 8}}, "activation = relu; expected 0,"),
    ("classification", "published", FIRST | WORDS, "word features in addition to the layers"),
    ("classification", "published", FIRST | SPLIT, "data.splitter = treebank, which no tokenizer"),
    ("labeling", "published", {"head": {"repeats": True}}, "word features in addition to the layers, or head.repeats"),
    ("labeling", "published", {"head": {"kind": "crf"}}, "head.kind = crf; transformers predicts each tag"),
    ("labeling", "published", {"data": {"labels": ["2", "3"]}}, "label columns or overlapping spans; classes of"),
    ("labeling", "published", {"data": {"nested": 1}}, "or overlapping spans; classes of transformers have one"),
    ("labeling", "published", {"encoder": {"from": "", "kind": "lstm", "d_model": 4}}, "not a model of transformers;"),
]


@pytest.mark.parametrize(("task", "origin", "tables", "message"), REFUSED)
def test_heads_that_transformers_lacks_are_refused(
    task: str, origin: str, tables: dict[str, Any], message: str, folder: Path, causal: Path, tmp_path: Path
) -> None:
    data = "names.txt" if task == "labeling" else "topics.tsv"
    tuned(folder if origin == "published" else causal, origin, task, data, tmp_path / "run", **tables)
    with pytest.raises(EnsueError, match=message) as caught:
        export_run(tmp_path / "run", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_first_pooling_needs_bidirectional_layers(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EnsueError, match=r'head\.pooling = "first" is for layers that read in both directions'):
        tuned(
            folder, "ours", "classification", "topics.tsv", tmp_path / "run", head={"pooling": ["first"]},
            encoder={"from": "", "kind": "lstm", "d_model": 4}, directions={"bidirectional": False},
        )  # fmt: skip
