"""Conversion of strings to ids and back: vocabularies, tokenizers, subwords. These modules do not import torch."""
