"""Label-error detection, active learning, distillation and labels from a few examples."""

from ensue.extension import Extension, PipelineMethod

EXTENSION = Extension(
    name="annotating",
    needs=("annotation_formats", "word_vectors"),
    commands={name: "ensue.extensions.annotating.command:" + name for name in ("distill", "begin", "doubt", "choose")},
    methods={
        "choose": PipelineMethod("ensue.extensions.annotating.choice:choose", "ensue.tasks.words.pipeline:WordPipeline")
    },
    names={
        "distill": "ensue.extensions.annotating.teachers:distill",
        "doubt": "ensue.extensions.annotating.doubts:doubt",
    },
)
