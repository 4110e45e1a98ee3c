"""Reading texts: tokenizers and corpora, how a language model reads words, and surprisals."""
