"""The parts that tasks on words share: the lexicon, texts as rows of numbers, limits on their length."""
