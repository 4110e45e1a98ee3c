"""From the tables of a recipe to models of frames (sounds, series, images), built of the
encoders and heads of those of text.
"""

from __future__ import annotations

from ensue.models.build_text import build_poolings, build_tag_head, target_embedding, target_softmax
from ensue.models.captioner import Captioner
from ensue.models.classifier import Classifier
from ensue.models.encoders import build_attention, build_decoder, build_encoder, in_two_halves
from ensue.models.frame_features import FrameFeatures
from ensue.models.frame_predictor import FramePredictor
from ensue.models.frame_readers import FrameReader, PlainReader, StochasticReader, VariationalReader
from ensue.models.frame_specification import (
    CanvasSpecification,
    CaptionAttention,
    GlimpseSpecification,
    GridSpecification,
    LatentSpecification,
    MixtureHeadSpecification,
)
from ensue.models.glimpse_reader import GlimpseReader
from ensue.models.painter import ImageSize, Painter, WholeReader, WholeWriter, WindowReader, WindowWriter
from ensue.models.specification import (
    ONE_WAY,
    CellsSpecification,
    Directions,
    Encoder,
    EncoderSpecification,
    NoEncoder,
    PairTokens,
    TextHead,
    TransformerEncoder,
    WindowEncoder,
)
from ensue.models.tagger import Tagger
from ensue.models.word_specification import PathHeadSpecification, PoolingHeadSpecification
from ensue.nn import (
    AttentionBefore,
    Dropout,
    FromContext,
    HardAttention,
    ImageGrid,
    MixtureHead,
    SequenceLayer,
    Stack,
    VariationalRecurrent,
)
from ensue.nn.images import Glimpses, GlimpseVector, ImageVector
from ensue.text.labels import Labels


def build_frame_classifier(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    head: PoolingHeadSpecification,
    *,
    directions: Directions,
    num_labels: int,
    multiple: bool,
) -> Classifier:
    """A classifier from its tables. Raises ValueError for tables that do not fit together."""
    layers = build_encoder(encoder, d_in=features.d_out, directions=directions)
    both_ways = in_two_halves(encoder, directions)
    poolings = build_poolings(head, layers.d_out, both_ways=both_ways, is_causal=layers.is_causal)
    if poolings is None:
        raise ValueError("head.pooling names none; nothing is left to decide by")
    return Classifier(
        features,
        layers,
        poolings,
        num_labels,
        d_hidden=head.d_hidden,
        activation=head.activation,
        dropout=head.dropout,
        label_smoothing=head.label_smoothing,
        multiple=multiple,
    )


def build_frame_tagger(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    head: PathHeadSpecification,
    *,
    directions: Directions,
    labels: Labels,
) -> Tagger:
    """A tagger from its tables."""
    layers = build_encoder(encoder, d_in=features.d_out, directions=directions)
    return Tagger(features, layers, build_tag_head(head, layers.d_out, labels))


def build_frame_predictor(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    latent: LatentSpecification,
    head: MixtureHeadSpecification,
) -> FramePredictor:
    """A model of the next frame from its tables."""
    reader = _reader(encoder, latent, features.d_out)
    density = MixtureHead(reader.d_out, features.d_out, components=head.components, least=head.least_deviation)
    return FramePredictor(features, reader, density)


def _reader(encoder: EncoderSpecification, latent: LatentSpecification, d: int) -> FrameReader:
    size, hidden = latent.size, latent.d_hidden
    match latent.kind:
        case "vrnn":
            cell = build_encoder(encoder, d_in=2 * hidden)
            return VariationalReader(VariationalRecurrent(cell, d_x=d, d_latent=size, d_hidden=hidden))
        case "storn":
            recognition = build_encoder(encoder, d_in=d, directions=Directions(bidirectional=latent.looks_ahead))
            return StochasticReader(build_encoder(encoder, d_in=d + size), recognition, d_latent=size)
    return PlainReader(build_encoder(encoder, d_in=d))


