"""Series of real vectors (frames, sounds, images): classification, labeling, prediction, drawing, captions."""
