"""Imported and exported models have the hidden states, logits, ids and offsets of transformers."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import ensue
from ensue.errors import EnsueError
from ensue.extensions.exporting.exporting import export_run
from ensue.extensions.importing.importing import import_run
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.text.tokenizers import train_tokenizer
from ensue.training.imported import Imported, build_recipe, write_run

from .published import byte_level, odd_texts, wordpiece, write

transformers = pytest.importorskip("transformers", reason="transformers is not installed (pip install ensue[parity])")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # theirs
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ROBERTA = {
    "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>",
    "unk_token": "<unk>", "mask_token": "<mask>",
}  # fmt: skip
BERT = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 40, "layer_norm_eps": 1e-12}  # fmt: skip


def noisy(model: Any) -> Any:
    """Return the model with large random weights."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def bert(**keys: Any) -> Any:
    return transformers.BertConfig(**{**BERT, **keys})


def roberta() -> Any:
    keys = {**BERT, "vocab_size": 320, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
    return transformers.RobertaConfig(**keys)


def distilbert() -> Any:
    return transformers.DistilBertConfig(
        vocab_size=160, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=40
    )


def electra(width: int) -> Any:
    return transformers.ElectraConfig(**{**BERT, "embedding_size": width})


def deberta(kind: str, **keys: Any) -> Any:
    shape = {"type_vocab_size": 0, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
             "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
             "max_position_embeddings": 200, "vocab_size": unigram().get_vocab_size()}  # fmt: skip
    return getattr(transformers, kind)(transformers.DebertaV2Config(**{**BERT, **shape, **keys}))


def modern(kind: str, **keys: Any) -> Any:
    shape = {"num_hidden_layers": 4, "local_attention": 6, "max_position_embeddings": 200, "pad_token_id": 1}
    plain = {name: value for name, value in BERT.items() if name != "layer_norm_eps"}
    return getattr(transformers, kind)(transformers.ModernBertConfig(**{**plain, **shape, **keys}))


def unigram() -> Any:
    """Return a tokenizer of XLM-R: pieces of SentencePiece, and a space before the text."""
    pieces = [*SPECIAL[:4], "▁", "▁the", "▁house", "▁sun", *"abcdefghijklmnopqrstuvwxyzé.", "▁of"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.Unigram([(piece, -float(n)) for n, piece in enumerate(pieces)], 3)
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


MASKED: dict[str, tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]] = {
    "bert": (lambda: transformers.BertForMaskedLM(bert()), wordpiece, {}),
    "bert-tanh": (lambda: transformers.BertForMaskedLM(bert(hidden_act="gelu_new")), wordpiece, {}),
    "bert-cased": (lambda: transformers.BertForMaskedLM(bert()), lambda: wordpiece(lowercase=False), {}),
    "bert-pretraining": (lambda: transformers.BertForPreTraining(bert()), wordpiece, {}),
    "bert-headless": (lambda: transformers.BertModel(bert()), wordpiece, {}),
    "roberta": (
        lambda: transformers.RobertaForMaskedLM(roberta()), lambda: byte_level(SPECIAL, first=True), ROBERTA
    ),
    "distilbert": (lambda: transformers.DistilBertForMaskedLM(distilbert()), wordpiece, {}),
    "xlm-roberta": (
        lambda: transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**roberta().to_dict())), unigram,
        ROBERTA,
    ),
    "camembert": (
        lambda: transformers.CamembertModel(transformers.CamembertConfig(**roberta().to_dict())), unigram, ROBERTA
    ),
    "mpnet": (
        lambda: transformers.MPNetForMaskedLM(transformers.MPNetConfig(**{**BERT, "max_position_embeddings": 200})),
        lambda: byte_level(SPECIAL, first=True), ROBERTA,
    ),
    "mpnet-headless": (
        lambda: transformers.MPNetModel(transformers.MPNetConfig(**{**BERT, "max_position_embeddings": 200})),
        lambda: byte_level(SPECIAL, first=True), ROBERTA,
    ),
    **{name: (partial(deberta, kind, **keys), unigram, ROBERTA) for name, kind, keys in (
        ("deberta", "DebertaV2ForMaskedLM", {}), ("deberta-v3", "DebertaV2ForMaskedLM", {"legacy": False}),
        ("deberta-headless", "DebertaV2Model", {"type_vocab_size": 2}),
    )},
    **{name: (partial(modern, kind, **keys), lambda: byte_level(SPECIAL, first=True), ROBERTA) for name, kind, keys in (
        ("modernbert", "ModernBertForMaskedLM", {}), ("modernbert-headless", "ModernBertModel", {}),
        ("modernbert-global", "ModernBertModel", {"layer_types": ["full_attention"] * 4}),
    )},
    "electra": (lambda: transformers.ElectraForMaskedLM(electra(32)), wordpiece, {}),
    "electra-small": (lambda: transformers.ElectraForMaskedLM(electra(24)), wordpiece, {}),
    "albert": (
        lambda: transformers.AlbertForMaskedLM(transformers.AlbertConfig(**{**BERT, "embedding_size": 24})), wordpiece,
        {},
    ),
    "albert-headless": (
        lambda: transformers.AlbertModel(transformers.AlbertConfig(**{**BERT, "embedding_size": 24})), wordpiece, {}
    ),
}  # fmt: skip


