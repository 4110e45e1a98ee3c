"""Classification of few series by MiniRocket: features of fixed convolutions, and a logistic regression."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="minirocket",
    tasks={"frame-classification-minirocket": "ensue.extensions.minirocket.recipe:TASK"},
    recipes={"classify-minirocket": "ensue.extensions.minirocket"},
    needs=("frames",),
)
