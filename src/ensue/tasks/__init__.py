"""What a model is trained and judged on: examples to batches, batches to losses, outputs to scores."""
