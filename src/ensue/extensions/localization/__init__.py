"""Files and terms of translators: TMX, glossaries, markup."""
