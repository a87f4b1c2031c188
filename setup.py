"""What a package index shows: README.md without its pictures and links, which lead into this repository alone."""

import re
from pathlib import Path

from setuptools import setup

readme = Path("README.md").read_text(encoding="utf-8")
without_pictures = re.sub(r"^!\[.*?\n\n", "", readme, flags=re.DOTALL | re.MULTILINE)
setup(
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", without_pictures),
    long_description_content_type="text/markdown",
)
