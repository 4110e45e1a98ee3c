"""Labels made better: those that are likely wrong, and what to label next."""
