"""Running text: ids on disk, batches of a language model, pairs of sentences. Nothing here imports torch."""
