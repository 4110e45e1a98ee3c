"""Graphs whose matrices are whole numbers of eight bits."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

PREPARED = {"onnx.quant.pre_process": "onnxruntime.quant"}
"""The key by which onnxruntime knows that constants are folded."""


def in_eight_bits(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with the matrices of products, LSTMs and embeddings in eight bits; what they multiply is rounded as it
    enters.

    Constants are folded first, since onnxruntime leaves what is no plain weight as it is, without a word.
    """
    with TemporaryDirectory() as folder:
        plain, folded, small = (Path(folder) / name for name in ("plain.onnx", "folded.onnx", "small.onnx"))
        onnx.save(graph, plain)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
        prepared = onnx.load(folded)
        onnx.helper.set_model_props(prepared, PREPARED)
        quantize_dynamic(prepared, small, weight_type=QuantType.QInt8)
        return onnx.load(small)