LONG = re.compile("mpnet|deberta|modernbert")
"""Models that are tested with long texts, for their relative positions."""


def published(directory: Path, make: Any, tokenizer: Any, names: dict[str, str]) -> Any:
    built = tokenizer()
    model = noisy(make())
    if model.config.vocab_size != built.get_vocab_size():
        model.resize_token_embeddings(built.get_vocab_size())
    model.save_pretrained(directory)
    write(directory, built, names)
    return model


def loaded(kind: str, path: Path) -> Any:
    """Load a directory with transformers; no tensor is missing or unexpected."""
    model, info = getattr(transformers, kind).from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(ours.detach()), np.asarray(theirs.detach()), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", MASKED)
@torch.inference_mode()
def test_masked_models_compute_the_same_after_import_and_export(name: str, tmp_path: Path) -> None:
    theirs = published(tmp_path / "theirs", *MASKED[name])
    import_run(tmp_path / "theirs", tmp_path / "run")
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    batch = tokenizer(
        ["the house of the sun" * (24 if LONG.search(name) else 1), "a café"], return_tensors="pt", padding=True
    )
    ids, mask = batch["input_ids"], batch["attention_mask"]
    expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    real = mask.bool()
    hidden_states = pipeline.model.layers_of(ids, real)
    assert len(hidden_states) == len(expected.hidden_states)
    # the inputs of the first block are narrower in the list of transformers
    from_block = "d_input" in (tmp_path / "run" / "recipe.toml").read_text()
    for ours, reference in list(zip(hidden_states, expected.hidden_states, strict=True))[from_block:]:
        close(ours[real], reference[real], 1e-5)
    if "pooler_output" in expected:
        close(pipeline.model.pooler(hidden_states[-1][:, 0]), expected["pooler_output"], 1e-5)
    logits = expected.get("logits", expected.get("prediction_logits"))
    if logits is not None:
        close(pipeline.model.logits(ids, real, real), logits[real], 1e-4)

    if name in ("electra-small", "albert", "albert-headless") or LONG.search(name):
        with pytest.raises(EnsueError, match=r"encoder\.(d_input = 24|relative_buckets = (8|32)|norm_first = False)"):
            export_run(tmp_path / "run", tmp_path / "back")
        return
    export_run(tmp_path / "run", tmp_path / "back")
    kind = json.loads((tmp_path / "back" / "config.json").read_text())["architectures"][0]
    assert transformers.AutoConfig.from_pretrained(tmp_path / "back").model_type == "bert"
    again = loaded(kind, tmp_path / "back")(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    close(again.hidden_states[-1][real], expected.hidden_states[-1][real], 1e-5)
    if logits is not None:
        close(again.get("logits", again.get("prediction_logits"))[real], logits[real], 1e-4)
    if "pooler_output" in expected:
        close(again["pooler_output"], expected["pooler_output"], 1e-5)
    transformers.AutoModel.from_pretrained(tmp_path / "back")


def test_next_sentence_logits_are_the_same(tmp_path: Path) -> None:
    theirs = published(tmp_path / "theirs", *MASKED["bert-pretraining"])
    import_run(tmp_path / "theirs", tmp_path / "run")
    model = ensue.load(tmp_path / "run", device="cpu").model
    ids, segments = torch.randint(5, 100, (2, 9)), torch.tensor([[0] * 4 + [1] * 5] * 2)
    expected = theirs(input_ids=ids, token_type_ids=segments).seq_relationship_logits
    close(model.next_sentence_logits(model(ids, None, segments)).flip(1), expected, 1e-5)


def causal_models() -> dict[str, tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]]:
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    small = {"vocab_size": 321, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
    return {
        "gpt2": (
            lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**small)),
            lambda: byte_level(["<|endoftext|>"], first=False),
            end,
        ),
        "openai-gpt": (
            lambda: transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**small)),
            wordpiece,
            {"unk_token": "[UNK]"},
        ),
        "gpt2-untied": (
            lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, tie_word_embeddings=False)),
            lambda: byte_level(["<|endoftext|>"], first=False),
            end,
        ),
        **{name: (partial(neox, **keys), lambda: byte_level(["<|endoftext|>"], first=False), end) for name, keys in {
            "pythia": {}, "neox": {"use_parallel_residual": False, "tie_word_embeddings": True},
            "neox-whole": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                               "partial_rotary_factor": 1.0}},
        }.items()},
        **{name: (partial(llama, **keys), lambda: byte_level(["<|endoftext|>"], first=False), end) for name, keys in {
            "llama": {}, "smollm": {"tie_word_embeddings": True, "num_key_value_heads": 2},
            "mistral": {"kind": "Mistral", "num_key_value_heads": 2, "sliding_window": None},
        }.items()},
    }  # fmt: skip


DECODER = {"vocab_size": 321, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 48, "max_position_embeddings": 40}  # fmt: skip


