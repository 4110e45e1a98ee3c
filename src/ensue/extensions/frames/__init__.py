"""Series of real vectors (frames, sounds, images): classification, labeling, prediction, drawing, captions."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="frames",
    tasks={
        "frame-classification": "ensue.extensions.frames.recipe:CLASSIFICATION",
        "frame-labeling": "ensue.extensions.frames.recipe:LABELING",
        "frame-prediction": "ensue.extensions.frames.recipe:PREDICTION",
        "drawing": "ensue.extensions.frames.recipe:DRAWING",
        "glimpses": "ensue.extensions.frames.recipe:GLIMPSES",
        "captioning": "ensue.extensions.frames.recipe:CAPTIONING",
    },
    recipes=dict.fromkeys(
        ("caption-lstm", "classify-frames", "draw", "predict-frames", "read-glimpses", "storn", "tag-frames", "vrnn"),
        "ensue.extensions.frames.recipes",
    ),
    names={
        "data.frames.series": "ensue.extensions.frames.data.series",
        "metrics.frames": "ensue.extensions.frames.frame_prediction.model",
        "metrics.symbols": "ensue.extensions.frames.glimpses.symbols",
        "tasks.captioning.pipeline": "ensue.extensions.frames.captioning.pipeline",
        "tasks.classification.frames": "ensue.extensions.frames.classification",
        "tasks.drawing.pipeline": "ensue.extensions.frames.drawing.pipeline",
        "tasks.frame_prediction.pipeline": "ensue.extensions.frames.frame_prediction.pipeline",
        "tasks.frames.pipeline": "ensue.extensions.frames.tasks.pipeline",
        "tasks.glimpses.pipeline": "ensue.extensions.frames.glimpses.pipeline",
        "tasks.glimpses.view": "ensue.extensions.frames.glimpses.pipeline",
        "tasks.labeling.frames": "ensue.extensions.frames.labeling",
    },
    data_kinds={"frames": "ensue.extensions.frames.report:FrameKind"},
)
