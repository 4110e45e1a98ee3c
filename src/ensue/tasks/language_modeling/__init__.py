"""Language modeling: predict every next token of a text."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe

TASK = TaskEntry(
    recipe=LanguageModelingRecipe, pipeline_tag="text-generation",
    parts="ensue.tasks.language_modeling.model:LanguageModelParts",
    job="ensue.tasks.language_modeling.job:LanguageModelingJob",
    pipeline="ensue.tasks.language_modeling.pipeline:LanguagePipeline",
    commands=("generate", "score", "evaluate", "inspect"), judged_by=("nats_per_token",),
)  # fmt: skip
