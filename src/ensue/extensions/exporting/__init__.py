"""Models for programs without ensue: ONNX, C, web pages, transformers."""
