"""docs/ -> what MkDocs builds: with the pages that are generated, and links that lead where the site has the page."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools.site.links import rewritten
from tools.site.pages import generated


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated, or that lie beside docs/."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with links that work on the site."""
    return rewritten(markdown, page.file.src_uri)
