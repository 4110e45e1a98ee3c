"""Mutants: small changes of the code that nearby tests must detect (`make mutants`)."""
