"""The layers: each runs over a whole sequence (`forward`) or one position at a time (`step`).

    rnn = ensue.nn.LSTM(d_in=8, d_out=16)
    y, state = rnn(x)                   # (B, T, 8) to (B, T, 16)
    y_t, state = rnn.step(x_t, state)   # (B, 8) to (B, 16), going on from there

A floor of its own: it needs nothing of ensue but `ensue.types` and `ensue.errors`.
"""

from ensue.nn.attention import KVState, MultiHeadAttention
from ensue.nn.chain import log_partition, marginals
from ensue.nn.characters import CharacterCNN, CharacterLSTM
from ensue.nn.combinators import Bidirectional, Residual, Stack
from ensue.nn.crf import Legal, LinearChainCRF, Tables
from ensue.nn.dropout import Dropout, VariationalDropout, WeightDrop
from ensue.nn.elman import Elman, ElmanState
from ensue.nn.embeddings import TokenEmbedding, VectorInput
from ensue.nn.gru import GRU, GRUState
from ensue.nn.layer import Parallel, Pointwise, Recurrent, SequenceLayer
from ensue.nn.linear_cross_entropy import linear_cross_entropy
from ensue.nn.lstm import LSTM, LSTMState
from ensue.nn.paths import k_best, viterbi, viterbi_path
from ensue.nn.pooling import AttentionPooling, LastPooling, MaxPooling, MeanPooling, Pooling, Poolings
from ensue.nn.positions import LearnedPositions, PositionState, Rotary, SinusoidalPositions
from ensue.nn.softmax import SoftmaxHead, TiedSoftmaxHead
from ensue.nn.taps import Tap, Taps, tap_names, watch
from ensue.nn.transformer import FeedForward, PostNormBlock, PreNormBlock, Transformer
from ensue.nn.window import Window, WindowState

__all__ = [
    "GRU",
    "LSTM",
    "AttentionPooling",
    "Bidirectional",
    "CharacterCNN",
    "CharacterLSTM",
    "Dropout",
    "Elman",
    "ElmanState",
    "FeedForward",
    "GRUState",
    "KVState",
    "LSTMState",
    "LastPooling",
    "LearnedPositions",
    "Legal",
    "LinearChainCRF",
    "MaxPooling",
    "MeanPooling",
    "MultiHeadAttention",
    "Parallel",
    "Pointwise",
    "Pooling",
    "Poolings",
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
    "Tables",
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
    "k_best",
    "linear_cross_entropy",
    "log_partition",
    "marginals",
    "tap_names",
    "viterbi",
    "viterbi_path",
    "watch",
]
