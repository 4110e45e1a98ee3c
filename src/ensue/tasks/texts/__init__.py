"""Modules of tasks on texts: tokenizers, corpora, framing of words, and surprisals."""
