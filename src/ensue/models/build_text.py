"""Functions that build models of text and labels from recipes. torch's global generator draws initial weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ensue.models.classifier import Classifier
from ensue.models.encoder_decoder import CopyingEncoderDecoder, DecoderOnly, EncoderDecoder, TextModel
from ensue.models.encoders import build_decoder, build_encoder, build_transformer, outputs_halves
from ensue.models.language_model import LanguageModel
from ensue.models.layer_outputs import ContextualVectors, LayersShape
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.specification import (
    Attention,
    Directions,
    EncoderSpecification,
    OriginEncoder,
    PairTokens,
    RecurrentEncoder,
    TextHead,
    Tokens,
    TransformerEncoder,
)
from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.tag_heads import CRFTagHead, SoftmaxTagHead, TagHead, TagHeads, ViterbiTagHead
from ensue.models.tagger import Tagger, WindowSum
from ensue.models.word_features import WindowScores, WordFeatures
from ensue.models.word_specification import (
    ClassHeadSpecification,
    FeatureSpecification,
    PathHeadSpecification,
    PoolingHeadSpecification,
    TagHeadSpecification,
)
from ensue.nn.attention.transformer import Transformer
from ensue.nn.combinators import Alongside, Stack
from ensue.nn.embeddings import TokenEmbedding
from ensue.nn.heads.copying import CopyingHead
from ensue.nn.heads.crf import LegalTags
from ensue.nn.heads.softmax import SoftmaxHead, TiedSoftmaxHead, TransformedSoftmaxHead
from ensue.nn.layer import SequenceLayer
from ensue.nn.pooling import AttentionPooling, FirstPooling, LastPooling, MaxPooling, MeanPooling, Pooling, Poolings
from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Labels
from ensue.text.lexicon import Lexicon


def build_language_model(tokens: Tokens, encoder: EncoderSpecification, *, vocabulary_size: int) -> LanguageModel:
    """Build a language model from the tables `[tokens]` and `[encoder]`."""
    embedding = TokenEmbedding(
        vocabulary_size, tokens.d_embedding, dropout=tokens.dropout_words,
        scale=tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1.0,
    )  # fmt: skip
    layers = build_encoder(encoder, d_in=embedding.d_out)
    if tokens.tied:
        head: SoftmaxHead = TiedSoftmaxHead(layers.d_out, embedding)
    else:
        head = SoftmaxHead(layers.d_out, vocabulary_size)
    context = encoder.context if isinstance(encoder, TransformerEncoder) else None
    return LanguageModel(embedding, layers, head, context=context)


def build_masked_language_model(
    encoder: TransformerEncoder, *, vocabulary_size: int, num_segments: int = 0, masked: bool = True,
    pooler: bool = False, next_sentence: bool = False,
) -> MaskedLanguageModel:  # fmt: skip
    """Build a masked language model with tied weights, or without `masked` a model without a head."""
    d = encoder.d_input or encoder.d_model
    std = d**-0.5  # the standard deviation of the learned positions, which are added to token vectors
    features = TokenEmbedding(vocabulary_size, d, std=std)
    segments = TokenEmbedding(num_segments, d, std=std) if num_segments else None
    layers = build_transformer(encoder, d_in=d, is_causal=False)
    assert isinstance(layers, Transformer)
    head = None
    if masked:
        head = TransformedSoftmaxHead(
            layers.d_out, features, activation=encoder.activation, norm_epsilon=encoder.norm_epsilon
        )
    return MaskedLanguageModel(
        features, layers, head, context=encoder.context, segments=segments, pooler=pooler, next_sentence=next_sentence
    )


POOLINGS: dict[str, Callable[[int, bool], Pooling]] = {
    "first": lambda d_in, _: FirstPooling(d_in),
    "last": lambda d_in, has_halves: LastPooling(d_in, bidirectional=has_halves),
    "mean": lambda d_in, _: MeanPooling(d_in),
    "max": lambda d_in, _: MaxPooling(d_in),
    "attention": lambda d_in, _: AttentionPooling(d_in),
}


def build_tag_head(specification: PathHeadSpecification, d_in: int, labels: TaggerLabels) -> TagHead:
    """Build the head of a tagger over `d_in` features; for several label columns, a head for each of them.

    Columns of the kinds label and class have the head of the table, all other columns a softmax.
    """
    if not isinstance(labels, Labels):
        softmax = specification.model_copy(update={"kind": "softmax"})
        tables_by_kind = {"label": specification, "class": specification}
        return TagHeads(
            [build_tag_head(tables_by_kind.get(column.kind, softmax), d_in, column.labels) for column in labels.learned]
        )
    tables = labels.legal_transitions() if specification.legal else None
    legal = None if tables is None else LegalTags(*map(torch.from_numpy, tables))
    match specification.kind:
        case "crf":
            return CRFTagHead(d_in, len(labels), legal=legal)
        case "viterbi":
            return ViterbiTagHead(
                d_in, len(labels), legal=legal, weight=specification.bigram_weight,
                label_smoothing=specification.label_smoothing,
            )  # fmt: skip
    return SoftmaxTagHead(d_in, len(labels), label_smoothing=specification.label_smoothing)


def build_poolings(head: PoolingHeadSpecification, d_in: int, *, has_halves: bool, is_causal: bool) -> Poolings | None:
    """Build the poolings of a classifier. With `has_halves`, each half of the features belongs to one direction."""
    if "first" in head.pooling and is_causal:
        raise ValueError('head.pooling = "first" is for layers that read in both directions; expected "last"')
    return Poolings([POOLINGS[kind](d_in, has_halves) for kind in head.pooling]) if head.pooling else None


def build_lexicon(features: FeatureSpecification, counts: Mapping[str, int], **options: Any) -> Lexicon:
    """Build the lexicon of the features from the counts of word forms. `options` are arguments of `Lexicon.train`."""
    return Lexicon.train(
        counts, min_count=features.min_count, max_size=features.max_size, lowercase=features.lowercase,
        fold_digits=features.fold_digits, characters=features.characters != "none", longest_affix=features.affixes,
        min_affix_count=features.min_affix_count, shapes=features.d_shape > 0, **options,
    )  # fmt: skip


def build_tagger(
    features: FeatureSpecification, encoder: EncoderSpecification | OriginEncoder, head: TagHeadSpecification, *,
    directions: Directions, lexicon: Lexicon, labels: TaggerLabels, pretrained: Tensor | None = None,
    contextual: Sequence[LayersShape] = (), tuned: SubwordEncoder | None = None,
) -> Tagger:  # fmt: skip
    """Build a tagger. Raises ValueError if the tables contradict each other.

    `pretrained` are the vectors (V, d) of words in the lexicon, `contextual` the shapes of contextual features, and
    `tuned` the layers of another model in place of the encoder.
    """
    if head.solver == "lbfgs":
        return Tagger(
            WindowScores(features, lexicon, len(labels)), WindowSum(len(labels)),
            build_tag_head(head, len(labels), labels).fix_projection(),
        )  # fmt: skip
    words = WordFeatures(features, lexicon, pretrained=pretrained, contextual=contextual)
    layers = _build_word_encoder(encoder, words, directions) if tuned is None else _check_tuned(tuned, words)
    if tuned is not None and tuned.head is not None:
        raise ValueError("encoder.language_loss is for classifiers")
    d_in = (layers.d_out if tuned is None else tuned.d_out + words.d_out) * (2 if head.repeats else 1)
    return Tagger(words, layers, build_tag_head(head, d_in, labels), repeats=head.repeats)


def build_classifier(
    features: FeatureSpecification, encoder: EncoderSpecification | OriginEncoder, head: ClassHeadSpecification, *,
    directions: Directions, lexicon: Lexicon, num_labels: int, pair: bool = False, multiple: bool = False,
    segment: int = 0, pretrained: Tensor | None = None, contextual: Sequence[LayersShape] = (),
    tuned: SubwordEncoder | None = None, ngrams: int | None = None,
) -> Classifier:  # fmt: skip
    """Build a classifier. Raises ValueError if the tables contradict each other.

    `pretrained`, `contextual` and `tuned` are as for `build_tagger`. `ngrams` is the number of n-grams with weights;
    None: all rows of the hash table.
    """
    words = WordFeatures(features, lexicon, pretrained=pretrained, contextual=contextual)
    layers: SequenceLayer | SubwordEncoder
    if tuned is None:
        layers = _build_word_encoder(encoder, words, directions, needs_features=bool(head.pooling))
        last = list(layers)[-1] if isinstance(layers, Stack) else layers
        if "last" in head.pooling and isinstance(last, Alongside):  # its state does not have the concatenated features
            raise ValueError(
                'head.pooling = "last" with features.contextual_at = "first-layer" needs encoder.num_layers above 1'
            )
        d_in, has_halves = layers.d_out, outputs_halves(encoder, directions)
    else:
        layers = _check_tuned(tuned, words, pair=pair)
        d_in, has_halves = tuned.d_out + words.d_out, False
    bag = None if not head.ngrams else (PairBag if pair else NgramBag)(
        num_labels, longest=head.ngrams, characters=head.character_ngrams > 0, buckets=head.ngram_buckets,
        dropout=head.dropout_ngrams, num_kept_rows=ngrams,
    )  # fmt: skip
    poolings = build_poolings(head, d_in, has_halves=has_halves, is_causal=layers.is_causal)
    return Classifier(
        words, layers, poolings, num_labels, bag=bag, d_hidden=head.d_hidden, activation=head.activation,
        dropout=head.dropout, label_smoothing=head.label_smoothing, pair=pair, multiple=multiple, segment=segment,
        language_loss=encoder.language_loss if isinstance(encoder, OriginEncoder) else 0.0,
    )  # fmt: skip


def _check_tuned(tuned: SubwordEncoder, words: WordFeatures, *, pair: bool = False) -> SubwordEncoder:
    """Return the layers `tuned`. Raises ValueError if they cannot be combined with the features."""
    if words.d_late:
        raise ValueError('features.contextual_at = "first-layer" cannot be combined with encoder.from')
    if pair and words.d_out:
        raise ValueError("a pair is read as one text by encoder.from; switch off all features of words")
    return tuned


def _build_word_encoder(
    encoder: EncoderSpecification | OriginEncoder, words: WordFeatures, directions: Directions, *,
    needs_features: bool = True,
) -> SequenceLayer:  # fmt: skip
    """Build the layers over features of words. The last `words.d_late` features enter after the first layer."""
    assert not isinstance(encoder, OriginEncoder)
    if needs_features and words.d_out == words.d_late:
        raise ValueError("all features are switched off; set features.d_words or another feature")
    if not words.d_late:
        return build_encoder(encoder, d_in=words.d_out, directions=directions)
    if not isinstance(encoder, RecurrentEncoder) or encoder.is_stack:
        raise ValueError(
            f'features.contextual_at = "first-layer" needs separate recurrent layers, found encoder.kind {encoder.kind}'
        )
    lowest = encoder.model_copy(update={"num_layers": 1})
    first = build_encoder(lowest, d_in=words.d_out - words.d_late, directions=directions)
    layers: list[SequenceLayer] = [Alongside(first, d_past=words.d_late)]
    if encoder.num_layers > 1:
        upper = encoder.model_copy(update={"num_layers": encoder.num_layers - 1, "dropout_input": 0.0})
        layers.append(build_encoder(upper, d_in=layers[0].d_out, directions=directions))
    return Stack(layers)


def build_encoder_decoder(
    tokens: PairTokens, encoder: EncoderSpecification | None, decoder: EncoderSpecification, attention: Attention,
    head: TextHead, *, directions: Directions, source_size: int, target_size: int, is_joint: bool,
    unknown_id: int = 0, contextual: ContextualVectors | None = None,
) -> TextModel:  # fmt: skip
    """Build an encoder–decoder, or without `encoder` a decoder that reads the source, too.

    With `is_joint`, both sides share a vocabulary. The layers read `unknown_id` in place of out-of-vocabulary words.
    Raises ValueError if the tables contradict each other.
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
        return _build_decoder_only(tokens, decoder, target, head, is_joint=is_joint)
    if head.copying and not is_joint:
        raise ValueError("head.copying needs one vocabulary for both sides; remove the table [target_tokenizer]")
    if head.copying and head.label_smoothing:
        raise ValueError("head.label_smoothing cannot be combined with head.copying")
    d_source = source.d_out + (0 if contextual is None else contextual.d_out)
    reader = build_encoder(encoder, d_in=d_source, directions=directions)
    has_halves = outputs_halves(encoder, directions)
    writer = build_decoder(decoder, attention, d_in=target.d_out, d_memory=reader.d_out, has_halves=has_halves)
    softmax = target_softmax(tokens, target, d_in=writer.d_out)
    if not head.copying:
        smoothing = head.label_smoothing
        return EncoderDecoder(source, reader, target, writer, softmax, label_smoothing=smoothing, contextual=contextual)
    copying = CopyingHead(writer.d_out, softmax, d_memory=reader.d_out, coverage=head.coverage > 0)
    return CopyingEncoderDecoder(
        source, reader, target, writer, copying, unknown_id=unknown_id, coverage=head.coverage, contextual=contextual
    )


