"""The laws of layers, and a plugin of pytest that holds a layer of another package to them."""
