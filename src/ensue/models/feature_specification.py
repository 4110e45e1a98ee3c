"""The tables `[features]` and `[head]` of recipes that read words: what a word is turned into, and what comes out.

Only data; `build.py` makes the modules.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ensue.models.specification import LARGEST

Size = Annotated[int, Field(ge=1, le=LARGEST)]
Optional = Annotated[int, Field(ge=0, le=LARGEST)]
Few = Annotated[int, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=1, le=2_000_000_000)]
Share = Annotated[float, Field(ge=0, lt=1)]
ColumnName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""The name of a column; a number may go without quotes."""


class FeatureSpecification(BaseModel):
    """What is known of a word; all that is switched on is concatenated."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    d_words: Optional = 100
    """Size of the trained vector of a word; 0: none."""
    min_count: Count = 2
    """Rarer words are unknown: they share one vector, and no n-gram has them."""
    max_size: Count | None = None
    """At most this many words have a vector of their own, the most frequent ones."""
    lowercase: bool = True
    """Whether upper and lower case are one for the word's vector and its affixes (not for characters and shape)."""
    fold_digits: bool = True
    """Whether all digits are one for the word's vector and its affixes."""
    dropout_words: Share = 0.1
    """Chance that, in a training step, a word has the vector of the unknown word in place of its own."""
    characters: Literal["none", "lstm", "cnn"] = "none"
    """How a vector is made of a word's characters: a bidirectional LSTM's last states, or a convolution's maxima."""
    d_character: Size = 32
    """Size of the vector of a character."""
    d_characters: Size = 64
    """Size of the vector that is made of them; even for the LSTM, whose two directions share it."""
    affixes: Few = 0
    """Prefixes and suffixes of 1 to this many characters have trained vectors, those of at least 5 words; 0: none."""
    d_affix: Size = 16
    """Size of the vector of a prefix or suffix of one length."""
    d_shape: Optional = 0
    """Size of the trained vector of a word's shape (`Xxxx`, `dd-dd`); 0: none."""
    vectors: str = ""
    """A file of pretrained vectors: GloVe, word2vec (text or binary) or fastText's text."""
    train_vectors: bool = False
    """Whether the pretrained vectors are trained too."""
    dropout: Share = 0.0
    """On the features."""


class SentenceFeatureSpecification(FeatureSpecification):
    """What a labeler may know beside the words."""

    columns: list[ColumnName] = Field(default_factory=list)
    """Other columns of the data whose values are given, also at use: their names or numbers, such as ["2"]."""
    d_column: Size = 16
    """Size of the trained vector of a column's value."""


class TagHeadSpecification(BaseModel):
    """How tags come out of a sequence of features."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["softmax", "viterbi", "crf"] = "softmax"
    """Each tag by itself; the best path through softmax and a tag-bigram model; a conditional random field."""
    scheme: Literal["iobes", "bio", "file"] = "iobes"
    """In which scheme spans are learned; what comes out is in the scheme of the training file."""
    legal: bool = True
    """Whether paths that break the scheme are forbidden (viterbi and crf)."""
    repeats: bool = False
    """Whether a word also has the maxima of its features over all places where it stands in what is read together."""
    bigram_weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """How much the tag-bigram model counts beside the softmax (viterbi)."""
    label_smoothing: Share = 0.0
    """Share of the probability that is spread over all tags in training (softmax and viterbi)."""


class ClassHeadSpecification(BaseModel):
    """How a label comes out of a text's features."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    pooling: list[Literal["last", "mean", "max", "attention"]] = ["mean", "max"]
    """How a sequence becomes one vector; several are concatenated. []: the n-grams alone decide."""
    ngrams: Few = 0
    """Words and sequences of up to so many words have scores of their own, beside those of the layers; 0: none. Of
    pairs it also counts which ones the two texts share."""
    ngram_weights: Literal["ratio", "idf"] = "ratio"
    """What an n-gram counts: how much it tells of the labels (naive Bayes), or how few texts have it (TF-IDF)."""
    ngram_buckets: Count = 1 << 19
    """Places for the scores of n-grams, which share them by a hash."""
    dropout_ngrams: Share = 0.3
    """Chance that an n-gram is left out in a training step."""
    d_hidden: Optional = 0
    """Width of a hidden layer before the labels; 0: none."""
    dropout: Share = 0.0
    """On the pooled vector, and on the hidden layer."""
    label_smoothing: Share = 0.0
    """Share of the probability that is spread over all labels in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every label counts the same in the loss, however rare it is; of several labels a text, having
    one counts as much as not having it."""
