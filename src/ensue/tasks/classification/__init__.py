"""Classification: one or several labels for a text or a pair of texts."""

from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=ClassificationRecipe, pipeline_tag="text-classification",
    parts="ensue.tasks.classification.model:ClassifierParts", job="ensue.tasks.classification.job:ClassificationJob",
    pipeline="ensue.tasks.classification.pipeline:ClassificationPipeline",
    commands=("predict", "evaluate", "inspect", "choose"), judged_by=("accuracy", "micro_f1"),
    files=("tokenizer.json", "labels.json", "confusion.png"),
)  # fmt: skip
