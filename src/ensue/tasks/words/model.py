"""The vocabularies and labels of taggers and classifiers, and fine-tuning of an encoder or a model of another run."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Annotated, Any, Self, TypeVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ensue.data.vectors import WordVectors, read_vectors
from ensue.errors import DataError, RecipeError, RunError
from ensue.models.layer_outputs import LayersShape
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.specification import EncoderSpecification, OriginEncoder, TransformerEncoder
from ensue.models.subword_encoder import SubwordEncoder
from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import Origin, RunDirectory, origins_in
from ensue.runs.schema import Config, Size
from ensue.tasks import task_entries
from ensue.tasks.contract.job import ModelParts, check_same_shape, copy_rows, paired_parameters
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.tokenizer import TokenizerParts, shared_rows
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Classes, Labels
from ensue.text.lexicon import Lexicon
from ensue.text.tokenizer import UNKNOWN
from ensue.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class FineTunedEncoder:
    """An encoder whose layers come from another run and are trained together with the new layers."""

    origin: Origin
    encoder: OriginEncoder
    framing: Framing
    previous: "FineTunedEncoder | None" = None
    """The encoder of the origin, if the origin is itself a model with a fine-tuned encoder."""

    @classmethod
    def of(cls, encoder: Any, origins: Sequence[Origin]) -> Self | None:
        """Return the encoder of a table `[encoder]`; None for a table without `from`."""
        if not isinstance(encoder, OriginEncoder):
            return None
        if not encoder.origin:
            raise RecipeError(
                "encoder.from is missing: the directory of a trained language model, whose layers are tuned "
                "(--set encoder.from=RUN)"
            )
        origin = next(origin for origin in origins if origin.path == encoder.origin)
        parts = origin.run.parts
        previous: FineTunedEncoder | None = getattr(parts, "tuned", None)
        framing = None if previous is None else previous.framing
        if isinstance(parts, TokenizerParts):
            framing = parts.framing(origin.run.recipe)
        if framing is None:
            advice = ""
            if isinstance(origin.run.recipe, WordsRecipe):
                recipe = f"{origin.path}/recipe.toml"
                advice = f"; to train all weights of this run further, use {recipe} with tuning.keep_labels=true"
            no_framing = (None, TokenizerParts.framing)
            kinds = [e.what for e in task_entries() if getattr(e.parts_class, "framing", None) not in no_framing]
            raise RecipeError(
                f"encoder.from: {origin.path} is a {origin.run.entry.what}, whose layers cannot be tuned; expected a "
                f"{' or a '.join(kinds)}, or a model that began from such a model{advice}"
            )
        if encoder.language_loss and not framing.is_causal:
            expected = "is for a model that reads from left to right"
            raise RecipeError(f"encoder.language_loss {expected}, which {origin.path} does not")
        return cls(origin, encoder, framing, previous)

    @property
    def base(self) -> RunDirectory:
        """The run of the language model from which all other runs began; its recipe describes the layers."""
        return self.origin.run if self.previous is None else self.previous.base

    def reader(self, *, has_text_vector: bool, blanks: bool = False) -> SubwordReader:
        """Return the reader that splits words into subwords, with arguments of `SubwordReader`."""
        pooling = self.encoder.pooling
        if pooling == "auto":
            pooling = "last" if self.framing.is_causal else "first"
        return SubwordReader(self.framing, pooling=pooling, has_text_vector=has_text_vector, with_blanks=blanks)

    def build(self) -> SubwordEncoder:
        """Return the layers, with weights from torch's global random generator."""
        model = self.base.parts.build(self.base.recipe.model_copy(update={"encoder": self.layers}))
        features = model.features
        if num_added := self.framing.num_added:
            size = features.vocabulary_size + num_added
            features = TokenEmbedding(size, features.d_out, dropout=features.dropout, scale=features.scale)
        head, d_out = None, model.layers.d_out
        if self.encoder.language_loss:
            is_tied = isinstance(model.head, TiedSoftmaxHead)
            head = TiedSoftmaxHead(d_out, features) if is_tied else SoftmaxHead(d_out, features.vocabulary_size)
        return SubwordEncoder(features, model.layers, getattr(model, "segments", None), head)

    @property
    def layers(self) -> EncoderSpecification:
        """The table that describes the layers, with the dropout of this recipe."""
        layers: EncoderSpecification = self.base.recipe.layers if self.previous is None else self.previous.layers
        update = {} if self.encoder.dropout is None else {"dropout": self.encoder.dropout}
        if isinstance(layers, TransformerEncoder):
            update["dropout_attention"] = self.encoder.dropout_attention
        return layers.model_copy(update=update)

    @torch.no_grad()
    def inherit(self, encoder: SubwordEncoder) -> dict[str, Tensor | None]:
        """Copy the weights of the origin into the layers. New tokens get the mean of the origin's embeddings. Return a
        mask of the inherited rows for each parameter (`Job.inherited`).
        """
        inherited = {} if self.previous is None else self.previous.inherit(encoder)
        origin = self.origin.run.model(torch.device("cpu"))
        if self.previous is not None:
            origin = origin.get_submodule("layers")
        return inherited | {name: copy_rows(new, old) for name, new, old in paired_parameters(encoder, origin)}


