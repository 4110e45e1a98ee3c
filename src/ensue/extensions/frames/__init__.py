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
    data_kinds={"frames": "ensue.extensions.frames.report:FrameKind"},
)
