"""Tables of a recipe that describe models of words: features, and heads of taggers, classifiers and language models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from ensue.models.specification import LARGEST, Few, Share, Size, SizeOrZero, Table

Count = Annotated[int, Field(ge=1, le=2_000_000_000)]
LayerNumber = Annotated[int, Field(ge=-10_000, le=10_000)]
RunPath = Annotated[str, Field(min_length=1)]
ColumnName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""The name of a column; a number needs no quotes."""


class ContextualSpecification(Table):
    """The layers of other runs as features of words."""

    contextual: list[RunPath] = Field(default_factory=list)
    """Runs whose layers are features, frozen: directories of masked models, language models, or translators, whose
    encoder is taken (CoVe).
    """
    contextual_layers: list[LayerNumber] = Field(default_factory=list)
    """The layers of these runs that are read; 0: the embeddings, -1: the last. []: all."""
    contextual_mix: Literal["sum", "concatenate"] = "sum"
    """sum: the layers of a run are added up with trained weights (Peters et al. 2018, eq. 1); concatenate: side by
    side.
    """
    contextual_pooling: Literal["mean", "first", "last", "max"] = "mean"
    """How the vectors of a word's subwords become one."""

    @field_validator("contextual", mode="after")
    @classmethod
    def _once(cls, runs: list[str]) -> list[str]:
        if len({*runs}) < len(runs):
            raise ValueError("names a run twice")
        return runs


class FeatureSpecification(ContextualSpecification):
    """The features of a word. All that are switched on are concatenated."""

    d_words: SizeOrZero = 100
    """Size of the trained vector of a word; 0: none."""
    min_count: Count = 2
    """Rarer words are unknown: they share one vector, and no n-gram has them. 1: n-grams of one text count, too."""
    max_size: Count | None = None
    """At most this many words have a vector of their own, the most frequent ones."""
    lowercase: bool = True
    """Whether words are lowercased for their vector and affixes (not for characters and shape)."""
    fold_digits: bool = True
    """Whether all digits count as the same one for the word's vector and its affixes."""
    dropout_words: Share = 0.1
    """Chance that, in a training step, a word has the vector of the unknown word in place of its own."""
    characters: Literal["none", "lstm", "cnn"] = "none"
    """How a word's characters become a vector: the last states of a bidirectional LSTM, or the
    maxima of a convolution.
    """
    d_character: Size = 32
    """Size of the vector of a character."""
    d_characters: Size = 64
    """Size of the vector of all characters; even for the LSTM, whose two directions share it."""
    affixes: Few = 0
    """Longest prefixes and suffixes with a trained vector, in characters; each occurs in 5 words or more. 0: none."""
    d_affix: Size = 16
    """Size of the vector of a prefix or suffix of one length."""
    d_shape: SizeOrZero = 0
    """Size of the trained vector of a word's shape (`Xxxx`, `dd-dd`); 0: none."""
    vectors: str = ""
    """A file of pretrained vectors: GloVe, word2vec (text or binary) or fastText's text."""
    kept_vectors: Annotated[int, Field(ge=0, le=LARGEST)] = 100_000
    """The number of words of the file, the first and most frequent ones, whose vectors the run keeps in half precision.
    It keeps the vectors of the words of its data anyway.
    """
    train_vectors: bool = False
    """Whether the pretrained vectors are trained too."""
    contextual_at: Literal["input", "first-layer", "both"] = "input"
    """Where the contextual features join: input: beside the other features (ELMo); first-layer: behind the first layer
    (TagLM, Peters et al. 2017), with recurrent layers; both: with weights of their own in each place.
    """
    dropout: Share = 0.0
    """Dropout on the features."""

    @property
    def is_empty(self) -> bool:
        """Whether all are switched off."""
        sizes = self.d_words, self.affixes, self.d_shape
        return not any(sizes) and self.characters == "none" and not self.vectors and not self.contextual


class SentenceFeatureSpecification(FeatureSpecification):
    """The features of a word for a tagger, with other columns of the data."""

    columns: list[ColumnName] = Field(default_factory=list)
    """Other columns of the data that the model reads, in prediction too: names or numbers, such as ["2"]."""
    d_column: Size = 16
    """Size of the trained vector of a column's value."""


class PathHeadSpecification(Table):
    """The head of a tagger, without what only words have."""

    kind: Literal["softmax", "viterbi", "crf"] = "softmax"
    """softmax: each tag by itself; viterbi: the best path by softmax and tag bigrams; crf: a
    conditional random field.
    """
    scheme: Literal["iobes", "bio", "file"] = "iobes"
    """The scheme in which spans are learned; predictions are in the scheme of the training file."""
    legal: bool = True
    """Whether paths that break the scheme are forbidden (viterbi and crf)."""
    bigram_weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """How much the tag-bigram model counts beside the softmax (viterbi)."""
    label_smoothing: Share = 0.0
    """Share of the probability that is spread over all tags in training (softmax and viterbi)."""


class TagHeadSpecification(PathHeadSpecification):
    """The head of a tagger of words."""

    repeats: bool = False
    """Whether the head also reads the maxima of a word's features over all its places in the joined sentences."""


class PoolingHeadSpecification(Table):
    """The head of a classifier, without what only words have."""

    pooling: list[Literal["first", "last", "mean", "max", "attention"]] = Field(default=["mean", "max"])
    """How a sequence becomes one vector; several are concatenated. first: `[CLS]`, for the layers of a masked model.
    []: the n-grams alone decide, if the model has them.
    """
    d_hidden: SizeOrZero = 0
    """Width of a hidden layer before the labels; 0: none."""
    activation: Literal["relu", "tanh"] = "relu"
    """The hidden layer's nonlinearity; BERT's head has tanh."""
    dropout: Share = 0.0
    """Dropout on the pooled vector, and on the hidden layer."""
    label_smoothing: Share = 0.0
    """Share of the probability that is spread over all labels in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every label counts the same in the loss, however rare it is; with several labels, having a label counts
    as much as not having it.
    """


class ClassHeadSpecification(PoolingHeadSpecification):
    """The head of a classifier of texts."""

    ngrams: Few = 0
    """The longest n-grams, in words, that have scores of their own in addition to those of the layers; 0: none. For
    pairs, n-grams of both texts count separately.
    """
    ngram_weights: Literal["ratio", "idf"] = "ratio"
    """The weight of an n-gram: ratio: how much it tells about the labels (naive Bayes); idf: how few texts have it
    (TF-IDF).
    """
    ngram_buckets: Count = 1 << 19
    """Rows of the table of n-grams, which share them by a hash."""
    dropout_ngrams: Share = 0.3
    """Chance that an n-gram is left out in a training step."""
