"""Small models with random weights in published formats, and texts of every kind."""

import json
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

CORPUS = [
    "The house of the rising sun, and a Café in New-Orleans; it's 1,000.5 miles away.",
    "naïve 北京 words! are un-done",
]
FRAME = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ALPHABETS = [
    "abcdefghij ABC  .,;!?'-", "éèüñçß İıΣς", "北京東京 の テスト", "مرحبا שלום", "🙂👩‍👩‍👧 🏳️‍🌈",
    "\t\n\r\f\v\x00\x07\u00a0\u2028\u200b\ufeff",
    "0123456789%$#@", "e\u0301o\u0308\u0323", "ᄒ\u200bᅡᆫ한", "\ud7a3\ufffd",
]  # fmt: skip


def odd_texts(count: int, seed: int = 0) -> list[str]:
    """Return texts of all alphabets, short and long, with and without whitespace at the ends."""
    draw = random.Random(seed)
    texts = ["", " ", "  a", "a ", "\n", *CORPUS, "x" * 120]
    while len(texts) < count:
        parts = draw.choices(ALPHABETS, k=draw.randint(1, 3))
        texts.append("".join(draw.choice(draw.choice(parts)) for _ in range(draw.randint(1, 40))))
    return texts[:count]


def wordpiece(*, lowercase: bool = True, corpus: Iterable[str] = CORPUS) -> tokenizers.Tokenizer:
    """Return a tokenizer of BERT, with the truncation and padding of some published models."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=160, special_tokens=FRAME))
    template = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=template
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5)
    return tokenizer


def byte_level(special: list[str], *, first: bool) -> tokenizers.Tokenizer:
    """Return a tokenizer of GPT-2; its special tokens come first, as in RoBERTa, or last."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, special_tokens=special if first else [], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 5, trainer)
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(token, lstrip=token == "<mask>", special=True) for token in special]
    )
    return tokenizer


def write(directory: Path, tokenizer: tokenizers.Tokenizer, names: dict[str, Any] | None = None) -> None:
    """Write the files of a tokenizer into the directory of a model."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **(names or {})}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


class Bert(NamedTuple):
    """The weights of a BERT, by their names in transformers. A call computes its equations (Devlin et al. 2019)."""

    tensors: dict[str, Tensor]
    d_model: int = 8
    num_layers: int = 2
    num_heads: int = 2
    context: int = 20

    @classmethod
    def random(cls, vocabulary_size: int, *, head: bool = True, context: int = 20) -> "Bert":
        torch.manual_seed(1)
        d, f, tensors = 8, 12, {}

        def draw(name: str, *shape: int) -> None:
            tensors[name] = torch.randn(*shape) * 0.5

        def layer(name: str, d_out: int, d_in: int) -> None:
            draw(f"{name}.weight", d_out, d_in)
            draw(f"{name}.bias", d_out)

        def norm(name: str) -> None:
            draw(f"{name}.weight", d)
            draw(f"{name}.bias", d)

        draw("embeddings.word_embeddings.weight", vocabulary_size, d)
        draw("embeddings.position_embeddings.weight", context, d)
        draw("embeddings.token_type_embeddings.weight", 2, d)
        norm("embeddings.LayerNorm")
        for number in range(2):
            block = f"encoder.layer.{number}."
            for name in ("query", "key", "value"):
                layer(f"{block}attention.self.{name}", d, d)
            layer(f"{block}attention.output.dense", d, d)
            norm(f"{block}attention.output.LayerNorm")
            layer(f"{block}intermediate.dense", f, d)
            layer(f"{block}output.dense", d, f)
            norm(f"{block}output.LayerNorm")
        if head:
            layer("cls.predictions.transform.dense", d, d)
            norm("cls.predictions.transform.LayerNorm")
            draw("cls.predictions.bias", vocabulary_size)
        return cls(tensors, context=context)

    def config(self, **keys: Any) -> dict[str, Any]:
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
        more = {
            "max_position_embeddings": self.context,
            "vocab_size": len(self.tensors["embeddings.word_embeddings.weight"]),
        }
        return {"model_type": "bert", "layer_norm_eps": 1e-12, "hidden_act": "gelu", **sizes, **more, **keys}

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the last hidden states (T, d) of one text."""
        at = {name: tensor.double() for name, tensor in self.tensors.items()}

        def layer(name: str, x: Tensor) -> Tensor:
            return x @ at[f"{name}.weight"].T + at[f"{name}.bias"]

        def norm(name: str, x: Tensor) -> Tensor:
            x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-12).sqrt()
            return x * at[f"{name}.weight"] + at[f"{name}.bias"]

        e = "embeddings."
        x = at[f"{e}word_embeddings.weight"][ids] + at[f"{e}position_embeddings.weight"][: len(ids)]
        x = norm(f"{e}LayerNorm", x + at[f"{e}token_type_embeddings.weight"][0])
        for number in range(self.num_layers):
            block = f"encoder.layer.{number}."
            heads = [layer(f"{block}attention.self.{n}", x).view(-1, 2, 4) for n in ("query", "key", "value")]
            q, k, v = (part.transpose(0, 1) for part in heads)
            attended = ((q @ k.transpose(1, 2) / 2).softmax(-1) @ v).transpose(0, 1).flatten(1)
            z = norm(f"{block}attention.output.LayerNorm", x + layer(f"{block}attention.output.dense", attended))
            inner = layer(f"{block}intermediate.dense", z)
            inner = inner * (1 + (inner / 2**0.5).erf()) / 2
            x = norm(f"{block}output.LayerNorm", z + layer(f"{block}output.dense", inner))
        return x


def write_bert(directory: Path, model: Bert, tokenizer: tokenizers.Tokenizer, **keys: Any) -> None:
    """Write a model directory in the format of transformers."""
    write(directory, tokenizer)
    (directory / "config.json").write_text(json.dumps(model.config(**keys)))
    save_file(model.tensors, directory / "model.safetensors", {"format": "pt"})


FASTTEXT_WORDS = ["</s>", "the", "house", "мир", "<unk>", "été"]
_DIMENSION, _BUCKETS = 3, 50
FASTTEXT_ROWS = np.random.default_rng(0).normal(size=(len(FASTTEXT_WORDS) + _BUCKETS, _DIMENSION)).astype("<f4")
_FASTTEXT = {
    "version": 12, "model": 2, "minn": 2, "maxn": 3, "quantized": False, "rows": None, "size": None, "labels": 0,
}  # fmt: skip


def fasttext_model(**changes: Any) -> bytes:
    """Return the bytes of a model file of fastText."""
    at = _FASTTEXT | changes
    arguments = [at.get("dim", _DIMENSION), 5, 5, 1, 5, 1, 2, at["model"], _BUCKETS, at["minn"], at["maxn"], 100]
    size = len(FASTTEXT_WORDS) if at["size"] is None else at["size"]
    parts = [struct.pack("<ii12id", 793712314, at["version"], *arguments, 1e-4)]
    parts.append(struct.pack("<iiiqq", size, size, at["labels"], 100, -1))
    parts += [word.encode() + b"\0" + struct.pack("<qb", 7, 0) for word in FASTTEXT_WORDS]
    rows = len(FASTTEXT_ROWS) if at["rows"] is None else at["rows"]
    parts.append(struct.pack("<?qq", at["quantized"], rows, _DIMENSION) + FASTTEXT_ROWS.tobytes())
    return b"".join(parts)
