"""From the tables of a recipe to language models, with weights drawn from torch's global generator."""

from __future__ import annotations

from ensue.models.encoders import build_encoder, build_transformer
from ensue.models.language_model import LanguageModel
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.specification import EncoderSpecification, Tokens, TransformerEncoder
from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding, TransformedSoftmaxHead, Transformer


def build_language_model(tokens: Tokens, encoder: EncoderSpecification, *, vocabulary_size: int) -> LanguageModel:
    """A language model from the tables `[tokens]` and `[encoder]`."""
    embedding = TokenEmbedding(
        vocabulary_size,
        tokens.d_embedding,
        dropout=tokens.dropout_words,
        scale=tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1.0,
    )
    layers = build_encoder(encoder, d_in=embedding.d_out)
    if tokens.tied:
        head: SoftmaxHead = TiedSoftmaxHead(layers.d_out, embedding)
    else:
        head = SoftmaxHead(layers.d_out, vocabulary_size)
    context = encoder.context if isinstance(encoder, TransformerEncoder) else None
    return LanguageModel(embedding, layers, head, context=context)


def build_masked_language_model(
    encoder: TransformerEncoder,
    *,
    vocabulary_size: int,
    num_segments: int = 0,
    masked: bool = True,
    pooler: bool = False,
    next_sentence: bool = False,
) -> MaskedLanguageModel:
    """A model that fills in masks, from the table `[encoder]`. The vectors of tokens are those of its softmax too.
    Without `masked` it has no head, and gives vectors alone.

    Raises ValueError for a model that knows next sentences but has no vectors for two segments.
    """
    std = encoder.d_model**-0.5  # as the positions begin, which are added before a normalization
    features = TokenEmbedding(vocabulary_size, encoder.d_model, std=std)
    segments = TokenEmbedding(num_segments, encoder.d_model, std=std) if num_segments else None
    layers = build_transformer(encoder, d_in=encoder.d_model, is_causal=False)
    assert isinstance(layers, Transformer)
    head = None
    if masked:
        head = TransformedSoftmaxHead(
            layers.d_out, features, activation=encoder.activation, norm_epsilon=encoder.norm_epsilon
        )
    return MaskedLanguageModel(
        features, layers, head, context=encoder.context, segments=segments, pooler=pooler, next_sentence=next_sentence
    )
