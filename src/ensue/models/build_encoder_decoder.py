"""From the tables of a recipe to encoder–decoders."""

from __future__ import annotations

from ensue.models.contextual_vectors import ContextualVectors
from ensue.models.copying import CopyingEncoderDecoder
from ensue.models.decoder_only import DecoderOnly
from ensue.models.decoders import build_decoder
from ensue.models.encoder_decoder import EncoderDecoder, TextModel
from ensue.models.encoders import build_encoder, in_two_halves
from ensue.models.specification import (
    Attention,
    Directions,
    EncoderSpecification,
    PairTokens,
    TextHead,
    TransformerEncoder,
)
from ensue.nn import CopyingHead, SoftmaxHead, TiedSoftmaxHead, TokenEmbedding


def build_encoder_decoder(
    tokens: PairTokens,
    encoder: EncoderSpecification | None,
    decoder: EncoderSpecification,
    attention: Attention,
    head: TextHead,
    *,
    directions: Directions,
    source_size: int,
    target_size: int,
    is_joint: bool,
    unknown_id: int = 0,
    contextual: ContextualVectors | None = None,
) -> TextModel:
    """An encoder–decoder from its tables, for vocabularies of these sizes. `is_joint`: they are the same one, in which
    `unknown_id` is read in place of a word that is copied. Without an `encoder` the decoder reads the source too.
    `contextual` makes features of the source's words in the layers of other models.

    Raises ValueError for tables that do not go together.
    """
    if tokens.tied == "all" and not is_joint:
        raise ValueError('tokens.tied = "all" needs one vocabulary; remove the table [target_tokenizer]')
    target = target_embedding(tokens, target_size)
    source = target
    if tokens.tied != "all":
        source = TokenEmbedding(source_size, tokens.d_embedding, dropout=tokens.dropout_words)
    if encoder is None:
        if contextual is not None:
            raise ValueError("features.contextual needs an encoder; add the table [encoder]")
        return _decoder_only(tokens, decoder, target, head, is_joint=is_joint)
    if head.copying:
        _check_copying(head, is_joint=is_joint)
    d_source = source.d_out + (0 if contextual is None else contextual.d_out)
    reads = build_encoder(encoder, d_in=d_source, directions=directions)
    both_ways = in_two_halves(encoder, directions)
    writes = build_decoder(decoder, attention, d_in=target.d_out, d_memory=reads.d_out, both_ways=both_ways)
    softmax = target_softmax(tokens, target, d_in=writes.d_out)
    if not head.copying:
        smoothing = head.label_smoothing
        return EncoderDecoder(source, reads, target, writes, softmax, label_smoothing=smoothing, contextual=contextual)
    copying = CopyingHead(writes.d_out, softmax, d_memory=reads.d_out, coverage=head.coverage > 0)
    return CopyingEncoderDecoder(
        source, reads, target, writes, copying, unknown_id=unknown_id, coverage=head.coverage, contextual=contextual
    )


def target_embedding(tokens: PairTokens, size: int) -> TokenEmbedding:
    """The vectors of the `size` tokens that are written; scaled by √d where the softmax has them too, as in Vaswani
    et al. 2017.
    """
    scale = tokens.d_embedding**0.5 if tokens.tied != "none" else 1.0
    return TokenEmbedding(size, tokens.d_embedding, dropout=tokens.dropout_words, scale=scale)


def target_softmax(tokens: PairTokens, target: TokenEmbedding, *, d_in: int) -> SoftmaxHead:
    """The softmax over the tokens that are written, with their vectors if `tokens` ties both."""
    return SoftmaxHead(d_in, target.vocabulary_size) if tokens.tied == "none" else TiedSoftmaxHead(d_in, target)


def _check_copying(head: TextHead, *, is_joint: bool) -> None:
    if not is_joint:
        raise ValueError("head.copying needs one vocabulary for both sides; remove the table [target_tokenizer]")
    if head.label_smoothing:
        raise ValueError("head.label_smoothing is not for a head that copies")


def _decoder_only(
    tokens: PairTokens, decoder: EncoderSpecification, target: TokenEmbedding, head: TextHead, *, is_joint: bool
) -> DecoderOnly:
    if not is_joint:
        raise ValueError("without an encoder both sides have one vocabulary; remove the table [target_tokenizer]")
    if head.copying:
        raise ValueError("head.copying needs an encoder; add the table [encoder]")
    if isinstance(decoder, TransformerEncoder) and decoder.positions == "learned":
        raise ValueError('without an encoder decoder.positions is "rotary" or "sinusoidal", which go on without an end')
    layers = build_encoder(decoder, d_in=target.d_out)
    softmax = target_softmax(tokens, target, d_in=layers.d_out)
    return DecoderOnly(target, layers, softmax, label_smoothing=head.label_smoothing)
