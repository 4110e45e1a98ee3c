"""The subjects of the laws: every layer of `ensue.nn`, in each mode with different equations.

A new layer needs only an entry in this table: `test_completeness` fails until it has one.
"""

import importlib
import inspect
import pkgutil
from functools import partial

import pytest
import torch

from ensue import nn
from ensue.nn.attention.attentional import FedCell
from ensue.nn.recurrent.clockwork import ClockworkUnits
from ensue.nn.recurrent.delta_rule import GatedDeltaInputs, GatedDeltaRule, HGRN2Recurrence, RWKV7Inputs, RWKV7Rule
from ensue.nn.recurrent.linear_recurrence import FoPooling
from ensue.nn.recurrent.lstm_stacks import DepthGatedLayer, GridLayer, LSTMWithCellOutput
from ensue.testing.laws import Subject

D = 4
D_OUT = 7
D_MEMORY = 3


attention = partial(nn.MultiHeadAttention, D, num_heads=2, dropout=0.5)
post_block = partial(nn.PostNormBlock, D, num_heads=2, d_feedforward=5, dropout=0.5)
pre_block = partial(nn.PreNormBlock, D, num_heads=2, d_feedforward=5, dropout=0.5)
decoder_block = partial(nn.PostNormDecoderBlock, D, num_heads=2, d_feedforward=5, d_memory=D_MEMORY, dropout=0.5)
decoder = partial(nn.Transformer, D, num_heads=2, num_layers=2, d_memory=D_MEMORY, d_feedforward=5, dropout=0.5)
transformer = partial(nn.Transformer, D, num_heads=2, num_layers=2, d_feedforward=5, max_positions=16, dropout=0.5)


def feeding() -> nn.InputFeeding:
    cell = nn.FromContext(nn.Stack([nn.LSTM(D + 5, D_OUT), nn.Dropout(0.5, d_in=D_OUT)]), D_MEMORY)
    return nn.InputFeeding(cell, nn.AttentionalLayer(nn.BilinearAttention(D_OUT, D_MEMORY), d_out=5))


def attending() -> nn.AttentionBefore:
    cell = nn.FromContext(nn.LSTM(D + D_MEMORY, 5), D_MEMORY, mean=True)
    return nn.AttentionBefore(cell, nn.AdditiveAttention(5, D_MEMORY), d_out=D_OUT)


