"""Classification: a label, or several, for a text or a pair of texts."""

from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.entry import TaskEntry
from ensue.tasks.words import COMMANDS

TASK = TaskEntry(
    recipe=ClassificationRecipe,
    parts="ensue.tasks.classification.model:ClassifierParts",
    job="ensue.tasks.classification.job:ClassificationJob",
    pipeline="ensue.tasks.classification.pipeline:ClassificationPipeline",
    commands=COMMANDS,
    judged_by=("accuracy", "micro_f1"),
    files=("tokenizer.json", "labels.json", "confusion.png"),
)
