"""Classification: a label, or several, for a text, a pair of texts, or a series of frames."""

from ensue.tasks.classification.recipe import ClassificationRecipe, FrameClassificationRecipe
from ensue.tasks.entry import TaskEntry

TASK = TaskEntry(
    recipe=ClassificationRecipe,
    pipeline_tag="text-classification",
    parts="ensue.tasks.classification.model:ClassifierParts",
    job="ensue.tasks.classification.job:ClassificationJob",
    pipeline="ensue.tasks.classification.pipeline:ClassificationPipeline",
    commands=("predict", "evaluate", "inspect", "choose"),
    judged_by=("accuracy", "micro_f1"),
    files=("tokenizer.json", "labels.json", "confusion.png"),
    examples="ensue.tasks.classification.examples:ClassifiedExamples",
)
FRAMES = TaskEntry(
    recipe=FrameClassificationRecipe,
    parts="ensue.tasks.classification.model:FrameClassifierParts",
    job="ensue.tasks.classification.job:ClassificationJob",
    pipeline="ensue.extensions.frames.classification:FrameClassificationPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("accuracy", "micro_f1"),
    files=("frames.json", "labels.json", "confusion.png"),
)
