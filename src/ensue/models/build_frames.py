"""From the tables of a recipe to models that read frames, with the encoders and heads of those that read words."""

from __future__ import annotations

from ensue.models.build_heads import build_poolings, build_tag_head
from ensue.models.classifier import Classifier
from ensue.models.encoders import build_encoder, in_two_halves
from ensue.models.feature_specification import (
    LatentSpecification,
    MixtureHeadSpecification,
    PathHeadSpecification,
    PoolingHeadSpecification,
)
from ensue.models.frame_features import FrameFeatures
from ensue.models.frame_predictor import FramePredictor
from ensue.models.frame_readers import FrameReader, PlainReader, StochasticReader, VariationalReader
from ensue.models.specification import Directions, EncoderSpecification
from ensue.models.tagger import Tagger
from ensue.nn import MixtureHead, VariationalRecurrent
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
