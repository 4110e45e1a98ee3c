"""Files and terms of translators: TMX, glossaries, markup."""

from ensue.extension import Extension

EXTENSION = Extension(name="localization")
