"""The layers: each runs over a whole sequence (`forward`) or one position at a time (`step`).

    rnn = ensue.nn.LSTM(d_in=8, d_out=16)
    y, state = rnn(x)                   # (B, T, 8) to (B, T, 16)
    y_t, state = rnn.step(x_t, state)   # (B, 8) to (B, 16), going on from there

A floor of its own: it needs nothing of ensue but `ensue.types` and `ensue.errors`.
"""

from ensue.nn.attention import KVState, MultiHeadAttention
from ensue.nn.combinators import Bidirectional, Residual, Stack
from ensue.nn.dropout import Dropout, VariationalDropout, WeightDrop
from ensue.nn.elman import Elman, ElmanState
from ensue.nn.embeddings import TokenEmbedding, VectorInput
from ensue.nn.gru import GRU, GRUState
from ensue.nn.layer import Parallel, Pointwise, Recurrent, SequenceLayer
from ensue.nn.linear_cross_entropy import linear_cross_entropy
from ensue.nn.lstm import LSTM, LSTMState
from ensue.nn.positions import LearnedPositions, PositionState, Rotary, SinusoidalPositions
from ensue.nn.softmax import SoftmaxHead, TiedSoftmaxHead
from ensue.nn.taps import Tap, Taps, tap_names, watch
from ensue.nn.transformer import FeedForward, PostNormBlock, PreNormBlock, Transformer
from ensue.nn.window import Window, WindowState

__all__ = [
    "GRU",
    "LSTM",
    "Bidirectional",
    "Dropout",
    "Elman",
    "ElmanState",
    "FeedForward",
    "GRUState",
    "KVState",
    "LSTMState",
    "LearnedPositions",
    "MultiHeadAttention",
    "Parallel",
    "Pointwise",
    "PositionState",
    "PostNormBlock",
    "PreNormBlock",
    "Recurrent",
    "Residual",
    "Rotary",
    "SequenceLayer",
    "SinusoidalPositions",
    "SoftmaxHead",
    "Stack",
    "Tap",
    "Taps",
    "TiedSoftmaxHead",
    "TokenEmbedding",
    "Transformer",
    "VariationalDropout",
    "VectorInput",
    "WeightDrop",
    "Window",
    "WindowState",
    "linear_cross_entropy",
    "tap_names",
    "watch",
]
