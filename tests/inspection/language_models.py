"""Small random language models for views, and the numbers of a page."""

import json
from typing import Any

from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from inspection.small import Node, roughened
from language_pipelines import pipeline_of
from layer_tables import layers

TEXT = 'The sea was calm. "Nobody" (I) spoke,\nand été: "nothing ended"; 12\n'


LSTM = layers(kind="lstm", d_embedding=8, d_model=6, num_layers=2)


TRANSFORMER = layers(
    kind="transformer", d_embedding=8, d_model=8, num_heads=2, num_layers=2, context=10, positions="rotary"
)


MODELS = {
    "lstm": LSTM,
    "gru": layers(kind="gru", d_embedding=8, d_model=6),
    "mingru": layers(kind="mingru", d_embedding=8, d_model=6),
    "grid": layers(kind="grid", d_embedding=8, d_model=6, num_layers=2),
    "transformer": TRANSFORMER,
    "clockwork": layers(kind="clockwork", d_embedding=8, d_model=6, periods=[1, 2, 4]),
    "depth-gated": layers(kind="depth-gated", d_embedding=8, d_model=6, num_layers=2),
    "minlstm": layers(kind="minlstm", d_embedding=8, d_model=6, num_layers=2),
    "qrnn": layers(kind="qrnn", d_embedding=8, d_model=6),
    "window": layers(kind="window", d_embedding=8, d_model=6),
}


def model_of(name: str = "lstm", kind: str = "characters") -> LanguagePipeline:
    pipeline = pipeline_of(kind, MODELS[name])
    roughened(pipeline.model)
    return pipeline


def numbers_of(page: Node, section_name: str = "tokens") -> dict[str, Any]:
    (drawn,) = [node for node in page.all() if node.attributes.get("data-draw") == section_name]
    numbers: dict[str, Any] = json.loads(next(drawn.all("script")).text)
    return numbers
