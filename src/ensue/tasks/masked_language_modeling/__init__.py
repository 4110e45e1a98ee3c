"""Masked language modeling, which predicts hidden tokens from the other tokens of a text, and sentence vectors.

Sentence vectors come from the same layers, which are trained on pairs of similar texts.
"""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentenceVectorsRecipe

TASK = TaskEntry(
    recipe=MaskedLanguageModelingRecipe, pipeline_tag="fill-mask",
    parts="ensue.tasks.masked_language_modeling.model:MaskedLanguageModelParts",
    job="ensue.tasks.masked_language_modeling.job:MaskedLanguageModelingJob",
    pipeline="ensue.tasks.masked_language_modeling.pipeline:MaskedLanguagePipeline",
    commands=("predict", "evaluate", "score", "inspect", "embed"), judged_by=("masked_nats",),
)  # fmt: skip
SENTENCES = TaskEntry(
    recipe=SentenceVectorsRecipe, pipeline_tag="sentence-similarity",
    parts="ensue.tasks.masked_language_modeling.model:MaskedLanguageModelParts",
    job="ensue.tasks.masked_language_modeling.job:SentenceVectorsJob",
    pipeline="ensue.tasks.masked_language_modeling.pipeline:SentenceVectorsPipeline",
    commands=("embed", "evaluate"), judged_by=("spearman", "accuracy"),
)  # fmt: skip
