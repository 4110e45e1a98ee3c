"""Bidirectional models: ELMo, context2vec and word senses."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="bidirectional", tasks={"bidirectional-language-modeling": "ensue.extensions.bidirectional.entry:TASK"}
)
