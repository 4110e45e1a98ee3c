"""Data: from files to batches. Nothing here imports torch."""
