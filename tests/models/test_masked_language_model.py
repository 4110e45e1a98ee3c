"""Masked language models equal torch.nn and transformers with the same weights, and do not depend on the batch."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.errors import ContextError
from ensue.models.build_text import build_masked_language_model
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.specification import TransformerEncoder

V, D, HEADS, LAYERS, T = 23, 8, 2, 2, 7
BERT: dict[str, Any] = {
    "kind": "transformer", "d_model": D, "num_heads": HEADS, "num_layers": LAYERS, "d_feedforward": 12, "context": 9,
    "positions": "learned", "norm": "post", "norm_input": True, "norm_epsilon": 1e-12,
}  # fmt: skip
KINDS = ("weight", "bias")
IDS = torch.randint(V, (3, T), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(T) < torch.tensor([T, 4, 1]).unsqueeze(1)
SEGMENTS = (torch.arange(T) >= 3).long().expand(3, T)


def model_of(**changes: Any) -> MaskedLanguageModel:
    model = build_masked_language_model(
        TransformerEncoder(**BERT | changes), vocabulary_size=V, num_segments=2, next_sentence=True
    ).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.eval()


def in_torch(model: MaskedLanguageModel, norm: str, activation: str) -> list[Tensor]:
    """Return the outputs of all layers, computed by modules of torch."""
    gelu = {"gelu": F.gelu, "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}[activation]
    state = model.state_dict()
    x = state["features.weight"][IDS] + state["segments.weight"][SEGMENTS] + state["layers.layers.0.weight"][:T]
    x = F.layer_norm(x, (D,), *(state[f"layers.layers.1.module.{name}"] for name in KINDS), eps=1e-12)
    outputs = [x]
    for place in range(3, 3 + LAYERS):
        layer = nn.TransformerEncoderLayer(
            D, HEADS, 12, 0.0, gelu, 1e-12, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
        )
        part = {name.removeprefix(f"layers.layers.{place}."): value for name, value in state.items()}
        names = {"in_proj_": "project_in.", "out_proj.": "project_out."}
        attention = {theirs + kind: part[f"attention.{ours}{kind}"] for theirs, ours in names.items() for kind in KINDS}
        layer.self_attn.load_state_dict(attention)
        for theirs, ours in (
            (layer.linear1, "feedforward.0"), (layer.linear2, "feedforward.3"), (layer.norm1, "norm_attention"),
            (layer.norm2, "norm_feedforward"),
        ):  # fmt: skip
            theirs.load_state_dict({name: part[f"{ours}.{name}"] for name in KINDS})
        layer.train()  # eval mode has a fast path with other requirements; dropout is 0
        x = layer(x, src_key_padding_mask=~MASK)
        outputs.append(x)
    if norm == "pre":
        last = f"layers.layers.{3 + LAYERS}.module"
        outputs[-1] = F.layer_norm(x, (D,), state[f"{last}.weight"], state[f"{last}.bias"], eps=1e-12)
    return outputs


@pytest.mark.parametrize(("norm", "activation"), [("post", "gelu"), ("post", "gelu-tanh"), ("pre", "gelu")])
def test_layers_and_head_equal_those_of_torch(norm: str, activation: str) -> None:
    model = model_of(norm=norm, activation=activation)
    outputs = model.layers_of(IDS, MASK, SEGMENTS)
    assert len(outputs) == LAYERS + 1 == model.num_layers + 1
    for ours, theirs in zip(outputs, in_torch(model, norm, activation), strict=True):
        torch.testing.assert_close(ours[MASK], theirs[MASK])
    torch.testing.assert_close(model(IDS, MASK, SEGMENTS)[MASK], outputs[-1][MASK])
    state = model.state_dict()
    z = F.linear(outputs[-1][MASK], state["head.projection.0.weight"], state["head.projection.0.bias"])
    z = F.gelu(z, approximate="tanh" if activation == "gelu-tanh" else "none")
    z = F.layer_norm(z, (D,), state["head.projection.2.weight"], state["head.projection.2.bias"], eps=1e-12)
    logits = F.linear(z, state["features.weight"], state["head.bias"])
    torch.testing.assert_close(model.logits(IDS, MASK, MASK, SEGMENTS), logits)
    pooled = torch.tanh(F.linear(outputs[-1][:, 0], state["pooler.0.weight"], state["pooler.0.bias"]))
    expected = F.linear(pooled, state["next_sentence.weight"], state["next_sentence.bias"])
    torch.testing.assert_close(model.next_sentence_logits(outputs[-1]), expected)


def test_the_loss_is_that_of_masked_positions() -> None:
    model = model_of()
    targets = torch.full_like(IDS, NOT_HIDDEN)
    targets[0, 2], targets[1, 0] = 5, 7
    logits = model.logits(IDS, torch.ones_like(MASK), MASK).view(3, T, V).log_softmax(2)
    expected = -torch.stack((logits[0, 2, 5], logits[1, 0, 7]))
    scores = model.masked_nats(model(IDS, MASK), targets)
    torch.testing.assert_close(scores.nats, expected)
    torch.testing.assert_close(model.total_nats(model(IDS, MASK), targets), expected.sum())
    assert scores.is_best.tolist() == [int(logits[0, 2].argmax()) == 5, int(logits[1, 0].argmax()) == 7]
    nothing = torch.full_like(IDS, NOT_HIDDEN)
    assert float(model.total_nats(model(IDS, MASK), nothing).detach()) == 0


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
def test_layers_do_not_depend_on_padding_and_batch(positions: str) -> None:
    model = model_of(positions=positions, norm="pre")
    other = IDS.masked_fill(~MASK, 3)
    expected = model.layers_of(IDS, MASK, SEGMENTS)
    for layer, again in zip(expected, model.layers_of(other, MASK, SEGMENTS), strict=True):
        torch.testing.assert_close(layer[MASK], again[MASK])
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = model.layers_of(IDS[row : row + 1, :length], None, SEGMENTS[row : row + 1, :length])
        for layer, of_one in zip(expected, alone, strict=True):
            torch.testing.assert_close(layer[row, :length], of_one[0])


def test_every_parameter_has_a_gradient() -> None:
    model = model_of()
    h = model(IDS, MASK, SEGMENTS)
    total = model.total_nats(h, IDS.masked_fill(~MASK, NOT_HIDDEN))
    (total + model.next_sentence_logits(h).logsumexp(1).sum()).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert missing == []


def test_missing_segments_are_the_first_segment() -> None:
    model = model_of()
    torch.testing.assert_close(model(IDS, MASK), model(IDS, MASK, torch.zeros_like(IDS)))


def test_more_positions_than_learned_are_refused() -> None:
    with pytest.raises(ContextError, match="found 10 positions; the model has 9"):
        model_of()(torch.zeros(1, 10, dtype=torch.int64))


def test_next_sentences_need_two_segments() -> None:
    with pytest.raises(ValueError, match="two segments"):
        build_masked_language_model(TransformerEncoder(**BERT), vocabulary_size=V, next_sentence=True)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_the_model_equals_bert_of_transformers(activation: str) -> None:
    transformers = pytest.importorskip("transformers")
    size = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.BertConfig(
        **size, intermediate_size=32, max_position_embeddings=24,
        hidden_act="gelu" if activation == "gelu" else "gelu_new", initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.BertForPreTraining(config).eval()
    encoder = TransformerEncoder(
        **BERT | {"d_model": 16, "num_layers": 3, "num_heads": 4, "d_feedforward": 32, "context": 24},
        activation=activation,
    )
    ours = build_masked_language_model(encoder, vocabulary_size=50, num_segments=2, next_sentence=True).eval()
    ours.load_state_dict(from_transformers(theirs.state_dict(), num_layers=3), strict=True)
    ids = torch.randint(50, (4, 20))
    mask = torch.arange(20) < torch.tensor([20, 7, 13, 1]).unsqueeze(1)
    segments = (torch.arange(20) >= 6).long().expand(4, 20)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long(), token_type_ids=segments, output_hidden_states=True)
        hidden_states = ours.layers_of(ids, mask, segments)
        logits = ours.logits(ids, mask, mask, segments)
    for layer, of_theirs in zip(hidden_states, expected.hidden_states, strict=True):
        assert (layer - of_theirs)[mask].abs().max() < 1e-5
    assert (logits - expected.prediction_logits[mask]).abs().max() < 1e-4
    # class 0 of transformers is a sentence that follows
    assert (ours.next_sentence_logits(hidden_states[-1]).flip(1) - expected.seq_relationship_logits).abs().max() < 1e-4
    assert math.isfinite(float(ours.total_nats(hidden_states[-1], ids).detach()))


def from_transformers(state: dict[str, Tensor], *, num_layers: int) -> dict[str, Tensor]:
    """Return the weights of a BertForPreTraining under the names of the package."""
    names = {
        "features.weight": "bert.embeddings.word_embeddings.weight",
        "segments.weight": "bert.embeddings.token_type_embeddings.weight",
        "layers.layers.0.weight": "bert.embeddings.position_embeddings.weight",
        "head.bias": "cls.predictions.bias",
        "head.embedding.weight": "bert.embeddings.word_embeddings.weight",
    }
    modules = {
        "layers.layers.1.module": "bert.embeddings.LayerNorm",
        "pooler.0": "bert.pooler.dense",
        "head.projection.0": "cls.predictions.transform.dense",
        "head.projection.2": "cls.predictions.transform.LayerNorm",
    }
    for number in range(num_layers):
        ours, theirs = f"layers.layers.{3 + number}", f"bert.encoder.layer.{number}"
        modules |= {
            f"{ours}.attention.project_out": f"{theirs}.attention.output.dense",
            f"{ours}.norm_attention": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.feedforward.0": f"{theirs}.intermediate.dense",
            f"{ours}.feedforward.3": f"{theirs}.output.dense",
            f"{ours}.norm_feedforward": f"{theirs}.output.LayerNorm",
        }
    names |= {f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in modules.items() for kind in KINDS}
    weights = {ours: state[theirs] for ours, theirs in names.items()}
    for number, kind in ((number, kind) for number in range(num_layers) for kind in KINDS):
        parts = [
            state[f"bert.encoder.layer.{number}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")
        ]
        weights[f"layers.layers.{3 + number}.attention.project_in.{kind}"] = torch.cat(parts)
    weights |= {f"next_sentence.{kind}": state[f"cls.seq_relationship.{kind}"].flip(0) for kind in KINDS}
    return weights


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_texts_equal_single_texts(norm: str) -> None:
    encoder = TransformerEncoder(
        kind="transformer", d_model=8, num_layers=2, num_heads=2, positions="learned", norm=norm, norm_input=True,
        context=9,
    )  # fmt: skip
    model = build_masked_language_model(encoder, vocabulary_size=20, num_segments=2).eval()
    assert model.can_read_packed
    assert not build_masked_language_model(
        encoder.model_copy(update={"positions": "rotary"}), vocabulary_size=20
    ).can_read_packed
    lengths = [3, 3, 1, 9, 9, 4]
    ids = torch.randint(0, 20, (sum(lengths),))
    for layer, output in enumerate(model.packed_layers(ids, lengths)):
        alone = [model.layers_of(text.unsqueeze(0))[layer][0] for text in ids.split(lengths)]
        torch.testing.assert_close(output, torch.cat(alone), atol=1e-5, rtol=1e-5)
