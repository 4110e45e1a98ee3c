"""Export to C: steps of layers printed by the engine, and templates in the `.h` files of this folder."""
