"""Runs as ONNX graphs, which other programs run without torch and without ensue."""
