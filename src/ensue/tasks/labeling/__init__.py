"""Labeling: a label for every word of a sentence."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.words import COMMANDS

TASK = TaskEntry(
    recipe=LabelingRecipe,
    parts="ensue.tasks.labeling.model:TaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob",
    pipeline="ensue.tasks.labeling.pipeline:LabelingPipeline",
    commands=COMMANDS | {"evaluate": COMMANDS["evaluate"] | {"errors"}},
    judged_by=("f1", "accuracy"),
    files=("tokenizer.json", "labels.json"),
)