def neox(**keys: Any) -> Any:
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**DECODER, **keys))


def llama(kind: str = "Llama", **keys: Any) -> Any:
    rope = {"rope_type": "default", "rope_theta": 100.0}
    config = getattr(transformers, f"{kind}Config")(**DECODER, rope_parameters=rope, **keys)
    return getattr(transformers, f"{kind}ForCausalLM")(config)


@pytest.mark.parametrize("name", causal_models())
@torch.inference_mode()
def test_causal_models_compute_the_same_after_import_and_export(name: str, tmp_path: Path) -> None:
    theirs = published(tmp_path / "theirs", *causal_models()[name])
    import_run(tmp_path / "theirs", tmp_path / "run")
    model = ensue.load(tmp_path / "run", device="cpu").model
    ids = torch.randint(0, model.vocabulary_size, (3, 17))
    expected = theirs(input_ids=ids, output_hidden_states=True)
    h, _ = model.read(ids)
    close(h, expected.hidden_states[-1], 1e-5)
    close(model(ids)[0], expected.logits, 1e-4)
    if name in ("llama", "smollm", "mistral"):
        with pytest.raises(EnsueError, match=r"encoder\.norm_kind = rms"):
            export_run(tmp_path / "run", tmp_path / "back")
        return
    export_run(tmp_path / "run", tmp_path / "back")
    again = loaded("AutoModelForCausalLM", tmp_path / "back")
    close(again(input_ids=ids).logits, expected.logits, 1e-4)


@pytest.mark.parametrize("name", [*MASKED, "gpt2"])
def test_ids_and_offsets_are_the_same(name: str, tmp_path: Path) -> None:
    _, make, names = {**MASKED, **causal_models()}[name]
    write(tmp_path, make(), names)
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    from ensue.extensions.importing.tokenizer_files import read_tokenizer  # noqa: PLC0415

    ours = read_tokenizer(tmp_path, is_masked=name != "gpt2")
    for text in odd_texts(10_000):
        expected = reference(text, add_special_tokens=False, return_offsets_mapping=True, truncation=False)
        ids, offsets = ours.encode_with_offsets(text)
        assert ids.tolist() == expected["input_ids"], text
        assert list(map(tuple, offsets.tolist())) == expected["offset_mapping"], text
        assert ours.encode(text).tolist() == expected["input_ids"], text


OURS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary"},
    "learned": {"positions": "learned"},
    "post": {"positions": "learned", "norm": "post", "activation": "gelu-tanh"},
}


@pytest.mark.parametrize("layers", OURS)
@pytest.mark.parametrize(
    "tokens", [{"d_embedding": 8, "tied": True}, {"d_embedding": 6, "tied": True}, {"d_embedding": 8}]
)
@torch.inference_mode()
def test_exported_language_models_compute_the_same_in_transformers(
    layers: str, tokens: dict[str, Any], tmp_path: Path
) -> None:
    """The models have a bias, a scale and a projection that transformers lacks."""
    text = "the house of the sun\nand a house"
    tokenizer = train_tokenizer("characters", [text])
    encoder = {"kind": "transformer", "d_model": 8, "num_layers": 2, "num_heads": 2, "context": 40, **OURS[layers]}
    recipe = build_recipe({"task": "language-modeling", "tokens": tokens, "encoder": encoder}, tmp_path)
    parts = LanguageModelParts(tokenizer)
    model = noisy(parts.build(recipe))
    (tmp_path / "source").write_text("")
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    size = {"vocabulary_size": tokenizer.vocabulary_size}
    imported = Imported(tmp_path / "source", (tmp_path / "source",), "a test", recipe, parts, size, tensors)
    write_run(imported, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    theirs = loaded("AutoModelForCausalLM", tmp_path / "out")
    reads = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = reads(text, return_tensors="pt")["input_ids"]
    assert ids[0].tolist() == tokenizer.encode(text).tolist()
    close(theirs(input_ids=ids).logits, model(ids)[0], 1e-4)
    import_run(tmp_path / "out", tmp_path / "again")
    close(ensue.load(tmp_path / "again", device="cpu").model(ids)[0], model(ids)[0], 1e-4)


@pytest.mark.parametrize(
    "table", [{}, {"pooling": "first", "unit_length": True}, {"pooling": "last"}, {"pooling": "max"}]
)
def test_sentence_transformers_computes_the_same_vectors(table: dict[str, Any], tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    published(tmp_path / "theirs", *MASKED["bert-headless"])
    imported = import_run(tmp_path / "theirs", tmp_path / "run")
    recipe: Any = imported.recipe
    changed = recipe.model_copy(update={"sentences": recipe.sentences.model_copy(update=table)})
    write_run(replace(imported, recipe=changed), tmp_path / "run", overwrite=True)
    export_run(tmp_path / "run", tmp_path / "out", "sentence-transformers")
    texts = ["the house of the sun", "a café"]
    theirs = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert theirs.max_seq_length == 40
    np.testing.assert_allclose(theirs.encode(texts), ensue.load(tmp_path / "run").embed(texts), atol=1e-5)
