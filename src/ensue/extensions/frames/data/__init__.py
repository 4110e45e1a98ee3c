"""Series of real vectors: sounds, sensors, rows of images, arrays."""
