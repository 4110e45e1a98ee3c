"""Reading of data, from files to batches. These modules do not import torch."""
