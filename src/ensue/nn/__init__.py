"""The layers: each runs over a whole sequence (`forward`) or one position at a time (`step`).

    rnn = ensue.nn.LSTM(d_in=8, d_out=16)
    y, state = rnn(x)                   # (B, T, 8) to (B, T, 16)
    y_t, state = rnn.step(x_t, state)   # (B, 8) to (B, 16), continuing from that state

The layers need nothing of ensue but the ground and the engine.
"""

from ensue.nn.attention.attentional import (
    AttentionalLayer as AttentionalLayer,
    InputFeeding as InputFeeding,
    InputFeedingState as InputFeedingState,
)
from ensue.nn.attention.before import (
    AttentionBefore as AttentionBefore,
    BeforeState as BeforeState,
    HardAttention as HardAttention,
    joined_steps as joined_steps,
)
from ensue.nn.attention.blocks import (
    BlockOptions as BlockOptions,
    DecoderBlockState as DecoderBlockState,
    FeedForward as FeedForward,
    PostNormBlock as PostNormBlock,
    PostNormDecoderBlock as PostNormDecoderBlock,
    PreNormBlock as PreNormBlock,
    PreNormDecoderBlock as PreNormDecoderBlock,
)
from ensue.nn.attention.cross import (
    AdditiveAttention as AdditiveAttention,
    BilinearAttention as BilinearAttention,
    CrossAttention as CrossAttention,
    DotAttention as DotAttention,
    MultiHeadCrossAttention as MultiHeadCrossAttention,
    Source as Source,
)
from ensue.nn.attention.multi_head import (
    AttentionOptions as AttentionOptions,
    KVState as KVState,
    MultiHeadAttention as MultiHeadAttention,
)
from ensue.nn.attention.positions import (
    LearnedPositions as LearnedPositions,
    PositionState as PositionState,
    Rotary as Rotary,
    SinusoidalPositions as SinusoidalPositions,
)
from ensue.nn.attention.transformer import Transformer as Transformer, TransformerOptions as TransformerOptions
from ensue.nn.characters import (
    CharacterCNN as CharacterCNN,
    CharacterLSTM as CharacterLSTM,
    Highway as Highway,
    HighwayCharacterCNN as HighwayCharacterCNN,
)
from ensue.nn.combinators import (
    Alongside as Alongside,
    Bidirectional as Bidirectional,
    Residual as Residual,
    ScalarMix as ScalarMix,
    Stack as Stack,
)
from ensue.nn.dropout import (
    Dropout as Dropout,
    ElementDropout as ElementDropout,
    VariationalDropout as VariationalDropout,
    WeightDrop as WeightDrop,
)
from ensue.nn.embeddings import TokenEmbedding as TokenEmbedding
from ensue.nn.heads.chain import log_partition as log_partition, marginals as marginals, posterior as posterior
from ensue.nn.heads.copying import (
    CopyingHead as CopyingHead,
    CopyingNats as CopyingNats,
    CopyingSource as CopyingSource,
    CopyingState as CopyingState,
)
from ensue.nn.heads.crf import LegalTags as LegalTags, LinearChainCRF as LinearChainCRF
from ensue.nn.heads.linear_cross_entropy import (
    WordSample as WordSample,
    linear_cross_entropy as linear_cross_entropy,
    sampled_cross_entropy as sampled_cross_entropy,
)
from ensue.nn.heads.mixture import Mixture as Mixture, MixtureHead as MixtureHead
from ensue.nn.heads.paths import k_best as k_best, viterbi as viterbi
from ensue.nn.heads.single_chain import (
    ChainScores as ChainScores,
    Posterior as Posterior,
    marginals_of_one as marginals_of_one,
    viterbi_path as viterbi_path,
)
from ensue.nn.heads.softmax import (
    SoftmaxHead as SoftmaxHead,
    TiedSoftmaxHead as TiedSoftmaxHead,
    TransformedSoftmaxHead as TransformedSoftmaxHead,
)
from ensue.nn.images import ImageGrid as ImageGrid
from ensue.nn.layer import (
    Parallel as Parallel,
    Pointwise as Pointwise,
    Recurrent as Recurrent,
    SequenceLayer as SequenceLayer,
)
from ensue.nn.pooling import (
    AttentionPooling as AttentionPooling,
    FirstPooling as FirstPooling,
    LastPooling as LastPooling,
    MaxPooling as MaxPooling,
    MeanPooling as MeanPooling,
    Pooling as Pooling,
    Poolings as Poolings,
)
from ensue.nn.recurrent.clockwork import Clockwork as Clockwork, ClockworkState as ClockworkState
from ensue.nn.recurrent.context import (
    ContextState as ContextState,
    FromContext as FromContext,
    WithContext as WithContext,
)
from ensue.nn.recurrent.delta_rule import DeltaState as DeltaState, LastState as LastState
from ensue.nn.recurrent.elman import Elman as Elman, ElmanState as ElmanState
from ensue.nn.recurrent.gated_deltanet import GatedDeltaNet as GatedDeltaNet
from ensue.nn.recurrent.gru import GRU as GRU, GRUState as GRUState
from ensue.nn.recurrent.lem import LEM as LEM, LEMState as LEMState
from ensue.nn.recurrent.linear_recurrence import LinearRecurrence as LinearRecurrence, LinearState as LinearState
from ensue.nn.recurrent.lru import LRU as LRU, LRUState as LRUState
from ensue.nn.recurrent.lstm import LSTM as LSTM, LSTMState as LSTMState
from ensue.nn.recurrent.lstm_stacks import DepthGatedLSTM as DepthGatedLSTM, GridLSTM as GridLSTM
from ensue.nn.recurrent.lstm_variants import (
    CoupledLSTM as CoupledLSTM,
    LayerNormLSTM as LayerNormLSTM,
    MogrifierLSTM as MogrifierLSTM,
    PeepholeLSTM as PeepholeLSTM,
    ProjectedLSTM as ProjectedLSTM,
    ProjectedLSTMState as ProjectedLSTMState,
)
from ensue.nn.recurrent.minimal import MinGRU as MinGRU, MinLSTM as MinLSTM
from ensue.nn.recurrent.qrnn import QRNN as QRNN, QRNNState as QRNNState
from ensue.nn.recurrent.rwkv7 import RWKV7 as RWKV7
from ensue.nn.recurrent.scan import scan as scan
from ensue.nn.recurrent.variational import (
    VariationalRecurrent as VariationalRecurrent,
    VariationalState as VariationalState,
)
from ensue.nn.recurrent.xlstm import MLSTM as MLSTM, SLSTM as SLSTM, MLSTMState as MLSTMState, SLSTMState as SLSTMState
from ensue.nn.recurrent.zoneout import Zoneout as Zoneout
from ensue.nn.taps import Tap as Tap, Taps as Taps, replace as replace, tap_names as tap_names, watch as watch
from ensue.nn.window import Window as Window, WindowState as WindowState
