"""Word vectors: CBOW, skip-gram, fastText and GloVe."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="word_vectors",
    tasks={"word-vectors": "ensue.extensions.word_vectors.recipe:TASK"},
    recipes=dict.fromkeys(
        ("vectors-cbow", "vectors-fasttext", "vectors-glove", "vectors-skipgram", "vectors-static"),
        "ensue.extensions.word_vectors",
    ),
    names={
        "tasks.vectors.word_table": "ensue.extensions.word_vectors.pipeline",
        "tasks.word_vectors.pipeline": "ensue.extensions.word_vectors.pipeline",
    },
)
