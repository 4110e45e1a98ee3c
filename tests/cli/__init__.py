"""The command line: what people type, what they get wrong, what they see."""
