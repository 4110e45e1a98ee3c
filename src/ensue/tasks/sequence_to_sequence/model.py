"""The tokenizers of an encoder–decoder, from which the model is built."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ensue.data.examples import PairLayout
from ensue.models.build_text import build_encoder_decoder
from ensue.models.encoder_decoder import TextModel
from ensue.models.layer_outputs import ContextualVectors, LayersShape
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, stored_as
from ensue.tasks.contract.job import ModelParts
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.words.model import ContextualConfig, layers_shapes


class SequenceConfig(ContextualConfig):
    """The keys of `config.json` for an encoder–decoder."""

    source_size: Size
    target_size: Size
    layout: Annotated[dict[str, Any], stored_as(PairLayout)]
    ratio: Annotated[float, Field(gt=0, lt=1e9)]
    """The 0.999 quantile (`RATIO_QUANTILE`) of the number of target tokens per source token in the training pairs."""


@dataclass(frozen=True)
class EncoderDecoderParts(ModelParts):
    """The tokenizers and sizes of an encoder–decoder."""

    config: ClassVar[type[Config]] = SequenceConfig
    coder: PairCoder
    """The tokenizers of source and target."""
    contextual: tuple[LayersShape, ...] = ()
    """The shapes of the layers of other runs that are features of the encoder."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        coder = run.read_json("tokenizer.json", PairCoder.from_json)
        sizes = coder.source.vocabulary_size, coder.target.vocabulary_size
        expected = run.config["source_size"], run.config["target_size"]
        if sizes != expected:
            raise DamagedError(
                f"{run.path / 'tokenizer.json'}: does not match the model: {sizes} symbols, expected {expected}"
            )
        return cls(coder, layers_shapes(run))

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.coder.to_json()}

    def commands(self, recipe: SequenceToSequenceRecipe, path: str) -> list[str]:
        return [f"ensue predict {path} FILE > outputs", f"ensue evaluate {path} FILE --json"]

    def python(self, recipe: SequenceToSequenceRecipe) -> list[str]:
        return ['print(model.predict(["a text of yours"]))']

    def build(self, recipe: SequenceToSequenceRecipe) -> TextModel:
        contextual = None
        if self.contextual:
            contextual = ContextualVectors(self.contextual, mix=recipe.features.contextual_mix)
        return build_encoder_decoder(
            recipe.tokens, recipe.encoder, recipe.decoder, recipe.attention, recipe.head, directions=recipe.directions,
            source_size=self.coder.source.vocabulary_size, target_size=self.coder.target.vocabulary_size,
            is_joint=self.coder.is_joint, unknown_id=self.coder.source.tokenizer.unknown_id or 0, contextual=contextual,
        )  # fmt: skip
