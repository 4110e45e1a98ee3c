"""The tokenizer of a language model, from which the model is built, and its use in fine-tuning."""

from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.models.specification import TransformerEncoder
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.tokenizer import TokenizerParts


class LanguageModelParts(TokenizerParts):
    """The tokenizer of a language model."""

    def build(self, recipe: LanguageModelingRecipe) -> LanguageModel:
        return build_language_model(recipe.tokens, recipe.encoder, vocabulary_size=self.vocabulary_size)

    def commands(self, recipe: LanguageModelingRecipe, path: str) -> list[str]:
        return [
            f'ensue generate {path} --prompt "The"', f"ensue evaluate {path} TEXT --json", f"ensue score {path} TEXT",
        ]  # fmt: skip

    def python(self, recipe: LanguageModelingRecipe) -> list[str]:
        return ['print("".join(model.generate("The")))']

    def framing(self, recipe: LanguageModelingRecipe) -> Framing:
        """Return the framing of texts for fine-tuning, with new tokens delimiter and extract (Radford et al. 2018)."""
        return Framing(
            tokenizer=self.tokenizer, blank="" if self.tokenizer.kind == "words" else " ",
            begin=(self.tokenizer.start_id,), between=(self.vocabulary_size,), end=(self.vocabulary_size + 1,),
            unknown=() if self.tokenizer.unknown_id is None else (self.tokenizer.unknown_id,),
            max_positions=recipe.encoder.context if isinstance(recipe.encoder, TransformerEncoder) else 0,
            is_causal=True, num_added=2,
        )  # fmt: skip
