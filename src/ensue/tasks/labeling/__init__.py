"""Labeling: a label for every word of a sentence, or for every frame of a series."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.labeling.recipe import CuttingRecipe, FrameLabelingRecipe, LabelingRecipe

TASK = TaskEntry(
    recipe=LabelingRecipe,
    pipeline_tag="token-classification",
    parts="ensue.tasks.labeling.model:TaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob",
    pipeline="ensue.tasks.labeling.pipeline:LabelingPipeline",
    commands=("predict", "evaluate", "inspect", "choose"),
    judged_by=("f1", "accuracy"),
    files=("tokenizer.json", "labels.json"),
    examples="ensue.tasks.labeling.examples:TaggedExamples",
)
CUTTING = TaskEntry(
    recipe=CuttingRecipe,
    pipeline_tag="token-classification",
    parts="ensue.tasks.labeling.model:TaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob",
    pipeline="ensue.tasks.labeling.cutter:CutterPipeline",
    commands=("predict", "evaluate"),
    judged_by=("accuracy",),
    files=("tokenizer.json", "labels.json"),
)
FRAMES = TaskEntry(
    recipe=FrameLabelingRecipe,
    parts="ensue.tasks.labeling.model:FrameTaggerParts",
    job="ensue.tasks.labeling.job:LabelingJob",
    pipeline="ensue.extensions.frames.labeling:FrameLabelingPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("f1", "accuracy"),
    files=("frames.json", "labels.json"),
)