SUBJECTS = [
    Subject("window of 1", lambda: nn.Window(D, D_OUT, size=1)),
    Subject("window of 3", lambda: nn.Window(D, D_OUT, size=3)),
    Subject("window longer than the text", lambda: nn.Window(D, D_OUT, size=9), is_slow=True),
    Subject("elman tanh", lambda: nn.Elman(D, D_OUT)),
    Subject("elman relu", lambda: nn.Elman(D, D_OUT, activation="relu")),
    Subject("lstm", lambda: nn.LSTM(D, D_OUT)),
    Subject("gru before", lambda: nn.GRU(D, D_OUT, reset="before")),
    Subject("gru after", lambda: nn.GRU(D, D_OUT, reset="after")),
    Subject("peephole lstm", lambda: nn.PeepholeLSTM(D, D_OUT)),
    Subject("coupled lstm", lambda: nn.CoupledLSTM(D, D_OUT)),
    Subject("layer norm lstm", lambda: nn.LayerNormLSTM(D, D_OUT)),
    Subject("projected lstm", lambda: nn.ProjectedLSTM(D, D_OUT, d_cell=5)),
    Subject(
        "projected lstm with clips",
        lambda: nn.ProjectedLSTM(D, D_OUT, d_cell=5, clip_cell=0.4, clip_output=0.5),
        is_slow=True,
    ),
    Subject("zoneout lstm", lambda: nn.Zoneout(nn.LSTM(D, D_OUT), hidden=0.5, cell=0.5)),
    Subject(
        "zoneout lstm with masks given",
        lambda: nn.Zoneout(nn.LSTM(D, D_OUT), hidden=0.5, cell=0.5).with_masks,
        is_slow=True,
    ),
    Subject("zoneout gru before", lambda: nn.Zoneout(nn.GRU(D, D_OUT, reset="before"), hidden=0.5), is_slow=True),
    Subject(
        "weight drop zoneout projected lstm",
        lambda: nn.WeightDrop(nn.Zoneout(nn.ProjectedLSTM(D, D_OUT, d_cell=5), hidden=0.5, cell=0.5), 0.5),
        is_slow=True,
    ),
    Subject(
        "bidirectional variants",
        lambda: nn.Bidirectional(nn.PeepholeLSTM(D, D_OUT), nn.Zoneout(nn.CoupledLSTM(D, D_OUT), hidden=0.5, cell=0.5)),
        is_slow=True,
    ),
    Subject("variational recurrent", lambda: nn.VariationalRecurrent(nn.GRU(10, D_OUT), d_x=3, d_latent=2, d_hidden=5)),
    Subject("post-norm block as in MPNet", lambda: post_block(is_causal=False, relative_buckets=4)),
    Subject("post-norm block as in DeBERTa", lambda: post_block(is_causal=False, relative_buckets=4, farthest=9)),
    Subject(
        "pre-norm block as in ModernBERT",
        lambda: pre_block(is_causal=False, rotary=True, neighbors=1, gated=True, norm_first=False),
    ),
    Subject(
        "pre-norm block as in Pythia and Llama",
        lambda: pre_block(rotary=True, rotary_share=0.5, parallel=True, gated=True, norm_kind="rms", activation="silu"),
    ),
    Subject("mingru", lambda: nn.MinGRU(D, D_OUT)),
    Subject("lru", lambda: nn.LRU(D, D_OUT, d_state=5)),
    Subject("mogrifier lstm", lambda: nn.MogrifierLSTM(D, D_OUT, rounds=3)),
    Subject("lem", lambda: nn.LEM(D, D_OUT, longest_step=0.5)),
    Subject("slstm", lambda: nn.SLSTM(D, 9, num_heads=3)),
    Subject("mlstm", lambda: nn.MLSTM(D, 9, num_heads=3)),
    Subject("hgrn2", lambda: nn.HGRN2(D, 9, num_heads=3)),
    Subject("recurrence of an hgrn2", lambda: HGRN2Recurrence(D, 9, num_heads=3), is_slow=True),
    Subject("gated deltanet", lambda: nn.GatedDeltaNet(D, 9, num_heads=3)),
    Subject("what a gated deltanet reads", lambda: GatedDeltaInputs(D, 4, num_heads=2), is_slow=True),
    Subject("rule of a gated deltanet", lambda: GatedDeltaRule(4 * 9 + 6, 9, num_heads=3), is_slow=True),
    Subject("rwkv-7", lambda: nn.RWKV7(D, 9, num_heads=3, rank=2)),
    Subject("what an rwkv-7 reads", lambda: RWKV7Inputs(D, 4, rank=2), is_slow=True),
    Subject("rule of an rwkv-7", lambda: RWKV7Rule(6 * 9, 9, num_heads=3), is_slow=True),
    Subject("minlstm", lambda: nn.MinLSTM(D, D_OUT)),
    Subject("qrnn", lambda: nn.QRNN(D, D_OUT)),
    Subject("pooling of a qrnn", lambda: FoPooling(D, D_OUT)),
    Subject("qrnn of 1", lambda: nn.QRNN(D, D_OUT, size=1)),
    Subject("qrnn longer than the text", lambda: nn.QRNN(D, D_OUT, size=9), is_slow=True),
    Subject("stack of scans", lambda: nn.Stack([nn.MinGRU(D, 3), nn.QRNN(3, D_OUT, size=3)]), is_slow=True),
    Subject("bidirectional minlstm", lambda: nn.Bidirectional(nn.MinLSTM(D, D_OUT), nn.QRNN(D, D_OUT))),
    Subject("clockwork", lambda: nn.Clockwork(D, 15, periods=(1, 2, 4))),
    Subject("clockwork of one module", lambda: nn.Clockwork(D, D_OUT, periods=(1,)), is_slow=True),
    Subject("clockwork units", lambda: ClockworkUnits(5)),
    Subject("weight drop clockwork", lambda: nn.WeightDrop(nn.Clockwork(D, 15, periods=(1, 2, 4)), 0.5), is_slow=True),
    Subject("depth-gated of one layer", lambda: nn.DepthGatedLSTM(D, D_OUT, num_layers=1), is_slow=True),
    Subject("depth-gated", lambda: nn.DepthGatedLSTM(D, D_OUT, num_layers=3)),
    Subject("open lstm", lambda: LSTMWithCellOutput(D, D_OUT)),
    Subject("depth-gated layer", lambda: DepthGatedLayer(D)),
    Subject("grid of one layer", lambda: nn.GridLSTM(D, D_OUT, num_layers=1), is_slow=True),
    Subject("grid", lambda: nn.GridLSTM(D, D_OUT, num_layers=3)),
    Subject("grid layer", lambda: GridLayer(D), is_slow=True),
    Subject("attention", attention),
    Subject("attention rotary", lambda: attention(rotary=True)),
    Subject("attention both ways", lambda: attention(is_causal=False)),
    Subject("attention both ways rotary", lambda: attention(is_causal=False, rotary=True), is_slow=True),
    Subject("post-norm block", post_block),
    Subject("post-norm block rotary gelu", lambda: post_block(rotary=True, activation="gelu"), is_slow=True),
    Subject("post-norm block both ways", lambda: post_block(is_causal=False), is_slow=True),
    Subject("pre-norm block", pre_block),
    Subject("pre-norm block rotary gelu", lambda: pre_block(rotary=True, activation="gelu"), is_slow=True),
    Subject("pre-norm block both ways", lambda: pre_block(is_causal=False), is_slow=True),
    Subject("transformer learned pre", lambda: transformer(positions="learned", norm="pre"), is_slow=True),
    Subject("transformer learned post", lambda: transformer(positions="learned", norm="post"), is_slow=True),
    Subject("transformer sinusoidal pre", lambda: transformer(positions="sinusoidal", norm="pre"), is_slow=True),
    Subject("transformer sinusoidal post", lambda: transformer(positions="sinusoidal", norm="post")),
    Subject("transformer rotary pre", lambda: transformer(positions="rotary", norm="pre"), is_slow=True),
    Subject("transformer rotary post", lambda: transformer(positions="rotary", norm="post"), is_slow=True),
    Subject("transformer both ways", lambda: transformer(positions="learned", is_causal=False)),
    Subject(
        "transformer as in BERT",
        lambda: transformer(norm="post", norm_input=True, norm_epsilon=1e-12, activation="gelu-tanh", is_causal=False),
        is_slow=True,
    ),
    Subject("transformer with a window", lambda: transformer(positions="rotary", window=3), is_slow=True),
    Subject("transformer with a window, both ways", lambda: transformer(window=2, is_causal=False), is_slow=True),
    Subject("transformer decoder with a window", lambda: decoder(positions="rotary", window=2), is_slow=True),
    Subject("scaled-dot attention", lambda: nn.MultiHeadCrossAttention(D, D_MEMORY, num_heads=2, dropout=0.5)),
    Subject("dot attention", lambda: nn.DotAttention(D, D, dropout=0.5)),
    Subject("bilinear attention", lambda: nn.BilinearAttention(D, D_MEMORY, dropout=0.5)),
    Subject("additive attention", lambda: nn.AdditiveAttention(D, D_MEMORY, d_attention=5, dropout=0.5)),
    Subject("post-norm decoder block", decoder_block, is_slow=True),
    Subject(
        "pre-norm decoder block",
        lambda: nn.PreNormDecoderBlock(D, num_heads=2, d_feedforward=5, d_memory=D_MEMORY, dropout=0.5),
    ),
    Subject("transformer decoder sinusoidal pre", lambda: decoder(positions="sinusoidal", norm="pre"), is_slow=True),
    Subject("transformer decoder rotary post", lambda: decoder(positions="rotary", norm="post"), is_slow=True),
    Subject(
        "attentional layer", lambda: nn.AttentionalLayer(nn.BilinearAttention(D, D_MEMORY), d_out=D_OUT), is_slow=True
    ),
    Subject("lstm from context", lambda: nn.FromContext(nn.LSTM(D, D_OUT), D_MEMORY)),
    Subject(
        "grid lstm from context", lambda: nn.FromContext(nn.GridLSTM(D, D_OUT, num_layers=2), D_MEMORY), is_slow=True
    ),
    Subject(
        "clockwork from context", lambda: nn.FromContext(nn.Clockwork(D, 15, periods=(1, 2, 4)), D_MEMORY), is_slow=True
    ),
    Subject("gru with context", lambda: nn.WithContext(nn.GRU(D + 4, D_OUT), 4, bidirectional=True), is_slow=True),
    Subject(
        "without attention",
        lambda: nn.WithContext(
            nn.FromContext(nn.Stack([nn.LSTM(D + D_MEMORY, 5), nn.LSTM(5, D_OUT)]), D_MEMORY), D_MEMORY
        ),
        is_slow=True,
    ),
    Subject(
        "attention after the cells",
        lambda: nn.Stack(
            [nn.FromContext(nn.LSTM(D, 5), D_MEMORY), nn.AttentionalLayer(nn.AdditiveAttention(5, D_MEMORY))]
        ),
        is_slow=True,
    ),
    Subject("input feeding of an lstm", feeding),
    Subject("cell that is fed", lambda: FedCell(feeding()), is_slow=True),
    Subject(
        "input feeding of a stack",
        lambda: nn.InputFeeding(
            nn.Stack([nn.GRU(D + 5, 7), nn.Elman(7, 5)]),
            nn.AttentionalLayer(nn.AdditiveAttention(5, D_MEMORY, dropout=0.5)),
        ),
        is_slow=True,
    ),
    Subject(
        "input feeding by heads",
        lambda: nn.InputFeeding(
            nn.Elman(2 * D, D), nn.AttentionalLayer(nn.MultiHeadCrossAttention(D, D_MEMORY, num_heads=2))
        ),
        is_slow=True,
    ),
    Subject("attention before the cell", attending),
    Subject(
        "hard attention before the cell",
        lambda: nn.AttentionBefore(nn.Elman(D + D_MEMORY, D), nn.HardAttention(D, D_MEMORY), d_out=D_OUT, gated=False),
        is_slow=True,
    ),
    Subject("hard attention", lambda: nn.HardAttention(D, D_MEMORY, d_attention=5), is_slow=True),
    Subject("learned positions", lambda: nn.LearnedPositions(D, max_positions=16)),
    Subject("sinusoidal positions", lambda: nn.SinusoidalPositions(D)),
    Subject("pointwise projection", lambda: nn.Pointwise(torch.nn.Linear(D, D_OUT), d_in=D, d_out=D_OUT)),
    Subject("pointwise normalization", lambda: nn.Pointwise(torch.nn.LayerNorm(D), d_in=D)),
    Subject("pointwise highway", lambda: nn.Pointwise(nn.Highway(D), d_in=D)),
    Subject("dropout", lambda: nn.Dropout(0.5, d_in=D)),
    Subject("variational dropout", lambda: nn.VariationalDropout(0.5, d_in=D)),
    Subject("weight drop lstm", lambda: nn.WeightDrop(nn.LSTM(D, D_OUT), 0.5)),
    Subject("weight drop gru before", lambda: nn.WeightDrop(nn.GRU(D, D_OUT, reset="before"), 0.5), is_slow=True),
    Subject("residual lstm", lambda: nn.Residual(nn.LSTM(D, D)), is_slow=True),
    Subject("residual attention", lambda: nn.Residual(attention(rotary=True)), is_slow=True),
    Subject("alongside lstm", lambda: nn.Alongside(nn.LSTM(D, 3), d_past=2)),
    Subject(
        "alongside in a stack",
        lambda: nn.Stack(
            [nn.Alongside(nn.Bidirectional(nn.GRU(2, 3), nn.GRU(2, 3)), d_past=D - 2), nn.LSTM(D + 4, D_OUT)]
        ),
        is_slow=True,
    ),
    Subject("stack of one", lambda: nn.Stack([nn.Elman(D, D_OUT)]), is_slow=True),
    Subject("stack of lstms", lambda: nn.Stack([nn.LSTM(D, 5), nn.VariationalDropout(0.5, d_in=5), nn.LSTM(5, D_OUT)])),
    Subject(
        "stack of kinds",
        lambda: nn.Stack([nn.LSTM(D, D), nn.Residual(attention()), nn.Window(D, 3, size=2), nn.GRU(3, D_OUT)]),
        is_slow=True,
    ),
    Subject(
        "stack in a stack",
        lambda: nn.Stack([nn.Stack([nn.Elman(D, D), nn.LearnedPositions(D, max_positions=16)]), pre_block()]),
        is_slow=True,
    ),
    Subject("bidirectional lstm", lambda: nn.Bidirectional(nn.LSTM(D, D_OUT), nn.LSTM(D, D_OUT))),
    Subject(
        "bidirectional sum", lambda: nn.Bidirectional(nn.GRU(D, D_OUT), nn.GRU(D, D_OUT), merge="sum"), is_slow=True
    ),
    Subject(
        "bidirectional product",
        lambda: nn.Bidirectional(nn.Elman(D, D_OUT), nn.Elman(D, D_OUT), merge="product"),
        is_slow=True,
    ),
    Subject("bidirectional mean", lambda: nn.Bidirectional(nn.LSTM(D, D_OUT), nn.GRU(D, D_OUT), merge="mean")),
    Subject(
        "bidirectional transformer",
        lambda: nn.Bidirectional(transformer(), transformer(positions="rotary")),
        is_slow=True,
    ),
    Subject(
        "stack of bidirectionals",
        lambda: nn.Stack(
            [
                nn.Bidirectional(nn.LSTM(D, D), nn.LSTM(D, D)),
                nn.Bidirectional(nn.GRU(2 * D, 3), nn.Window(2 * D, 3, size=2)),
            ]
        ),
    ),
]

CASES = [
    pytest.param(subject, id=subject.name.replace(" ", "_"), marks=[pytest.mark.slow] if subject.is_slow else [])
    for subject in SUBJECTS
]


def concrete_layers() -> set[type[nn.SequenceLayer]]:
    """Return every class in a module of `ensue.nn` that is a layer and not abstract."""
    names = [module.name for module in pkgutil.walk_packages(nn.__path__, "ensue.nn.")]
    classes = {kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    return {kind for kind in classes if issubclass(kind, nn.SequenceLayer) and not inspect.isabstract(kind)}
