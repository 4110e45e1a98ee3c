"""The laws of layers, and a pytest plugin that checks the laws of layers in other packages."""
