"""JoeyNMT and CTranslate2 for `translation_speed.py`: models with the same sizes, or with the same weights.

The project does not depend on them. `import_from` adds a folder in which they are installed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensue.tasks.sequence_to_sequence.task import PairBatch
from ensue.text.special_tokens import TokenizerWithSpecials

Ids = Sequence[int]


def import_from(folder: Path | None) -> None:
    """Add the folder `site-packages` of another environment to the path of modules."""
    if folder is not None:
        sys.path.append(str(folder))


def import_name(module: str, name: str) -> Any:
    """Return an object of a module that may not be installed."""
    return getattr(import_module(module), name)


class JoeyVocabulary:
    """The interface of a vocabulary of JoeyNMT, with the ids of ensue."""

    lang_tags: tuple[str, ...] = ()
    specials: tuple[str, ...] = ()

    def __init__(self, tokens: TokenizerWithSpecials) -> None:
        self.size = tokens.vocabulary_size
        self.pad_index, self.bos_index, self.eos_index = tokens.padding_id, tokens.begin_id, tokens.end_id
        self.unk_index, self.sep_index = tokens.unknown_name_id, tokens.separator_id

    def __len__(self) -> int:
        return self.size

    def lookup(self, token: str) -> int:
        raise NotImplementedError


def joey_model(recipe: Any, tokens: TokenizerWithSpecials) -> Any:
    """Return a model of JoeyNMT with the sizes of a recipe. Weights of attention have no dropout, as in ensue."""
    build_model = import_name("joeynmt.model", "build_model")

    kind, tied = recipe.encoder.kind, recipe.tokens.tied == "all"
    sides = [_joey_side(table, recipe.tokens.d_embedding) for table in (recipe.encoder, recipe.decoder)]
    if kind == "lstm":
        sides[0] |= {"bidirectional": True}
        sides[1] |= {"attention": "luong", "input_feeding": recipe.attention.feeding, "init_hidden": "bridge",
                     "hidden_dropout": recipe.attention.dropout}  # fmt: skip
    vocabulary = JoeyVocabulary(tokens)
    settings = {"encoder": sides[0], "decoder": sides[1], "tied_embeddings": tied, "tied_softmax": tied}
    model = build_model({**settings, "initializer": "xavier_uniform"}, vocabulary, vocabulary)
    for part in model.modules():
        if type(part).__name__ == "MultiHeadedAttention":
            part.dropout = nn.Identity()
    model.loss_function = ("crossentropy", recipe.head.label_smoothing)
    return model


def _joey_side(table: Any, d_embedding: int) -> dict[str, Any]:
    side = {"hidden_size": table.d_model, "num_layers": table.num_layers, "dropout": table.dropout,
            "embeddings": {"embedding_dim": d_embedding, "scale": table.kind == "transformer"}}  # fmt: skip
    if table.kind == "lstm":
        side["embeddings"] |= {"dropout": table.dropout_input}
        return {**side, "type": "recurrent", "rnn_type": "lstm"}
    return {**side, "type": "transformer", "num_heads": table.num_heads, "ff_size": table.d_feedforward,
            "layer_norm": table.norm, "activation": table.activation}  # fmt: skip


def joey_batch(sources: Tensor, targets: Tensor | None, tokens: TokenizerWithSpecials) -> Any:
    """Return a batch of JoeyNMT from padded rows. Targets start with the begin symbol."""
    Batch = import_name("joeynmt.batch", "Batch")

    lengths = (sources != tokens.padding_id).sum(1)
    return Batch(
        sources, lengths, None, targets, None, torch.arange(len(sources)), torch.device("cpu"),
        tokens.padding_id, tokens.end_id, is_train=targets is not None,
    )  # fmt: skip


def joey_training_batch(batch: PairBatch, tokens: TokenizerWithSpecials) -> Any:
    """Return the pairs of a batch for JoeyNMT."""
    sources, targets = (
        ids if mask is None else ids.masked_fill(~mask, tokens.padding_id)
        for ids, mask in ((batch.sources, batch.source_mask), (batch.targets, batch.target_mask))
    )
    begin = targets.new_full((len(targets), 1), tokens.begin_id)
    return joey_batch(sources, torch.cat((begin, targets), 1), tokens)


class JoeyTraining:
    """The training step of JoeyNMT's `TrainManager`, with Adam and gradient clipping."""

    def __init__(self, recipe: Any, tokens: TokenizerWithSpecials) -> None:
        builders = import_module("joeynmt.builders")
        train = recipe.train
        self.model, self.tokens = joey_model(recipe, tokens), tokens
        self.model.train()
        self.clip = builders.build_gradient_clipper({"clip_grad_norm": train.clip, "clip_grad_val": None})
        settings = {"optimizer": "adam", "learning_rate": train.learning_rate, "adam_betas": [train.beta1, train.beta2]}
        self.optimizer = builders.build_optimizer(settings, self.model.parameters())

    def step(self, batch: Any) -> float:
        """Take a step. Return the loss per token."""
        self.model.train()
        batch.sort_by_src_length()
        loss, _, _, correct = self.model(return_type="loss", **vars(batch))
        loss = batch.normalize(loss, normalization="tokens")
        loss.backward()
        value = loss.item()
        correct.item()
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.model.zero_grad()
        return value


