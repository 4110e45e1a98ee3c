"""Recognition of symbol sequences in images, with several glimpses for each symbol and a stop symbol at the end."""
