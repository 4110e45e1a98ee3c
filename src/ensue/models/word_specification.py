"""Tables of recipes for models of words: features, and heads of taggers and classifiers."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from ensue.models.specification import MAX_SIZE, Share, Size, SizeOrZero, Table, UpTo100

Count = Annotated[int, Field(ge=1, le=2_000_000_000)]
LayerNumber = Annotated[int, Field(ge=-10_000, le=10_000)]
RunPath = Annotated[str, Field(min_length=1)]
ColumnName = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""The name of a column; numbers need no quotes."""


class ContextualSpecification(Table):
    """Features of words from the layers of other runs."""

    contextual: list[RunPath] = Field(default_factory=list)
    """Runs whose frozen layers are features: (masked) language models, or encoders of translators (CoVe)."""
    contextual_layers: list[LayerNumber] = Field(default_factory=list)
    """The numbers of the layers to use; 0: the embeddings, -1: the last layer. []: all."""
    contextual_mix: Literal["sum", "concatenate"] = "sum"
    """sum: the trained weighted sum of the layers of a run (Peters et al. 2018, eq. 1); concatenate: all layers."""
    contextual_pooling: Literal["mean", "first", "last", "max"] = "mean"
    """The pooling of the vectors of a word's subwords."""

    @field_validator("contextual", mode="after")
    @classmethod
    def _check_distinct(cls, runs: list[str]) -> list[str]:
        if len({*runs}) < len(runs):
            raise ValueError("lists a run twice")
        return runs


class FeatureSpecification(ContextualSpecification):
    """The features of a word, which are concatenated."""

    d_words: SizeOrZero = 100
    """Size of the trained vector of a word; 0: none."""
    min_count: Count = 2
    """Rarer words are unknown: they share one vector and are in no n-gram. 1: n-grams of a single text are used."""
    max_size: Count | None = None
    """The largest number of words with a vector; the most frequent words are chosen."""
    lowercase: bool = True
    """Whether words are lowercased for word vectors and affixes (not for characters and shape)."""
    fold_digits: bool = True
    """Whether all digits are replaced by one digit for word vectors and affixes."""
    dropout_words: Share = 0.1
    """Probability that a word is replaced by the unknown word in a training step."""
    characters: Literal["none", "lstm", "cnn"] = "none"
    """The encoder of a word's characters: the last states of a bidirectional LSTM, or the maxima of a convolution."""
    d_character: Size = 32
    """Size of the vector of a character."""
    d_characters: Size = 64
    """Size of the output of the character encoder; an even number for the LSTM, half for each direction."""
    affixes: UpTo100 = 0
    """The length of the longest prefixes and suffixes with a vector; 0: none."""
    min_affix_count: Count = 5
    """The minimum number of distinct words with a prefix or suffix that has a vector."""
    d_affix: Size = 16
    """Size of the vector of a prefix or suffix; a word has one of each length, and their vectors are concatenated."""
    d_shape: SizeOrZero = 0
    """Size of the vector of a shape such as `Xxxx`; 0: none. In a linear tagger, 2: shapes of 5 words; else of 3."""
    vectors: str = ""
    """A file of pretrained vectors (GloVe, word2vec, or the text format of fastText), a run of word vectors, or the
    name of an installed model of word vectors, such as `en-vectors`.
    """
    kept_vectors: Annotated[int, Field(ge=0, le=MAX_SIZE)] = 100_000
    """The number of words at the beginning of the table whose vectors are saved in the run even if the words are not in
    the data. The vectors of words that are not in the data are saved in half precision.
    """
    train_vectors: bool = False
    """Whether the pretrained vectors are trained."""
    contextual_at: Literal["input", "first-layer", "both"] = "input"
    """Where contextual features are concatenated. input: to the other features (ELMo); first-layer: to the output of
    the first layer (TagLM, Peters et al. 2017), for recurrent layers; both: in both places, with separate weights.
    """
    dropout: Share = 0.0
    """Dropout on the features."""

    @property
    def is_empty(self) -> bool:
        """Whether all features are switched off. Further columns of a tagger do not count."""
        sizes = self.d_words, self.affixes, self.d_shape
        return not any(sizes) and self.characters == "none" and not self.vectors and not self.contextual


class SentenceFeatureSpecification(FeatureSpecification):
    """The features of a word for a tagger, with further columns of the data."""

    columns: list[ColumnName] = Field(default_factory=list)
    """Further input columns, in training and in prediction: names or numbers, such as ["2"]."""
    d_column: Size = 16
    """Size of the trained vector of a column's value."""


class PathHeadSpecification(Table):
    """The keys of the heads of all taggers."""

    kind: Literal["softmax", "viterbi", "crf"] = "softmax"
    """softmax: independent tags; viterbi: the best path by softmax and tag bigrams; crf: a conditional random field."""
    scheme: Literal["iobes", "bio", "file"] = "iobes"
    """The label scheme in training; predictions are in the scheme of the training file."""
    legal: bool = True
    """Whether tag sequences that violate the scheme have probability 0 (viterbi and crf)."""
    bigram_weight: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """The weight of the tag-bigram model (viterbi)."""
    label_smoothing: Share = 0.0
    """Fraction of the target probability that is spread over all tags in training (softmax and viterbi)."""


class TagHeadSpecification(PathHeadSpecification):
    """The head of a tagger of words."""

    solver: Literal["steps", "lbfgs"] = "steps"
    """steps: layers, trained by the optimizer. lbfgs: a linear model, in which the features of the words up to two
    positions away have a score for each tag, trained in one step to the minimum of the regularized loss.
    """
    repeats: bool = False
    """Whether the head also reads the maxima of features over all occurrences of a word in the joined sentences."""


class PoolingHeadSpecification(Table):
    """The keys of the heads of all classifiers."""

    pooling: list[Literal["first", "last", "mean", "max", "attention"]] = Field(default=["mean", "max"])
    """The pooling over positions; several poolings are concatenated. first: `[CLS]`, for the layers of a masked
    language model. []: a model of n-grams only.
    """
    d_hidden: SizeOrZero = 0
    """Size of a hidden layer before the logits; 0: none."""
    activation: Literal["relu", "tanh"] = "relu"
    """The hidden layer's nonlinearity; BERT's head has tanh."""
    dropout: Share = 0.0
    """Dropout on the pooled vector, and on the hidden layer."""
    label_smoothing: Share = 0.0
    """Fraction of the target probability that is spread over all labels in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every label has the same total weight in the loss, however rare it is. For multi-label data, the texts
    with a label have the same total weight as the texts without it.
    """


class ClassHeadSpecification(PoolingHeadSpecification):
    """The head of a classifier of texts."""

    ngrams: UpTo100 = 0
    """The length in words of the longest n-grams, whose scores are added to the logits; 0: none. For pairs, n-grams
    that both texts share have separate scores.
    """
    character_ngrams: UpTo100 = 0
    """The maximum length of n-grams of characters of a word, which are scored, too; the minimum is 2. 0: none."""
    ngram_weights: Literal["ratio", "idf"] = "ratio"
    """The weight of an n-gram. ratio: its naive Bayes log-count ratio; idf: its inverse document frequency (TF-IDF)."""
    ngram_buckets: Count = 1 << 19
    """Rows of the hash table of n-grams."""
    dropout_ngrams: Share = 0.3
    """Probability that an n-gram is dropped in a training step."""
    solver: Literal["steps", "lbfgs"] = "steps"
    """The training of a model of n-grams only. steps: by the optimizer; lbfgs: one step to the minimum of the
    regularized cross-entropy, whose strength is chosen by cross-validation.
    """
