"""The tokenizer of a masked language model, from which the model is built, and its use in fine-tuning."""

from dataclasses import replace
from functools import cached_property

from ensue.models.build_text import build_masked_language_model
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.text.masked_tokens import MaskedTokenizer


class MaskedLanguageModelParts(TokenizerParts):
    """The tokenizer of a masked language model."""

    @cached_property
    def coder(self) -> MaskedTokenizer:
        """The tokenizer with the special tokens."""
        return MaskedTokenizer(self.tokenizer)

    @property
    def vocabulary_size(self) -> int:
        return self.coder.vocabulary_size

    @property
    def symbols(self) -> list[str]:
        return [self.coder.symbol(id) for id in range(self.vocabulary_size)]

    def build(self, recipe: MaskedLanguageModelingRecipe) -> MaskedLanguageModel:
        return build_masked_language_model(
            recipe.encoder, vocabulary_size=self.vocabulary_size, num_segments=recipe.input.segments,
            masked=recipe.head.masked, pooler=recipe.head.pooler, next_sentence=recipe.data.next_sentence,
        )  # fmt: skip

    def commands(self, recipe: MaskedLanguageModelingRecipe, path: str) -> list[str]:
        vectors = [f"ensue embed {path} TEXT --json", f"ensue evaluate {path} --similarity PAIRS"]
        if not recipe.head.masked:
            return vectors
        return [
            f'echo "The [MASK] of the house" | ensue predict {path}', *vectors, f"ensue score {path} TEXT",
            f"ensue evaluate {path} TEXT --json",
        ]  # fmt: skip

    def python(self, recipe: MaskedLanguageModelingRecipe) -> list[str]:
        if not recipe.head.masked:
            return ['print(model.similarity("A dog runs.", "A dog is running."))']
        return ['print(model.predict(["The [MASK] of the house"])[0].text)']

    def framing(self, recipe: MaskedLanguageModelingRecipe) -> Framing:
        """Return the framing of pre-training for fine-tuning: `[CLS] text [SEP]` or `[CLS] text [SEP] text [SEP]`."""
        tokenizer, coder = self.tokenizer, self.coder
        blank = "" if tokenizer.kind == "wordpiece" else " "
        framing = framing_of(coder, recipe.encoder.context)
        return replace(framing, blank=blank, between=(coder.separator_id,), unknown=(coder.mask_id,))


def framing_of(coder: MaskedTokenizer, context: int) -> Framing:
    """Return the framing `[CLS] text [SEP]` of words for a model with `context` positions."""
    return Framing(
        tokenizer=coder.tokenizer, begin=(coder.begin_id,), end=(coder.separator_id,), max_positions=context,
        first_blank=coder.tokenizer.before, blank=" " if coder.tokenizer.joins_blanks else "",
    )  # fmt: skip
