"""Masked language modeling: find tokens that were hidden, from all tokens around them."""

from ensue.tasks.entry import CONTEXTUAL, TaskEntry
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe

TASK = TaskEntry(
    recipe=MaskedLanguageModelingRecipe,
    parts="ensue.tasks.masked_language_modeling.model:MaskedLanguageModelParts",
    job="ensue.tasks.masked_language_modeling.job:MaskedLanguageModelingJob",
    pipeline="ensue.tasks.masked_language_modeling.pipeline:MaskedLanguagePipeline",
    commands={
        "predict": frozenset({"n-best", "shard"}),
        "evaluate": frozenset({"minimal-pairs", "similarity"}) | CONTEXTUAL,
        "score": frozenset(),
        "inspect": frozenset(),
        "embed": frozenset({"pooling", "layer"}),
    },
    judged_by=("masked_nats",),
)
