"""The layers of another run as the encoder of a tagger or classifier, trained with it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ensue.errors import RecipeError
from ensue.models.specification import EncoderSpecification, OriginEncoder, TransformerEncoder
from ensue.models.subword_encoder import SubwordEncoder
from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin
from ensue.tasks import task_entries
from ensue.tasks.contract.model import check_same_shape, fill, pairs_of
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.tokenizer import TokenizerParts, shared_rows
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.labels import Classes, Labels
from ensue.text.lexicon import Lexicon
from ensue.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Tuned:
    """The run inside of the outer one whose layers are tuned, by the keys `encoder` of the outer recipe."""

    origin: Origin
    encoder: OriginEncoder
    framing: Framing
    before: Tuned | None = None
    """The origin of that run's layers, if it is itself a tagger or a classifier with tuned layers."""

    @classmethod
    def of(cls, encoder: Any, origins: Sequence[Origin]) -> Self | None:
        """The run of a table `[encoder]`; None if it names none. Raises RecipeError if the run has no such layers."""
        if not isinstance(encoder, OriginEncoder):
            return None
        if not encoder.origin:
            raise RecipeError(
                "encoder.from is missing: the directory of a trained language model, whose layers are tuned "
                "(--set encoder.from=RUN)"
            )
        origin = next(origin for origin in origins if origin.path == encoder.origin)
        parts = origin.run.parts
        before = getattr(parts, "tuned", None)
        if before is not None:
            framing = before.framing
        else:
            framing = parts.framing(origin.run.recipe) if isinstance(parts, TokenizerParts) else None
        if framing is None:
            whole = ""
            if isinstance(origin.run.recipe, WordsRecipe):
                whole = f"; with tuning.keep_labels=true and {origin.path}/recipe.toml a model begins from all of it"
            able = [e.what for e in task_entries() if getattr(e.parts_class, "framing", None) not in (None, _NOTHING)]
            raise RecipeError(
                f"encoder.from: {origin.path} is a {origin.run.entry.what}, whose layers cannot be tuned; expected a "
                f"{' or a '.join(able)}, or what began from one{whole}"
            )
        if encoder.language_loss and not framing.is_causal:
            raise RecipeError(
                f"encoder.language_loss is for a model that reads from left to right, which {origin.path} does not"
            )
        return cls(origin, encoder, framing, before)

    @property
    def base(self) -> RunDirectory:
        """The language model at the beginning, whose shape the layers have."""
        return self.origin.run if self.before is None else self.before.base

    def reader(self, *, whole: bool, blanks: bool = False) -> SubwordReader:
        """Cuts words into the subwords of the run. With `blanks`, the words have the blanks before them themselves."""
        pooling = self.encoder.pooling
        if pooling == "auto":
            pooling = "last" if self.framing.is_causal else "first"
        return SubwordReader(self.framing, pooling=pooling, whole=whole, with_blanks=blanks)

    def build(self) -> SubwordEncoder:
        """The layers, with weights drawn from torch's global generator."""
        model = self.base.parts.build(self.base.recipe.model_copy(update={"encoder": self.layers}))
        features = _widened(model.features, self.framing.num_new)
        head = None
        if self.encoder.language_loss:
            head = (
                TiedSoftmaxHead(model.layers.d_out, features)
                if isinstance(model.head, TiedSoftmaxHead)
                else SoftmaxHead(model.layers.d_out, features.vocabulary_size)
            )
        return SubwordEncoder(features, model.layers, getattr(model, "segments", None), head)

    @property
    def layers(self) -> EncoderSpecification:
        """The table of the layers, with the dropout of this recipe."""
        layers: EncoderSpecification = self.base.recipe.layers if self.before is None else self.before.layers
        update = {} if self.encoder.dropout is None else {"dropout": self.encoder.dropout}
        if isinstance(layers, TransformerEncoder):
            update["dropout_attention"] = self.encoder.dropout_attention
        return layers.model_copy(update=update)

    @torch.no_grad()
    def inherit(self, encoder: SubwordEncoder) -> dict[str, Tensor | None]:
        """Copies the run's weights into its layers, new rows as the mean; returns `Job.inherited`, by inner names."""
        found = {} if self.before is None else self.before.inherit(encoder)
        origin = self.origin.run.model(torch.device("cpu"))
        if self.before is not None:
            origin = origin.get_submodule("layers")
        return found | {name: fill(parameter, source) for name, parameter, source in pairs_of(encoder, origin)}


@dataclass(frozen=True)
class Kept:
    """The run of the same task from whose whole a model begins, with more labels (`tuning.keep_labels`)."""

    origin: Origin

    @classmethod
    def of(cls, recipe: WordsRecipe, origins: Sequence[Origin]) -> Self | None:
        """That of a recipe; None if it has none. Raises RecipeError unless it describes the model of that run."""
        if not recipe.tuning.keep_labels:
            return None
        encoder: Any = recipe.encoder
        origin = next(origin for origin in origins if origin.path == encoder.origin)
        check_same_shape(recipe, origin, ("features", "encoder", "directions", "head"))
        return cls(origin)

    def lexicon(self, new: Lexicon) -> Lexicon:
        """The lexicon of that run, with the words of another one behind its own."""
        found: Lexicon = copy(self.origin.run.parts.lexicon)
        found.words = Vocabulary(
            [*found.words.symbols, *(word for word in new.words.symbols if word not in found.words.ids)]
        )
        return found

    def labels(self, new: Any) -> Any:
        """The labels of that run and the new ones. Raises RecipeError if they cannot be those of one model."""
        old: Any = self.origin.run.parts.labels
        both = old.with_those_of(new) if type(old) is type(new) else None
        if both is None:
            raise RecipeError(f"tuning.keep_labels: {self.origin.path} has {old!r}, which do not go with {new!r}")
        return both

    @torch.no_grad()
    def inherit(self, model: Any, labels: Labels | Classes) -> dict[str, Tensor | None]:
        """Copies all weights of that run, those of labels by their names. The result is for `Job.inherited`."""
        origin = self.origin.run.model(torch.device("cpu"))
        taken = torch.from_numpy(shared_rows(labels.symbols, self.origin.run.parts.labels.symbols))
        known, found = taken >= 0, dict[str, Tensor | None]()
        for name, parameter, source in pairs_of(model, origin):
            if not name.startswith(model.of_labels):
                found[name] = fill(parameter, source)
            elif parameter.requires_grad:
                rows = source[taken[known]]
                if name.endswith("transitions"):
                    parameter[known.nonzero(), known.nonzero().T] = rows[:, taken[known]]
                else:
                    parameter[known] = rows
                found[name] = known
        return found


_NOTHING = TokenizerParts.framing


def _widened(table: TokenEmbedding, more: int) -> TokenEmbedding:
    """A table with more rows."""
    if not more:
        return table
    return TokenEmbedding(table.vocabulary_size + more, table.d_out, dropout=table.dropout, scale=table.scale)
