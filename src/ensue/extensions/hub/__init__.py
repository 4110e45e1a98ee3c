"""The hub of Hugging Face."""
