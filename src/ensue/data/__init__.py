"""Files to token files to batches. Nothing here imports torch."""
