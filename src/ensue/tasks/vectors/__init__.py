"""What gives vectors of texts and of words, in sentences and alone."""
