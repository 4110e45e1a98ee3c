"""Reading of images in glimpses: several for each symbol, then a stop."""
