"""JoeyNMT and CTranslate2 as the benchmark of translation calls them: models of the same shape, or of the same weights.

They are no dependencies of this project. `import_from` names a folder where they are installed.
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

from ensue.models.encoder_decoder import EncoderDecoder
from ensue.recipe import Recipe
from ensue.tasks.sequence_to_sequence.task import PairBatch
from ensue.text.special_tokens import TokenizerWithSpecials

Ids = Sequence[int]


def import_from(folder: Path | None) -> None:
    """Packages that are not installed here are taken from `folder`, a `site-packages`."""
    if folder is not None:
        sys.path.append(str(folder))


def imported(module: str, *names: str) -> Any:
    """What has these names in a module: one thing, or several."""
    found = [getattr(import_module(module), name) for name in names]
    return found if len(names) > 1 else found[0]


class JoeyVocabulary:
    """What JoeyNMT asks of a vocabulary; the ids are those of ensue."""

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


def joey_model(recipe: Recipe, tokens: TokenizerWithSpecials) -> Any:
    """JoeyNMT's model in the shape of a recipe; as in ensue's recipes, weights of attention have no dropout."""
    build_model = imported("joeynmt.model", "build_model")

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
    """JoeyNMT's batch of padded rows. Its targets begin with the begin symbol."""
    Batch = imported("joeynmt.batch", "Batch")

    lengths = (sources != tokens.padding_id).sum(1)
    return Batch(
        sources, lengths, None, targets, None, torch.arange(len(sources)), torch.device("cpu"),
        tokens.padding_id, tokens.end_id, is_train=targets is not None,
    )  # fmt: skip


def joey_training_batch(batch: PairBatch, tokens: TokenizerWithSpecials) -> Any:
    """The same pairs for JoeyNMT."""
    sources, targets = (
        ids if mask is None else ids.masked_fill(~mask, tokens.padding_id)
        for ids, mask in ((batch.sources, batch.source_mask), (batch.targets, batch.target_mask))
    )
    begin = targets.new_full((len(targets), 1), tokens.begin_id)
    return joey_batch(sources, torch.cat((begin, targets), 1), tokens)


class JoeyTraining:
    """JoeyNMT's training step, as in `TrainManager._train_step` and what follows it there, with Adam and clipping."""

    def __init__(self, recipe: Recipe, tokens: TokenizerWithSpecials) -> None:
        build_gradient_clipper, build_optimizer = imported(
            "joeynmt.builders", "build_gradient_clipper", "build_optimizer"
        )

        train = recipe.train
        self.model, self.tokens = joey_model(recipe, tokens), tokens
        self.model.train()
        self.clip = build_gradient_clipper({"clip_grad_norm": train.clip, "clip_grad_val": None})
        settings = {"optimizer": "adam", "learning_rate": train.learning_rate, "adam_betas": [train.beta1, train.beta2]}
        self.optimizer = build_optimizer(settings, self.model.parameters())

    def step(self, batch: Any) -> float:
        """One step; returns the loss for each token."""
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


def joey_weights(model: EncoderDecoder, recipe: Recipe, tokens: TokenizerWithSpecials) -> Any:
    """JoeyNMT's Transformer with the weights of ensue's, for translating."""
    theirs = joey_model(recipe, tokens).eval()
    with torch.no_grad():
        theirs.src_embed.lut.weight.copy_(model.source.weight)
    theirs.decoder.output_layer.bias = model.head.bias
    for mine, other in ((blocks(model.encoder), theirs.encoder), (blocks(model.decoder), theirs.decoder)):
        for block, layer in zip(mine, other.layers, strict=True):
            attention = getattr(layer, "trg_trg_att", None) or layer.src_src_att
            q, k, v = parts(block.attention.project_in, 3)
            attention.q_layer, attention.k_layer, attention.v_layer = q, k, v
            attention.output_layer = block.attention.project_out
            if hasattr(block, "cross_attention"):
                cross = layer.src_trg_att
                cross.q_layer, cross.output_layer = block.cross_attention.project_in, block.cross_attention.project_out
                cross.k_layer, cross.v_layer = parts(block.cross_attention.project_memory, 2)
                layer.x_layer_norm, layer.dec_layer_norm = block.norm_attention, block.norm_cross_attention
            else:
                layer.layer_norm = block.norm_attention
            layer.feed_forward.layer_norm = block.norm_feedforward
            layer.feed_forward.pwff_layer[0], layer.feed_forward.pwff_layer[3] = (
                block.feedforward[0],
                block.feedforward[3],
            )
        other.layer_norm = last_norm(model.encoder if other is theirs.encoder else model.decoder)
    return theirs


def joey_outputs(model: Any, rows: Sequence[Ids], tokens: TokenizerWithSpecials, *, width: int) -> list[list[int]]:
    """The best output of each row, which are searched together."""
    search = imported("joeynmt.search", "search")

    longest = max(map(len, rows))
    sources = torch.tensor([[*row, *[tokens.padding_id] * (longest - len(row))] for row in rows])
    found, _, _ = search(model, joey_batch(sources, None, tokens), -1, width, 1.0)
    return [cut(row.tolist(), tokens) for row in found]


def cut(ids: Ids, tokens: TokenizerWithSpecials) -> list[int]:
    """What stands before the first end or padding."""
    stops = [place for place, id in enumerate(ids) if id in (tokens.end_id, tokens.padding_id)]
    return list(ids[: stops[0]] if stops else ids)


class CTranslate:
    """CTranslate2's translator with the weights of ensue's Transformer, in float32, with one thread."""

    def __init__(self, model: EncoderDecoder, recipe: Recipe, tokens: TokenizerWithSpecials) -> None:
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
        """The best output of each row."""
        found = self.translator.translate_batch(
            [[self.names[id] for id in row] for row in rows], beam_size=width, max_batch_size=batch_size,
            length_penalty=1.0, max_decoding_length=max_tokens, min_decoding_length=min_tokens,
            suppress_sequences=self.forbidden,
        )  # fmt: skip
        return [[int(name[1:]) for name in one.hypotheses[0]] for one in found]


def _specification(ctranslate2: ModuleType, model: EncoderDecoder, recipe: Recipe) -> Any:
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


def _encodings(model: EncoderDecoder) -> Any:
    """The table of sinusoidal positions."""
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
    """The numbers, in float32."""
    return np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float32)


def blocks(stack: Any, skip: int = 2) -> list[Any]:
    """The blocks of a Transformer with sinusoidal positions, which stand before them with their dropout."""
    return list(stack.layers)[skip:-1]


def last_norm(stack: Any) -> nn.LayerNorm:
    """The normalization after the last block."""
    norm: nn.LayerNorm = stack.layers[-1].module
    return norm


def parts(product: nn.Linear, count: int) -> list[nn.Linear]:
    """A product cut by its outputs."""
    found = []
    for weight, bias in zip(product.weight.chunk(count), product.bias.chunk(count), strict=True):
        part = nn.Linear(product.in_features, len(bias))
        part.weight, part.bias = nn.Parameter(weight), nn.Parameter(bias)
        found.append(part)
    return found
