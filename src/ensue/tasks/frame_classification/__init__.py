"""Classification of frames: a label, or several, for a series."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.frame_classification.recipe import FrameClassificationRecipe
from ensue.tasks.frames import COMMANDS

TASK = TaskEntry(
    recipe=FrameClassificationRecipe,
    parts="ensue.tasks.frame_classification.model:FrameClassifierParts",
    job="ensue.tasks.frame_classification.job:FrameClassificationJob",
    pipeline="ensue.tasks.frame_classification.pipeline:FrameClassificationPipeline",
    commands=COMMANDS,
    judged_by=("accuracy", "micro_f1"),
    files=("frames.json", "labels.json", "confusion.png"),
)
