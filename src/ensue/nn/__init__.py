"""Layers that run over a whole sequence (`forward`) or, if causal, one position at a time (`step`), and their heads.

    rnn = ensue.nn.LSTM(d_in=8, d_out=16)
    y, state = rnn(x)                   # (B, T, 8) to (B, T, 16)
    y_t, state = rnn.step(x_t, state)   # (B, 8) to (B, 16), continuing from `state`

The layers depend on `ensue.engine` and on a few other modules, such as `ensue.types`.
"""

from ensue.nn.attention.attentional import AttentionalLayer, InputFeeding, InputFeedingState
from ensue.nn.attention.blocks import (
    BlockOptions,
    DecoderBlockState,
    FeedForward,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
)
from ensue.nn.attention.cross import (
    AdditiveAttention,
    AttentionBefore,
    BeforeState,
    BilinearAttention,
    CrossAttention,
    DotAttention,
    HardAttention,
    MultiHeadCrossAttention,
    Source,
    joined_steps,
)
from ensue.nn.attention.multi_head import AttentionOptions, KVState, MultiHeadAttention
from ensue.nn.attention.positions import LearnedPositions, PositionState, Rotary, SinusoidalPositions
from ensue.nn.attention.transformer import Transformer, TransformerOptions
from ensue.nn.combinators import Alongside, Bidirectional, Residual, ScalarMix, Stack
from ensue.nn.dropout import Dropout, ElementDropout, VariationalDropout, WeightDrop
from ensue.nn.embeddings import CharacterCNN, CharacterLSTM, Highway, HighwayCharacterCNN, TokenEmbedding
from ensue.nn.gaussian import Mixture, MixtureHead
from ensue.nn.heads.chain import k_best, log_partition, marginals, posterior, viterbi
from ensue.nn.heads.copying import CopyingHead, CopyingNats, CopyingSource, CopyingState
from ensue.nn.heads.crf import LegalTags, LinearChainCRF
from ensue.nn.heads.single_chain import ChainScores, Posterior, marginals_of_one, viterbi_path
from ensue.nn.heads.softmax import (
    SoftmaxHead,
    TiedSoftmaxHead,
    TransformedSoftmaxHead,
    WordSample,
    linear_cross_entropy,
    sampled_cross_entropy,
)
from ensue.nn.images import ImageGrid
from ensue.nn.layer import Parallel, Pointwise, Recurrent, SequenceLayer
from ensue.nn.pooling import AttentionPooling, FirstPooling, LastPooling, MaxPooling, MeanPooling, Pooling, Poolings
from ensue.nn.recurrent.clockwork import Clockwork, ClockworkState
from ensue.nn.recurrent.context import ContextState, FromContext, WithContext
from ensue.nn.recurrent.delta_rule import HGRN2, RWKV7, DeltaState, GatedDeltaNet, LastState, MatrixState
from ensue.nn.recurrent.gru import GRU, LEM, Elman, ElmanState, GRUState, LEMState
from ensue.nn.recurrent.linear_recurrence import (
    LRU,
    QRNN,
    LinearRecurrence,
    LinearState,
    LRUState,
    MinGRU,
    MinLSTM,
    QRNNState,
    scan,
)
from ensue.nn.recurrent.lstm import (
    LSTM,
    CoupledLSTM,
    LayerNormLSTM,
    LSTMState,
    MogrifierLSTM,
    PeepholeLSTM,
    ProjectedLSTM,
    ProjectedLSTMState,
)
from ensue.nn.recurrent.lstm_stacks import DepthGatedLSTM, GridLSTM
from ensue.nn.recurrent.variational import VariationalRecurrent, VariationalState
from ensue.nn.recurrent.xlstm import MLSTM, SLSTM, MLSTMState, SLSTMState
from ensue.nn.recurrent.zoneout import Zoneout
from ensue.nn.taps import Tap, Taps, replace, tap_names, watch
from ensue.nn.window import Window, WindowState

__all__ = [
    "GRU", "HGRN2", "LEM", "LRU", "LSTM", "MLSTM", "QRNN", "RWKV7", "SLSTM", "AdditiveAttention", "Alongside",
    "AttentionBefore", "AttentionOptions", "AttentionPooling", "AttentionalLayer", "BeforeState", "Bidirectional",
    "BilinearAttention", "BlockOptions", "ChainScores", "CharacterCNN", "CharacterLSTM", "Clockwork", "ClockworkState",
    "ContextState", "CopyingHead", "CopyingNats", "CopyingSource", "CopyingState", "CoupledLSTM", "CrossAttention",
    "DecoderBlockState", "DeltaState", "DepthGatedLSTM", "DotAttention", "Dropout", "ElementDropout", "Elman",
    "ElmanState", "FeedForward", "FirstPooling", "FromContext", "GRUState", "GatedDeltaNet", "GridLSTM",
    "HardAttention", "Highway", "HighwayCharacterCNN", "ImageGrid", "InputFeeding", "InputFeedingState", "KVState",
    "LEMState", "LRUState", "LSTMState", "LastPooling", "LastState", "LayerNormLSTM", "LearnedPositions", "LegalTags",
    "LinearChainCRF", "LinearRecurrence", "LinearState", "MLSTMState", "MatrixState", "MaxPooling", "MeanPooling",
    "MinGRU", "MinLSTM", "Mixture", "MixtureHead", "MogrifierLSTM", "MultiHeadAttention", "MultiHeadCrossAttention",
    "Parallel", "PeepholeLSTM", "Pointwise", "Pooling", "Poolings", "PositionState", "PostNormBlock",
    "PostNormDecoderBlock", "Posterior", "PreNormBlock", "PreNormDecoderBlock", "ProjectedLSTM", "ProjectedLSTMState",
    "QRNNState", "Recurrent", "Residual", "Rotary", "SLSTMState", "ScalarMix", "SequenceLayer", "SinusoidalPositions",
    "SoftmaxHead", "Source", "Stack", "Tap", "Taps", "TiedSoftmaxHead", "TokenEmbedding", "TransformedSoftmaxHead",
    "Transformer", "TransformerOptions", "VariationalDropout", "VariationalRecurrent", "VariationalState", "WeightDrop",
    "Window", "WindowState", "WithContext", "WordSample", "Zoneout", "joined_steps", "k_best", "linear_cross_entropy",
    "log_partition", "marginals", "marginals_of_one", "posterior", "replace", "sampled_cross_entropy", "scan",
    "tap_names", "viterbi", "viterbi_path", "watch",
]  # fmt: skip
