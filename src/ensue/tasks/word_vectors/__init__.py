"""Word vectors: a vector for each word, from the words around it."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.word_vectors.recipe import WordVectorsRecipe

TASK = TaskEntry(
    recipe=WordVectorsRecipe,
    pipeline_tag="feature-extraction",
    parts="ensue.tasks.word_vectors.model:WordVectorParts",
    job="ensue.tasks.word_vectors.job:WordVectorsJob",
    pipeline="ensue.tasks.word_vectors.pipeline:WordVectorsPipeline",
    commands=("neighbors", "inspect", "embed", "evaluate", "export"),
    judged_by=("spearman", "accuracy"),
)