def target_embedding(tokens: PairTokens, size: int) -> TokenEmbedding:
    """Build the target embedding, scaled by √d if the softmax shares its weights (Vaswani et al. 2017)."""
    scale = tokens.d_embedding**0.5 if tokens.tied != "none" else 1.0
    return TokenEmbedding(size, tokens.d_embedding, dropout=tokens.dropout_words, scale=scale)


def target_softmax(tokens: PairTokens, target: TokenEmbedding, *, d_in: int) -> SoftmaxHead:
    """Build the softmax over target tokens, which shares the weights of the embedding if they are tied."""
    return SoftmaxHead(d_in, target.vocabulary_size) if tokens.tied == "none" else TiedSoftmaxHead(d_in, target)


def _build_decoder_only(
    tokens: PairTokens, decoder: EncoderSpecification, target: TokenEmbedding, head: TextHead, *, is_joint: bool
) -> DecoderOnly:
    if not is_joint:
        raise ValueError("without an encoder, both sides need one vocabulary; remove the table [target_tokenizer]")
    if head.copying:
        raise ValueError("head.copying needs an encoder; add the table [encoder]")
    if isinstance(decoder, TransformerEncoder) and decoder.positions == "learned":
        raise ValueError(
            'without an encoder, decoder.positions must be "rotary" or "sinusoidal", which do not limit the length'
        )
    layers = build_encoder(decoder, d_in=target.d_out)
    softmax = target_softmax(tokens, target, d_in=layers.d_out)
    return DecoderOnly(target, layers, softmax, label_smoothing=head.label_smoothing)
