"""Published models as runs: the same hidden states, all commands of the kind, and invalid files in one line."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ensue
from ensue.errors import DataError, EnsueError
from ensue.extensions.exporting.exporting import export_run
from ensue.extensions.importing.directories import MAX_PADDING_ROWS, _remove_padding_rows
from ensue.extensions.importing.family import Configuration, import_parameters
from ensue.extensions.importing.gpt import llama_layout
from ensue.extensions.importing.importing import import_run
from ensue.extensions.importing.tokenizer_files import read_tokenizer
from ensue.models.specification import TransformerEncoder
from ensue.runs.directory import RunDirectory
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.text.tokenizers import Tokenizer, train_tokenizer
from ensue.training.imported import Imported, build_recipe, write_run

from .published import Bert, byte_level, odd_texts, wordpiece, write, write_bert

TOKENIZER = wordpiece()
SIZE = TOKENIZER.get_vocab_size()


DEBERTA = {"relative_attention": True, "position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True,
           "pos_att_type": "p2c|c2p", "position_biased_input": False}  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "bert"
    write_bert(path, Bert.random(SIZE), TOKENIZER)
    return path


@pytest.fixture(scope="module")
def run(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imported") / "run"
    import_run(directory, path)
    return path


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    """A copy of the directory that a test may change."""
    target = tmp_path / "copy"
    target.mkdir()
    for path in directory.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def refused(path: Path, tmp_path: Path, **options: Any) -> str:
    with pytest.raises(EnsueError) as caught:
        import_run(path, tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "config.json").exists()
    return str(caught.value)


def test_an_imported_bert_computes_the_hidden_states_of_the_published_model(run: Path) -> None:
    pipeline = ensue.load(run, device="cpu")
    reference = Bert.random(SIZE)
    for text in ["the house", "a café in the sun"]:
        ids = torch.tensor(pipeline.coder.add_frame(pipeline.coder.encode(text)))
        expected = reference(ids)
        hidden = pipeline.model(ids[None])[0]
        torch.testing.assert_close(hidden.double(), expected, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(pipeline.embed([text])[0], expected.mean(0), atol=1e-5)


def test_an_imported_model_predicts_scores_evaluates_and_embeds(run: Path, tmp_path: Path) -> None:
    pipeline = ensue.load(run, device="cpu")
    assert len(pipeline.predict(["the [MASK] of"])[0].masks[0]) == 5
    assert len(pipeline.score("the house")) == len(pipeline.coder.encode("the house"))
    (tmp_path / "text").write_text("The house of the sun.\n" * 40)
    assert pipeline.evaluate(tmp_path / "text").as_json()["masked"] > 10
    assert pipeline.embed_words([["the", "house"]])[0].shape == (2, 8)
    assert "sha256" in (run / "README.md").read_text()
    assert RunDirectory(run).config["imported"]["kind"] == "bert"


def card_commands(run: Path) -> list[str]:
    """Return the commands on the card of a run."""
    return (run / "README.md").read_text().split("```")[1].strip().split("\n")


def test_the_card_has_the_commands_that_the_model_supports(run: Path, tmp_path: Path) -> None:
    assert any("ensue predict" in line for line in card_commands(run))
    write_bert(tmp_path / "bert", Bert.random(SIZE, head=False), TOKENIZER)
    import_run(tmp_path / "bert", tmp_path / "run")
    assert [line.split()[1] for line in card_commands(tmp_path / "run")] == ["embed", "evaluate"]
    assert "--similarity" in card_commands(tmp_path / "run")[1]


def test_older_tensor_names_and_a_prefix_give_the_same_weights(
    directory: Path, copy: Path, tmp_path: Path, run: Path
) -> None:
    tensors = load_file(directory / "model.safetensors")
    older = {}
    for name, tensor in tensors.items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        older[old if name.startswith("cls.") else f"bert.{old}"] = tensor
    older["cls.predictions.decoder.weight"] = tensors["embeddings.word_embeddings.weight"].clone()
    older["bert.embeddings.position_ids"] = torch.arange(20)
    save_file(older, copy / "model.safetensors")
    assert import_run(copy, tmp_path / "out").notes == []
    ours, theirs = (load_file(path / "model.safetensors") for path in (run, tmp_path / "out"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())


def test_a_model_without_a_head_embeds_and_refuses_predictions(copy: Path, tmp_path: Path) -> None:
    save_file(Bert.random(SIZE, head=False).tensors, copy / "model.safetensors")
    import_run(copy, tmp_path / "out")
    pipeline = ensue.load(tmp_path / "out", device="cpu")
    assert pipeline.embed(["the house"]).shape == (1, 8)
    for use in (lambda: pipeline.predict(["a [MASK]"]), lambda: pipeline.score("a"), lambda: pipeline.evaluate(copy)):
        with pytest.raises(EnsueError, match="no head for masks"):
            use()


@pytest.mark.parametrize(
    ("pooling", "pooling_name"), [({"pooling_mode_cls_token": True}, "first"), ({"pooling_mode": "max"}, "max")]
)
def test_the_files_of_sentence_transformers_are_kept(
    copy: Path, tmp_path: Path, pooling: dict[str, Any], pooling_name: str
) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (copy / "modules.json").write_text(json.dumps(modules))
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    import_run(copy, tmp_path / "out")
    pipeline = ensue.load(tmp_path / "out", device="cpu")
    vectors = pipeline.embed(["the house"])
    pooled = ensue.load(tmp_path / "out", device="cpu").embed(["the house"], pooling=pooling_name)
    np.testing.assert_array_equal(vectors, pooled)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    modules.append({"path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (copy / "modules.json").write_text(json.dumps(modules))
    assert "Dense" in refused(copy, tmp_path / "other")


@pytest.mark.parametrize("table", [{}, {"pooling": "first", "unit_length": True}, {"pooling": "last"}])
def test_the_layout_of_sentence_transformers_is_written(copy: Path, tmp_path: Path, table: dict[str, Any]) -> None:
    imported = import_run(copy, tmp_path / "run")
    sentences = imported.recipe.sentences.model_copy(update=table)  # type: ignore[attr-defined]
    write_run(
        replace(imported, recipe=imported.recipe.model_copy(update={"sentences": sentences})),
        tmp_path / "run",
        overwrite=True,
    )
    export_run(tmp_path / "run", tmp_path / "out", "sentence-transformers")
    assert import_run(tmp_path / "out", tmp_path / "again").recipe.sentences == sentences  # type: ignore[attr-defined]
    ours, again = (ensue.load(tmp_path / name, device="cpu").embed(["the house"]) for name in ("run", "again"))
    np.testing.assert_allclose(again, ours, atol=1e-6)
    assert json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())["max_seq_length"] == 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("encoder", [{"positions": "rotary"}, {"positions": "rotary", "parallel": True,
    "rotary_share": 0.5, "rotary_base": 99.0}, {"positions": "learned"},
    {"positions": "learned", "norm": "post", "activation": "gelu-tanh"}])  # fmt: skip
def test_an_exported_language_model_is_imported_again(encoder: dict[str, Any], tmp_path: Path) -> None:
    """An untied softmax has its bias in the matrix of the export."""
    table = {"kind": "transformer", "d_model": 16, "num_layers": 2, "num_heads": 2, "context": 40, **encoder}
    recipe = build_recipe({"task": "language-modeling", "tokens": {"d_embedding": 16}, "encoder": table}, tmp_path)
    parts = LanguageModelParts(train_tokenizer("characters", ["the house of the sun"]))
    model = parts.build(recipe).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    tensors, size = {name: part.detach() for name, part in model.named_parameters()}, model.vocabulary_size
    (tmp_path / "source").touch()
    source = tmp_path / "source"
    write_run(
        Imported(source, (source,), "a test", recipe, parts, {"vocabulary_size": size}, tensors), tmp_path / "run"
    )
    export_run(tmp_path / "run", tmp_path / "out")
    assert import_run(tmp_path / "out", tmp_path / "again").notes == []
    ids = torch.arange(size).repeat(2, 1)
    logits = ensue.load(tmp_path / "again", device="cpu").model(ids)[0]
    torch.testing.assert_close(logits, model(ids)[0], atol=1e-4, rtol=1e-4)


def test_weights_may_be_in_several_files(directory: Path, copy: Path, tmp_path: Path, run: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, copy / file)
    places = {name: file for file, part in halves.items() for name in part}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (copy / "model.safetensors").unlink()
    import_run(copy, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    (copy / "model-2.safetensors").unlink()
    assert "1 of 2 files of weights are missing: model-2.safetensors" in refused(copy, tmp_path / "other")


SCALED = {"rope_parameters": {"rope_type": "llama3"}}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}
WINDOWS = {"layer_types": ["sliding_attention"] * 2}
CONFIGURATIONS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "berd"}, 'did you mean "bert"?'),
    ({"model_type": "gemma"}, "this architecture is unsupported"),
    ({"model_type": "llama", "attention_bias": False, **SCALED}, "of the kind 'llama3' are not supported"),
    ({"model_type": "deberta-v2", "conv_kernel_size": 3, **DEBERTA}, "conv_kernel_size = 3 is not supported"),
    ({"model_type": "deberta-v2", **DEBERTA, "pos_att_type": ["c2p"]}, "is not supported; expected c2p and p2c"),
    ({"model_type": "modernbert", "norm_bias": True}, "norm_bias = True is not supported; expected False"),
    ({"model_type": "modernbert", "hidden_act": "gelu", **LAYERS}, "expected full_attention at every n-th layer"),
    ({"model_type": "modernbert", "hidden_act": "gelu", **WINDOWS}, "expected full_attention at every n-th layer"),
    ({"num_hidden_layers": 900}, "no tensor encoder.layer.2."),
    ({"hidden_size": 1_000_000}, "the model cannot be built"),
    ({"hidden_size": "8"}, "expected a positive integer for hidden_size, found '8'"),
    ({"hidden_act": {"a": 1}}, "expected hidden_act to be one of"),
]


@pytest.mark.parametrize(("changes", "message"), CONFIGURATIONS)
def test_unsupported_configurations_are_refused_in_one_line(
    copy: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = copy / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    assert message in refused(copy, tmp_path)


def replace_tensor(copy: Path, name: str, tensor: torch.Tensor | None) -> None:
    """Replace, add or remove a tensor of a model."""
    tensors = load_file(copy / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors | ({} if tensor is None else {name: tensor}), copy / "model.safetensors")


def change_tokenizer(copy: Path, **changes: Any) -> None:
    path = copy / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


LAST_BIAS = "encoder.layer.1.output.dense.bias"
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda copy: (copy / "model.safetensors").unlink(), "no weights: expected model.safetensors"),
    "pickled": (
        lambda copy: (copy / "model.safetensors").rename(copy / "pytorch_model.bin"),
        "pytorch_model.bin: pickled weights can run code and are not read; transformers converts them",
    ),
    "a pipe": (
        lambda copy: ((copy / "model.safetensors").unlink(), os.mkfifo(copy / "model.safetensors")),
        "model.safetensors: neither a file nor a folder",
    ),
    "vocabulary is a folder": (
        lambda copy: ((copy / "tokenizer.json").unlink(), (copy / "vocab.txt").mkdir()),
        "vocab.txt: cannot be read (Is a directory)",
    ),
    "flat": (
        lambda copy: replace_tensor(copy, "encoder.layer.0.attention.self.key.weight", torch.zeros(64)),
        "tensor shapes do not match config.json: encoder.layer.0.attention.self.query.weight",
    ),
    "cut off": (
        lambda copy: (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:-100]),
        "truncated, damaged or not safetensors",
    ),
    "lying header": (
        lambda copy: (copy / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + bytes(999)),
        "truncated, damaged or not safetensors",
    ),
    "no config": (lambda copy: (copy / "config.json").unlink(), "no config.json"),
    "no layer": (lambda copy: replace_tensor(copy, LAST_BIAS, None), f"no tensor {LAST_BIAS}"),
    "not finite": (lambda copy: replace_tensor(copy, LAST_BIAS, torch.full((8,), torch.nan)), "not finite"),
    "other tokenizer": (lambda copy: write(copy, wordpiece(corpus=["a b"])), "rows; expected files of one model"),
    "no tokenizer": (lambda copy: (copy / "tokenizer.json").unlink(), "no tokenizer.json; transformers writes it"),
    "odd tokenizer": (
        lambda copy: (copy / "tokenizer.json").write_text('{"model": 3}'),
        "tokenizer.json: unsupported tokenizer",
    ),
    "odd normalizer": (
        lambda copy: change_tokenizer(copy, normalizer=PRECOMPILED),
        "unsupported tokenizer: the normalizer Precompiled has a damaged map of characters",
    ),
    "untied": (
        lambda copy: replace_tensor(copy, "cls.predictions.decoder.weight", torch.zeros(SIZE, 8)), "only tied weights"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case_name", FILES)
def test_invalid_files_are_refused_in_one_line(copy: Path, tmp_path: Path, case_name: str) -> None:
    spoil, message = FILES[case_name]
    spoil(copy)
    assert message in refused(copy, tmp_path)


@pytest.mark.parametrize("size", [1, 7, 8, 100, 1024, 5000])
def test_padding_rows_have_a_maximum(size: int) -> None:
    """A vocabulary without padding rows is never refused."""
    tokenizer, max_padding = SimpleNamespace(vocabulary_size=size), min(MAX_PADDING_ROWS, size // 8)
    for rows in {size, size + max_padding}:
        weights = {"features.weight": torch.zeros(rows, 1)}
        assert len(_remove_padding_rows(weights, tokenizer, Path())) == (rows > size)
        assert len(weights["features.weight"]) == size
    for rows in (size - 1, size + max_padding + 1):
        with pytest.raises(DataError, match="expected files of one model"):
            _remove_padding_rows({"features.weight": torch.zeros(rows, 1)}, tokenizer, Path())


@pytest.mark.parametrize("rows", [0, 5, 12])
def test_keys_and_values_that_do_not_fit_the_heads_are_refused(rows: int) -> None:
    encoder = TransformerEncoder(
        kind="transformer", d_model=8, num_layers=1, num_heads=4, norm_kind="rms", gated=True
    )  # fmt: skip
    parts = llama_layout(SimpleNamespace(encoder=encoder, tokens=SimpleNamespace(tied=True)))
    tensors = {name: torch.zeros(8, 8) for part in parts for name in part.published}
    tensors |= {f"layers.0.self_attn.{side}_proj.weight": torch.zeros(rows, 8) for side in "kv"}
    with pytest.raises(DataError, match=r"tensor shapes do not match .*self_attn\.k_proj\.weight"):
        import_parameters(parts, tensors, Path("model.safetensors"))


def test_existing_runs_and_other_files_are_not_replaced(directory: Path, run: Path, tmp_path: Path) -> None:
    before = (run / "manifest.json").read_bytes()
    with pytest.raises(EnsueError, match="there is a run already"):
        import_run(directory, run)
    assert (run / "manifest.json").read_bytes() == before
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert "not empty" in refused(directory, tmp_path, overwrite=True)


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_and_offsets_of_wordpiece_are_those_of_the_library(tmp_path: Path, lowercase: bool) -> None:
    library = wordpiece(lowercase=lowercase)
    write(tmp_path, library)
    tokenizer = read_tokenizer(tmp_path, is_masked=True)
    assert tokenizer.kind == "wordpiece"
    same_as_the_library(tokenizer, library)


def test_a_vocabulary_of_lines_may_have_symbols_that_end_lines_elsewhere(tmp_path: Path) -> None:
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\u2028", "\x85", "the", "##se"]
    (tmp_path / "vocab.txt").write_text("\r\n".join(symbols) + "\r\n", encoding="utf-8", newline="")
    ours = read_tokenizer(tmp_path, is_masked=True)
    assert [ours.symbol(id) for id in range(ours.vocabulary_size)] == symbols
    assert ours.encode("these").tolist() == [8, 9]


def test_ids_and_offsets_of_byte_level_subwords_are_those_of_the_library(tmp_path: Path) -> None:
    library = byte_level(["<|endoftext|>"], first=False)
    write(tmp_path, library, {"bos_token": "<|endoftext|>"})
    ours = read_tokenizer(tmp_path, is_masked=False)
    assert (ours.kind, ours.symbol(ours.start_id)) == ("bpe", "<|endoftext|>")
    same_as_the_library(ours, library)


def test_an_unknown_tokenizer_pipeline_is_stored_as_published(tmp_path: Path) -> None:
    library = wordpiece()
    library.normalizer = None
    write(tmp_path, library)
    ours = read_tokenizer(tmp_path, is_masked=True)
    assert ours.kind == "published"
    same_as_the_library(Tokenizer.from_json(json.loads(json.dumps(ours.to_json()))), library)
    assert ours.decode(ours.encode("the house")) == "the house"


def same_as_the_library(ours: Any, library: Any) -> None:
    library.no_truncation()
    library.no_padding()
    for text in odd_texts(300, seed=7):
        expected = library.encode(text, add_special_tokens=False)
        ids, offsets = ours.encode_with_offsets(text)
        assert ids.tolist() == expected.ids == ours.encode(text).tolist()
        assert list(map(tuple, offsets.tolist())) == expected.offsets


def test_a_special_token_that_is_spelled_in_a_text_is_text(directory: Path) -> None:
    ours = read_tokenizer(directory, is_masked=True)
    assert not set(ours.encode("a [SEP] b [MASK]").tolist()) & set(ours.special_ids.values())


def test_an_exported_model_has_the_imported_tensors_and_tokenizer(directory: Path, run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "back")
    before, after = (load_file(path / "model.safetensors") for path in (directory, tmp_path / "back"))
    assert after.keys() == {name if name.startswith("cls.") else f"bert.{name}" for name in before}
    assert all(torch.equal(tensor, after.get(name, after.get(f"bert.{name}"))) for name, tensor in before.items())
    import_run(tmp_path / "back", tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    config = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    with pytest.raises(EnsueError, match="not empty"):
        export_run(run, directory.parent)


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.complex64])
def test_weights_must_be_floating_point_numbers(copy: Path, tmp_path: Path, kind: torch.dtype) -> None:
    tensors = load_file(copy / "model.safetensors")
    save_file({name: tensor.to(kind) for name, tensor in tensors.items()}, copy / "model.safetensors")
    with pytest.raises(DataError, match=r"expected floating-point numbers|cannot be read"):
        import_run(copy, tmp_path / "run")


def test_rotary_parameters_must_be_a_table() -> None:
    with pytest.raises(DataError, match="kind 'default' are not supported"):
        Configuration({"rope_scaling": "default"}, Path("config.json")).rotary(1.0)


@pytest.mark.parametrize("ending", ["word_embeddings.weight", "decoder.weight", "predictions.bias"])
def test_a_scalar_in_place_of_a_matrix_is_refused(copy: Path, tmp_path: Path, ending: str) -> None:
    tensors = load_file(copy / "model.safetensors")
    (name,) = [name for name in tensors if name.endswith(ending)] or ["cls.predictions.decoder.weight"]
    save_file(tensors | {name: torch.tensor(1.0)}, copy / "model.safetensors")
    with pytest.raises(DataError):
        import_run(copy, tmp_path / "run")


def test_a_failed_import_does_not_replace_a_run(
    run: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(run, tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.suffix != ".lock"}
    monkeypatch.setattr("ensue.training.imported.write_tensors", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        import_run(copy, out, overwrite=True)
    assert all((out / name).read_bytes() == content for name, content in before.items())


def test_an_existing_run_is_refused_before_any_file_is_read(run: Path, tmp_path: Path) -> None:
    with pytest.raises(EnsueError, match="there is a run already"):
        import_run(tmp_path / "missing", run)