def build_captioner(
    features: FrameFeatures, grid: GridSpecification, encoder: EncoderSpecification, directions: Directions,
    tokens: PairTokens, decoder: EncoderSpecification, attention: CaptionAttention, head: TextHead, *, rows: int,
    target_size: int,
) -> Captioner:  # fmt: skip
    """A captioner from its tables, for images of so many `rows`. Raises ValueError for tables that do not go
    together.
    """
    if head.copying:
        raise ValueError("head.copying copies words of a source; a caption's source has none")
    target = target_embedding(tokens, target_size)
    places = None
    if grid.kind != "none":
        places = ImageGrid(
            rows, features.d_out, colors=grid.colors, channels=grid.channels, halvings=grid.halvings,
            dropout=grid.dropout,
        )  # fmt: skip
    d_read = features.d_out if places is None else places.d_out
    reads = build_encoder(encoder, d_in=d_read, directions=directions)
    writes = _decoder(decoder, attention, d_in=target.d_out, d_memory=reads.d_out)
    softmax = target_softmax(tokens, target, d_in=writes.d_out)
    return Captioner(
        features, places, reads, target, writes, softmax, label_smoothing=head.label_smoothing,
        doubly_stochastic=attention.doubly_stochastic, entropy=attention.entropy,
    )  # fmt: skip


def _decoder(decoder: EncoderSpecification, attention: CaptionAttention, *, d_in: int, d_memory: int) -> SequenceLayer:
    """The layers of a decoder that looks before its step, or of one like those of `build_decoder`."""
    if (
        not attention.before
        or attention.kind == "none"
        or isinstance(decoder, TransformerEncoder | WindowEncoder | NoEncoder)
    ):
        return build_decoder(decoder, attention, d_in=d_in, d_memory=d_memory, both_ways=False)
    asks = (
        HardAttention(decoder.d_model, d_memory, expected=attention.expected)
        if attention.hard
        else build_attention(attention, decoder.d_model, d_memory)
    )
    cells = build_encoder(decoder, d_in=d_in + asks.d_out, directions=ONE_WAY)
    layer = AttentionBefore(FromContext(cells, d_memory, mean=True), asks, d_out=decoder.d_model, gated=attention.gate)
    return Stack([layer, Dropout(attention.dropout, d_in=layer.d_out)]) if attention.dropout else layer


def build_glimpse_reader(
    features: FrameFeatures, encoder: EncoderSpecification, table: GlimpseSpecification, *, rows: int, num_symbols: int
) -> GlimpseReader:
    """The model from its tables, for images of so many rows. Both recurrent layers are of the same kind."""
    assert isinstance(encoder, Encoder)
    reader = build_encoder(encoder, d_in=encoder.d_model)
    planner = build_encoder(encoder, d_in=reader.d_out)
    glimpses = Glimpses(table.size, table.scales)
    vector = GlimpseVector(table.scales * table.colors, table.size, tuple(table.convolutions), reader.d_in)
    height, width = (-(-side // table.view) for side in (rows, features.d_out // table.colors))
    view = ImageVector(table.colors, height, width, tuple(table.view_convolutions), planner.d_in)
    return GlimpseReader(features, glimpses, vector, view, reader, planner, num_symbols, table=table)


def build_painter(
    canvas: CanvasSpecification, encoder: CellsSpecification, decoder: CellsSpecification, *, size: ImageSize
) -> Painter:
    """A painter from its tables. Raises ValueError for a window that is larger than the images."""
    strokes = build_encoder(decoder, d_in=canvas.d_latent)
    d, attends = strokes.d_out, canvas.attention
    reader = WindowReader(size, d, canvas.read) if attends else WholeReader(size)
    writer = WindowWriter(size, d, canvas.write) if attends else WholeWriter(size, d)
    glimpses = build_encoder(encoder, d_in=reader.d_out + d)
    return Painter(glimpses, strokes, reader, writer, size=size, glimpses=canvas.glimpses)
