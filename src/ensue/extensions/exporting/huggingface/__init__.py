"""Export to directories of transformers and sentence-transformers."""
