"""Reading of the symbols in an image: several glimpses for each symbol, and a stop symbol after the last one."""
