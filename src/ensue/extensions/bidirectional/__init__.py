"""Bidirectional language models (ELMo), context2vec, and senses of words."""

from pathlib import Path

from ensue.extension import Extension, PipelineMethod

WORD_USES = "ensue.extensions.bidirectional.word_uses"
CONTEXTUAL = "ensue.tasks.vectors.contextual:ContextualPipeline"
WORD_VECTORS = "ensue.extensions.word_vectors.pipeline:WordVectorsPipeline"
SENSE_OPTIONS = {"senses": (Path, "Score senses of words, by the nearest mean of examples (CoarseWSD-20).")}
PAIR_OPTIONS = {
    "word_in_context": (Path, "Score pairs of uses of a word (WiC, MCL-WiC), with --threshold-from FILE."),
    "threshold_from": (Path, "Other pairs of uses, on which the threshold of --word-in-context is chosen."),
}

EXTENSION = Extension(
    name="bidirectional",
    needs=("word_vectors",),
    tasks={"bidirectional-language-modeling": "ensue.extensions.bidirectional.recipe:TASK"},
    recipes=dict.fromkeys(("context2vec", "elmo", "elmo-small"), "ensue.extensions.bidirectional"),
    importers={"elmo": "ensue.extensions.bidirectional.elmo:import_elmo"},
    methods={
        "senses": PipelineMethod(f"{WORD_USES}:senses", CONTEXTUAL),
        "sense_scores": PipelineMethod(f"{WORD_USES}:sense_scores", CONTEXTUAL, "evaluate", SENSE_OPTIONS),
        "word_in_context": PipelineMethod(f"{WORD_USES}:word_in_context", CONTEXTUAL, "evaluate", PAIR_OPTIONS),
        "sense_of": PipelineMethod(f"{WORD_USES}:sense_of", WORD_VECTORS),
    },
    names={
        "data.word_uses": WORD_USES,
        "tasks.bidirectional_language_modeling.objectives": "ensue.extensions.bidirectional.objectives",
        "tasks.bidirectional_language_modeling.pipeline": "ensue.extensions.bidirectional.pipeline",
    },
    coders={"senses": f"{WORD_USES}:sense_coder"},
)
