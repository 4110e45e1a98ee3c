"""What stands on the last layer: softmax and its loss over a vocabulary, and a chain over labels."""
