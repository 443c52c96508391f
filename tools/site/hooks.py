"""docs/ -> what MkDocs builds: generated pages, links to the site's pages, names that lead to the reference."""

from __future__ import annotations

import re
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools.site.links import rewritten
from tools.site.names import linked
from tools.site.navigation import expanded
from tools.site.pages import generated

_FILE: Final = re.compile(r"^(```\w+) (\S+)$", re.MULTILINE)
"""The first line of a block that is a file: "```python model.py"."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the modules into the navigation."""
    config.nav = expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated, or that lie beside docs/."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with links that work on the site, and with files' names as titles of their blocks: behind the
    language, as GitHub reads them, MkDocs takes them for the end of the block."""
    return _FILE.sub(r'\1 title="\2"', rewritten(markdown, page.file.src_uri))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's HTML with names that lead to the reference."""
    return linked(html)