def joey_weights(model: Any, recipe: Any, tokens: TokenizerWithSpecials) -> Any:
    """Return JoeyNMT's Transformer with the weights of a model of ensue, for translation."""
    peer = joey_model(recipe, tokens).eval()
    with torch.no_grad():
        peer.src_embed.lut.weight.copy_(model.source.weight)
    peer.decoder.output_layer.bias = model.head.bias
    for stack, peer_stack in ((model.encoder, peer.encoder), (model.decoder, peer.decoder)):
        for block, layer in zip(blocks(stack), peer_stack.layers, strict=True):
            attention = getattr(layer, "trg_trg_att", None) or layer.src_src_att
            q, k, v = split(block.attention.project_in, 3)
            attention.q_layer, attention.k_layer, attention.v_layer = q, k, v
            attention.output_layer = block.attention.project_out
            if hasattr(block, "cross_attention"):
                cross = layer.src_trg_att
                cross.q_layer, cross.output_layer = block.cross_attention.project_in, block.cross_attention.project_out
                cross.k_layer, cross.v_layer = split(block.cross_attention.project_memory, 2)
                layer.x_layer_norm, layer.dec_layer_norm = block.norm_attention, block.norm_cross_attention
            else:
                layer.layer_norm = block.norm_attention
            layer.feed_forward.layer_norm = block.norm_feedforward
            layer.feed_forward.pwff_layer[0], layer.feed_forward.pwff_layer[3] = (
                block.feedforward[0],
                block.feedforward[3],
            )
        peer_stack.layer_norm = last_norm(stack)
    return peer


def joey_outputs(model: Any, rows: Sequence[Ids], tokens: TokenizerWithSpecials, *, width: int) -> list[list[int]]:
    """Search all rows in one batch. Return the best output of each row."""
    search = import_name("joeynmt.search", "search")

    max_length = max(map(len, rows))
    sources = torch.tensor([[*row, *[tokens.padding_id] * (max_length - len(row))] for row in rows])
    outputs, _, _ = search(model, joey_batch(sources, None, tokens), -1, width, 1.0)
    return [truncate(row.tolist(), tokens) for row in outputs]


def truncate(ids: Ids, tokens: TokenizerWithSpecials) -> list[int]:
    """Return the ids before the first end symbol or padding."""
    stops = [place for place, id in enumerate(ids) if id in (tokens.end_id, tokens.padding_id)]
    return list(ids[: stops[0]] if stops else ids)


