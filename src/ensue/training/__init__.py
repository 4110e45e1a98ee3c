"""Training: one run from its recipe to its model card, on one device or with several processes."""