@dataclass(frozen=True)
class ExtendedModel:
    """A run of the same task whose model is trained further, with additional labels (`tuning.keep_labels`)."""

    origin: Origin

    @classmethod
    def of(cls, recipe: WordsRecipe, origins: Sequence[Origin]) -> Self | None:
        """Return the run that a recipe extends; None for other recipes. Raise RecipeError if the shapes differ."""
        if not recipe.tuning.keep_labels:
            return None
        encoder: Any = recipe.encoder
        origin = next(origin for origin in origins if origin.path == encoder.origin)
        check_same_shape(recipe, origin, ("features", "encoder", "directions", "head"))
        return cls(origin)

    def lexicon(self, new: Lexicon) -> Lexicon:
        """Return the lexicon of the run, with the new words of another lexicon appended."""
        lexicon: Lexicon = copy(self.origin.run.parts.lexicon)
        words = lexicon.words
        lexicon.words = Vocabulary([*words.symbols, *(word for word in new.words.symbols if word not in words.ids)])
        return lexicon

    def labels(self, new: Any) -> Any:
        """Return the labels of the run and the labels `new`. Raise RecipeError if their kinds or schemes differ."""
        old: Any = self.origin.run.parts.labels
        union = old.union(new) if type(old) is type(new) else None
        if union is None:
            raise RecipeError(f"tuning.keep_labels: {self.origin.path} has {old!r}, which do not match {new!r}")
        return union

    def ratios(self, bag: NgramBag) -> Tensor:
        """Return the ratios of the n-grams of the run, and the ratios of `bag` for other n-grams."""
        old: NgramBag = self.origin.run.model(torch.device("cpu")).bag
        ratio = old.ratio if old.place is None else old.ratio[old.place.long()]
        return torch.where(ratio > 0, ratio, bag.ratio).detach()

    @torch.no_grad()
    def inherit(self, model: Any, labels: Labels | Classes) -> dict[str, Tensor | None]:
        """Copy all weights of the run; rows of labels are matched by name. Return masks as in `Job.inherited`."""
        origin = self.origin.run.model(torch.device("cpu"))
        origin_rows = torch.from_numpy(shared_rows(labels.symbols, self.origin.run.parts.labels.symbols))
        is_known, inherited = origin_rows >= 0, dict[str, Tensor | None]()
        if getattr(model, "bag", None) is not None:
            inherited |= _inherit_bag(model.bag, origin.bag, origin_rows)
        for name, parameter, source in paired_parameters(model, origin):
            if name.startswith("bag."):
                continue
            if not name.startswith(model.label_prefix):
                inherited[name] = copy_rows(parameter, source)
            elif parameter.requires_grad:
                rows, inherited[name] = source[origin_rows[is_known]], is_known
                if name.endswith("transitions"):
                    parameter[is_known.nonzero(), is_known.nonzero().T] = rows[:, origin_rows[is_known]]
                else:
                    parameter[is_known] = rows
        return inherited


def _inherit_bag(bag: NgramBag, origin: NgramBag, origin_rows: Tensor) -> dict[str, Tensor | None]:
    """Copy the weights of n-grams and labels that both bags have."""
    is_known = origin_rows >= 0
    rows, old_rows = (torch.arange(b.num_rows) if b.place is None else b.place.long() for b in (bag, origin))
    is_shared = (rows > 0) & (old_rows > 0)
    new = bag.weight.new_zeros(len(bag.weight), len(origin.bias))
    new[rows[is_shared]] = origin.weight[old_rows[is_shared]]
    bag.weight[:, is_known] = new[:, origin_rows[is_known]]
    bag.bias[is_known] = origin.bias[origin_rows[is_known]]
    if isinstance(bag, PairBag) and isinstance(origin, PairBag):
        bag.overlap[:, is_known] = origin.overlap[:, origin_rows[is_known]]
    inherited = torch.zeros(len(bag.weight), dtype=torch.bool)
    inherited[rows[is_shared]] = True
    return {"bag.weight": inherited, "bag.bias": is_known}


class ContextualConfig(Config):
    """The keys of `config.json` for a model that reads the layers of other runs."""

    contextual: list[Annotated[tuple[Size, Size], Field(strict=False)]] = Field(default_factory=list)
    """For each run in `features.contextual`, the number of layers and the size of a vector."""


class WordsConfig(ContextualConfig):
    """The keys of `config.json` for a model that reads words."""

    d_vectors: Annotated[int, Field(ge=0, le=100_000)]


