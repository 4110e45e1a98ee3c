"""Labeling of frames: a label for every frame of a series."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.frame_labeling.recipe import FrameLabelingRecipe
from ensue.tasks.frames import COMMANDS

TASK = TaskEntry(
    recipe=FrameLabelingRecipe,
    parts="ensue.tasks.frame_labeling.model:FrameTaggerParts",
    job="ensue.tasks.frame_labeling.job:FrameLabelingJob",
    pipeline="ensue.tasks.frame_labeling.pipeline:FrameLabelingPipeline",
    commands=COMMANDS,
    judged_by=("f1", "accuracy"),
    files=("frames.json", "labels.json"),
)
