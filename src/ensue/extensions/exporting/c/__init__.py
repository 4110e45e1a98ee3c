"""A model as one file of C: the step that the engine prints, and the pieces in the `.h` files of this folder."""
