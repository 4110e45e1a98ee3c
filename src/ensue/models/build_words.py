"""From the tables of a recipe to models that read words: lexicon, tagger and classifier."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from torch import Tensor

from ensue.models.build_heads import build_poolings, build_tag_head
from ensue.models.classifier import Classifier
from ensue.models.contextual_vectors import LayersShape
from ensue.models.encoders import build_encoder, in_two_halves
from ensue.models.feature_specification import ClassHeadSpecification, FeatureSpecification, TagHeadSpecification
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.specification import Directions, EncoderSpecification, OriginEncoder, RecurrentEncoder
from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.tagger import Tagger
from ensue.models.word_features import WordFeatures
from ensue.nn import Alongside, SequenceLayer, Stack
from ensue.text.labels import Labels
from ensue.text.lexicon import Lexicon


def build_lexicon(
    features: FeatureSpecification,
    counts: Mapping[str, int],
    *,
    columns: Mapping[str, Iterable[str]] | None = None,
    vectors: Collection[str] | None = None,
    kept_vectors: int = 0,
) -> Lexicon:
    """The lexicon that the features need, from the count of each word form in the training data."""
    return Lexicon.train(
        counts,
        columns=columns,
        min_count=features.min_count,
        max_size=features.max_size,
        lowercase=features.lowercase,
        fold_digits=features.fold_digits,
        characters=features.characters != "none",
        longest_affix=features.affixes,
        shapes=features.d_shape > 0,
        vectors=vectors,
        kept_vectors=kept_vectors,
    )


def build_tagger(
    features: FeatureSpecification,
    encoder: EncoderSpecification | OriginEncoder,
    head: TagHeadSpecification,
    *,
    directions: Directions,
    lexicon: Lexicon,
    labels: Labels,
    pretrained: Tensor | None = None,
    contextual: Sequence[LayersShape] = (),
    tuned: SubwordEncoder | None = None,
) -> Tagger:
    """A tagger from its tables. `pretrained` are the vectors of the lexicon's words that have one, (V, d), `contextual`
    the shapes of the layers that other models give. `tuned` are the layers of another model, if they are the encoder.
    """
    words = WordFeatures(features, lexicon, pretrained=pretrained, contextual=contextual)
    layers = _encoder_of_words(encoder, words, directions) if tuned is None else _beside(tuned, words)
    if tuned is not None and tuned.head is not None:
        raise ValueError("encoder.language_loss is for classifiers")
    d_in = (layers.d_out if tuned is None else tuned.d_out + words.d_out) * (2 if head.repeats else 1)
    return Tagger(words, layers, build_tag_head(head, d_in, labels), repeats=head.repeats)


def build_classifier(
    features: FeatureSpecification,
    encoder: EncoderSpecification | OriginEncoder,
    head: ClassHeadSpecification,
    *,
    directions: Directions,
    lexicon: Lexicon,
    num_labels: int,
    pair: bool = False,
    multiple: bool = False,
    segment: int = 0,
    pretrained: Tensor | None = None,
    contextual: Sequence[LayersShape] = (),
    tuned: SubwordEncoder | None = None,
    ngrams: int | None = None,
) -> Classifier:
    """A classifier from its tables. `pretrained` are the vectors of the lexicon's words that have one, (V, d),
    `contextual` the shapes of the layers that other models give. `tuned` are the layers of another model, if they are
    the encoder. `ngrams` is the number of rows that a bag of n-grams keeps, all of them for None.

    Raises ValueError for tables that do not fit together.
    """
    words = WordFeatures(features, lexicon, pretrained=pretrained, contextual=contextual)
    layers: SequenceLayer | SubwordEncoder
    if tuned is None:
        layers = _encoder_of_words(encoder, words, directions, checked=bool(head.pooling))
        _check_last(head, layers)
        d_in, both_ways = layers.d_out, in_two_halves(encoder, directions)
    else:
        layers = _beside(tuned, words, pair=pair)
        d_in, both_ways = tuned.d_out + words.d_out, False
    poolings = build_poolings(head, d_in, both_ways=both_ways, is_causal=layers.is_causal)
    return Classifier(
        words,
        layers,
        poolings,
        num_labels,
        bag=_bag(head, num_labels, pair=pair, kept=ngrams),
        d_hidden=head.d_hidden,
        activation=head.activation,
        dropout=head.dropout,
        label_smoothing=head.label_smoothing,
        pair=pair,
        multiple=multiple,
        segment=segment,
        language_loss=encoder.language_loss if isinstance(encoder, OriginEncoder) else 0.0,
    )


def _check_last(head: ClassHeadSpecification, layers: SequenceLayer) -> None:
    """Raises ValueError for the last state of layers behind which features stand, since it knows nothing of them."""
    last = list(layers)[-1] if isinstance(layers, Stack) else layers
    if "last" in head.pooling and isinstance(last, Alongside):
        raise ValueError(
            'head.pooling = "last" does not go with features behind the only layer; add encoder.num_layers'
        )


def _bag(head: ClassHeadSpecification, num_labels: int, *, pair: bool, kept: int | None) -> NgramBag | None:
    if not head.ngrams:
        return None
    kind = PairBag if pair else NgramBag
    return kind(num_labels, longest=head.ngrams, buckets=head.ngram_buckets, dropout=head.dropout_ngrams, kept=kept)


def _beside(tuned: SubwordEncoder, words: WordFeatures, *, pair: bool = False) -> SubwordEncoder:
    """The layers of another model, beside which features of words can stand."""
    if words.d_late:
        raise ValueError('features.contextual_at = "first-layer" does not go with encoder.from')
    if pair and words.d_out:
        raise ValueError("a pair is read as one text by encoder.from; switch off all features of words")
    return tuned


def _encoder_of_words(
    encoder: EncoderSpecification | OriginEncoder, words: WordFeatures, directions: Directions, *, checked: bool = True
) -> SequenceLayer:
    """The layers over features of words, the last of which enter behind the first layer."""
    assert not isinstance(encoder, OriginEncoder)
    if checked:
        _check_features(words)
    if not words.d_late:
        return build_encoder(encoder, d_in=words.d_out, directions=directions)
    if not isinstance(encoder, RecurrentEncoder) or encoder.kind in ("depth-gated", "grid"):
        raise ValueError(
            f'features.contextual_at = "first-layer" needs recurrent layers one after another, not {encoder.kind}'
        )
    one = encoder.model_copy(update={"num_layers": 1})
    first = build_encoder(one, d_in=words.d_out - words.d_late, directions=directions)
    layers: list[SequenceLayer] = [Alongside(first, d_past=words.d_late)]
    if encoder.num_layers > 1:
        others = encoder.model_copy(update={"num_layers": encoder.num_layers - 1, "dropout_input": 0.0})
        layers.append(build_encoder(others, d_in=layers[0].d_out, directions=directions))
    return Stack(layers)


def _check_features(words: WordFeatures) -> None:
    if words.d_out == words.d_late:
        raise ValueError("features: all are switched off; set features.d_words or another one")
