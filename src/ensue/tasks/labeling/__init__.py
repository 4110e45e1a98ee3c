"""Labeling: a label for each word of a sentence. A cutter labels the characters of a text."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.labeling.recipe import CuttingRecipe, LabelingRecipe

TASK = TaskEntry(
    recipe=LabelingRecipe, pipeline_tag="token-classification", parts="ensue.tasks.labeling.model:TaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob", pipeline="ensue.tasks.labeling.pipeline:LabelingPipeline",
    commands=("predict", "evaluate", "inspect", "choose"), judged_by=("f1", "accuracy"),
    files=("tokenizer.json", "labels.json"),
)  # fmt: skip
CUTTING = TaskEntry(
    recipe=CuttingRecipe, pipeline_tag="token-classification", parts="ensue.tasks.labeling.model:TaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob", pipeline="ensue.tasks.labeling.cutter:CutterPipeline",
    commands=("predict", "evaluate"), judged_by=("accuracy",), files=("tokenizer.json", "labels.json"),
)  # fmt: skip