@dataclass(frozen=True)
class WordParts(ModelParts):
    """The vocabularies, labels and sizes from which a model that reads words is built."""

    lexicon: Lexicon
    pretrained: Tensor | None
    """The vectors (V, d) of words with pretrained vectors."""
    labels: TaggerLabels | Classes
    contextual: tuple[LayersShape, ...] = field(default=(), kw_only=True)
    """The shapes of the layers of other runs that are features."""
    tuned: FineTunedEncoder | None = field(default=None, kw_only=True)

    @staticmethod
    def read_fields(run: RunDirectory) -> dict[str, Any]:
        """Return the fields of a run except `labels`. Pretrained vectors are zeros until the weights are loaded."""
        lexicon, d_vectors = run.read_json("tokenizer.json", Lexicon.from_json), run.config["d_vectors"]
        vectors = torch.zeros(len(lexicon.vectors), d_vectors).float() if d_vectors and lexicon.vectors else None
        tuned = FineTunedEncoder.of(cast("WordsRecipe", run.recipe).encoder, origins_in(run))
        return {"lexicon": lexicon, "pretrained": vectors, "contextual": layers_shapes(run), "tuned": tuned}

    def tuned_encoder(self) -> SubwordEncoder | None:
        """Return the fine-tuned layers; None for a model without fine-tuned layers."""
        return None if self.tuned is None else self.tuned.build()

    def subwords(self, recipe: Any) -> SubwordReader | None:
        """Return the reader of fine-tuned layers; None for a model without fine-tuned layers."""
        return None if self.tuned is None else self.tuned.reader(has_text_vector=False)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.lexicon.to_json(), "labels.json": self.labels.to_json()}

    @abstractmethod
    def example(self, recipe: Any) -> str:
        """Return an example of a text to predict, for the card; "" if the model reads more than a plain text."""

    def commands(self, recipe: Any, path: str) -> list[str]:
        plain = [f'echo "{example}" | ensue predict {path}'] if (example := self.example(recipe)) else []
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]

    def python(self, recipe: Any) -> list[str]:
        example = self.example(recipe)
        return [f'print(model.predict(["{example}"]))'] if example else super().python(recipe)


def layers_shapes(run: RunDirectory) -> tuple[LayersShape, ...]:
    """Return the shapes of the layers of other runs that are features of a run."""
    return tuple(LayersShape(*shape) for shape in run.config.get("contextual", []))


PartsT = TypeVar("PartsT", bound=WordParts)


def read_vectors_or_run(path: str, wanted: Collection[str], num_first: int) -> WordVectors:
    """Return words and vectors, as `read_vectors` does, from a file, a run or an installed model of word vectors."""
    run = RunDirectory(path)
    if not run.exists:
        return read_vectors(path, wanted, num_first=num_first)
    pipeline: Any = run.entry.pipeline_class
    if not hasattr(pipeline, "vector"):
        raise RecipeError(f"features.vectors: {path} is a {run.entry.what}; expected a table of word vectors")
    pipeline = pipeline.of(run, torch.device("cpu"))
    words = list(dict.fromkeys([*pipeline.words[:num_first], *sorted(wanted)]))
    (vectors,) = pipeline.embed_words([words])
    return list(compress(words, vectors.any(1))), vectors[vectors.any(1)]


def pretrained_vectors(path: str, forms: Collection[str], num_extra: int) -> tuple[list[str], Tensor, int]:
    """Return words with vectors: first `forms` and lowercased `forms`, then the other words among the first `num_extra`
    of a file. Also return the vectors (1 + words, d), whose row 0 is zero, and the number of these other words.
    """
    data_words = {*forms, *(form.lower() for form in forms)} - {UNKNOWN}
    words, matrix = read_vectors_or_run(path, data_words, num_extra)
    is_in_data = np.array([word in data_words for word in words], np.bool_)
    if not is_in_data.any():
        raise DataError(f"has none of the {len(forms):,} words of the data", path)
    order = np.argsort(~is_in_data, kind="stable")
    rows = np.concatenate((np.zeros((1, matrix.shape[1]), np.float32), matrix[order]))
    return [words[row] for row in order], torch.from_numpy(rows), int((~is_in_data).sum())


def d_vectors(pretrained: Tensor | None) -> int:
    """Return the size of pretrained vectors; 0 without such vectors."""
    return 0 if pretrained is None else pretrained.shape[1]


def with_vectors(parts: PartsT, run: RunDirectory, path: str) -> PartsT:
    """Return the parts of a resumed run. Before its first checkpoint, pretrained vectors are read from `path`."""
    table, vocabulary = parts.pretrained, parts.lexicon.vectors
    if table is None or vocabulary is None or complete_checkpoints(run.checkpoints):
        return parts
    recipe, num_extra = cast("WordsRecipe", run.recipe), parts.lexicon.kept_vectors
    data_words = vocabulary.symbols[: len(vocabulary) - num_extra]
    words, vectors, _ = pretrained_vectors(path, data_words, recipe.features.kept_vectors if num_extra else 0)
    if (UNKNOWN, *words) != vocabulary.symbols or vectors.shape != table.shape:
        raise RunError(f"{run.path}: {path} has changed since this run began; choose another --out")
    return replace(parts, pretrained=vectors)
