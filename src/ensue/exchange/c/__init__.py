"""A model as one file of C: the step that the engine prints, and beside it the pieces in the files `.h` of this folder."""