class CTranslate:
    """A translator of CTranslate2 with the weights of a Transformer of ensue, in float32, with one thread."""

    def __init__(self, model: Any, recipe: Any, tokens: TokenizerWithSpecials) -> None:
        ctranslate2 = import_module("ctranslate2")
        spec = _specification(ctranslate2, model, recipe)
        names = [f"t{id}" for id in range(tokens.vocabulary_size)]
        spec.config.bos_token, spec.config.eos_token = names[tokens.begin_id], names[tokens.end_id]
        spec.config.unk_token, spec.config.decoder_start_token = names[tokens.unknown_name_id], names[tokens.begin_id]
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
        spec.validate()
        spec.optimize()
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            self.translator = ctranslate2.Translator(
                folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=1
            )
        self.names = names
        self.forbidden = [[names[id]] for id in tokens.special_ids if id != tokens.end_id]

    def outputs(
        self, rows: Sequence[Ids], *, width: int, batch_size: int, max_tokens: int, min_tokens: int = 1
    ) -> list[list[int]]:
        """Return the best output of each row."""
        results = self.translator.translate_batch(
            [[self.names[id] for id in row] for row in rows], beam_size=width, max_batch_size=batch_size,
            length_penalty=1.0, max_decoding_length=max_tokens, min_decoding_length=min_tokens,
            suppress_sequences=self.forbidden,
        )  # fmt: skip
        return [[int(name[1:]) for name in result.hypotheses[0]] for result in results]


def _specification(ctranslate2: ModuleType, model: Any, recipe: Any) -> Any:
    table = recipe.encoder
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (table.num_layers, recipe.decoder.num_layers), table.num_heads, pre_norm=table.norm == "pre",
        activation=getattr(ctranslate2.specs.Activation, table.activation.upper()),
    )  # fmt: skip
    encodings = _encodings(model)
    for side, layers, embedding in (
        (spec.encoder, model.encoder, spec.encoder.embeddings[0]),
        (spec.decoder, model.decoder, spec.decoder.embeddings),
    ):
        embedding.weight = array(model.source.weight)
        side.position_encodings.encodings = encodings
        _normalize(side.layer_norm, last_norm(layers))
        for block, layer in zip(blocks(layers), side.layer, strict=True):
            _attend(layer.self_attention, block.norm_attention, block.attention.project_in, block.attention.project_out)
            if hasattr(block, "cross_attention"):
                cross = block.cross_attention
                _attend(layer.attention, block.norm_cross_attention, cross.project_in, cross.project_memory,
                        cross.project_out)  # fmt: skip
            _normalize(layer.ffn.layer_norm, block.norm_feedforward)
            _multiply(layer.ffn.linear_0, block.feedforward[0])
            _multiply(layer.ffn.linear_1, block.feedforward[3])
    _multiply(spec.decoder.projection, SimpleNamespace(weight=model.head.matrix(), bias=model.head.bias))
    return spec


def _encodings(model: Any) -> Any:
    """Return the table of sinusoidal positions."""
    positions = blocks(model.encoder, skip=0)[0]
    with torch.no_grad():
        return array(positions(torch.zeros(1, 512, positions.d_in))[0][0])


def _attend(spec: Any, norm: nn.LayerNorm, *products: nn.Linear) -> None:
    _normalize(spec.layer_norm, norm)
    for part, product in zip(spec.linear, products, strict=True):
        _multiply(part, product)


def _normalize(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = array(norm.weight), array(norm.bias)


def _multiply(spec: Any, product: Any) -> None:
    spec.weight, spec.bias = array(product.weight), array(product.bias)


def array(tensor: Tensor) -> Any:
    """Return a tensor as a contiguous array in float32."""
    return np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float32)


def blocks(stack: Any, skip: int = 2) -> list[Any]:
    """Return the blocks of a Transformer, without the layers of positions and dropout before them."""
    return list(stack.layers)[skip:-1]


def last_norm(stack: Any) -> nn.LayerNorm:
    """Return the normalization after the last block."""
    norm: nn.LayerNorm = stack.layers[-1].module
    return norm


def split(product: nn.Linear, count: int) -> list[nn.Linear]:
    """Split a linear layer into layers with a part of its outputs each."""
    parts = []
    for weight, bias in zip(product.weight.chunk(count), product.bias.chunk(count), strict=True):
        part = nn.Linear(product.in_features, len(bias))
        part.weight, part.bias = nn.Parameter(weight), nn.Parameter(bias)
        parts.append(part)
    return parts
