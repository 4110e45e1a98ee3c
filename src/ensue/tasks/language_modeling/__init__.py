"""Language modeling: predict every next token of a text."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe

GENERATE = frozenset({
    "prompt", "max-tokens", "temperature", "top-k", "top-p", "min-p", "repetition-penalty", "seed", "samples", "beams",
    "n-best", "no-repeat-ngram",
})  # fmt: skip

TASK = TaskEntry(
    recipe=LanguageModelingRecipe,
    parts="ensue.tasks.language_modeling.model:LanguageModelParts",
    job="ensue.tasks.language_modeling.job:LanguageModelingJob",
    pipeline="ensue.tasks.language_modeling.pipeline:LanguagePipeline",
    commands={
        "generate": GENERATE,
        "score": frozenset(),
        "evaluate": frozenset({"minimal-pairs"}),
        "inspect": frozenset({"at", "token", "off"}),
    },
    judged_by=("nats_per_token",),
)
