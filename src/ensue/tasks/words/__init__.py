"""The parts that tasks on words share: what is known of words, texts as rows of numbers, their bounds."""
