"""Running text: token ids on disk, batches of language models, minimal pairs. These modules do not import torch."""
