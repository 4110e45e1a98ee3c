"""The long description of the package: README.md with absolute addresses of pictures and links."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

FOLDER = Path(__file__).parent
VERSION = re.findall('VERSION = "(.+)"', (FOLDER / "src" / "ensue" / "version.py").read_text(encoding="utf-8"))[0]
REPOSITORY = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]


def make_absolute(match: re.Match[str]) -> str:
    """Return a picture or a link of README.md with its address in the repository, at the tag of this version."""
    picture, text, path = match.groups()
    return f"{picture}[{text}]({REPOSITORY}/{'raw' if picture else 'blob'}/v{VERSION}/{path})"


readme = (FOLDER / "README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", make_absolute, readme),
    long_description_content_type="text/markdown",
)
