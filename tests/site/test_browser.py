"""The built site in a real browser: search finds pages, links work, code copies, a narrow screen shows all of it.

`make test-site` builds the site and brings the browser: Playwright's Chromium, or the one that `CHROMIUM` names.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest

SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
NARROW = {"width": 360, "height": 740}  # a small telephone
LIMIT_MS = 180_000
"""Tests wait for what a page does; a busy machine is not a failure, a page that never does it is."""

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    assert PAGES, "there is no site in build/site: run `make docs`"
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """A browser without a history, which may use the clipboard; tests are skipped where there is none."""
    pytest.importorskip("playwright", reason="Playwright drives the browser: run `make test-site`")
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            path = os.environ.get("CHROMIUM") or None
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(
                f"no browser: name Chromium in CHROMIUM, or run `make test-site` ({str(error).splitlines()[0]})"
            )
        made = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        made.set_default_timeout(LIMIT_MS)
        yield made
        browser.close()


@pytest.fixture
def tab(context: Any, address: str) -> Iterator[Any]:
    """A tab; the test fails if a page asked another server for anything, or said of something that it is wrong."""
    opened, troubles = context.new_page(), []
    opened.on("request", lambda request: request.url.startswith(address) or troubles.append(f"asked for {request.url}"))
    opened.on("console", lambda said: said.type in ("error", "warning") and troubles.append(said.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    yield opened
    opened.close()
    assert troubles == []


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("quantize", "quantiz"),
        ("beam search", "language-models.html"),
        ("BackendInterface", "reference/delegraph.interfaces.html"),
        ("memory planner", "memory.html"),
        ("MissingKernel", "reference/errors.html"),
        ("logging", "logging.html"),
        ("viewer", "viewing.html"),
        ("deploying", "deploying.html"),
        ("serving", "serving.html"),
    ],
)
def test_search_finds(tab: Any, address: str, words: str, page: str) -> None:
    tab.goto(address)
    tab.locator("[data-md-component=search-query]").press_sequentially(words)  # it listens to keys, not to its text
    found = tab.locator(".md-search-result__link")
    found.first.wait_for()
    assert page in " ".join(link.get_attribute("href") for link in found.all()[:20])
    target = found.first.get_attribute("href")
    found.first.click()
    tab.wait_for_url(urljoin(address, target))
    tab.wait_for_function(
        """words => document.querySelector("mark")
            || document.querySelector("article").innerText.toLowerCase().includes(words)""",
        arg=words.lower(),
    )


def test_links_work(tab: Any, address: str) -> None:
    """Every link of every page leads to a page of the site and, with a #, to a place on it."""
    anchors, links = {}, {}
    for page in PAGES:
        tab.goto(address + page, wait_until="domcontentloaded")
        anchors[address + page] = set(
            tab.evaluate("[...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name)")
        )
        links[address + page] = tab.evaluate(
            "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
        )
    lost = []
    for page, there in links.items():
        for link in {urljoin(page, link) for link in there}:
            target, place = urldefrag(link)
            target = target + "index.html" if target.endswith("/") else target
            if not target.startswith(address):
                continue
            if target not in anchors:
                lost += [] if (SITE / target.removeprefix(address)).is_file() else [f"{page}: {link}: no such file"]
            elif place and place not in anchors[target]:
                lost.append(f"{page}: {link}: no such place")
    assert sorted(set(lost)) == []


def test_a_link_in_the_navigation_is_followed(tab: Any, address: str) -> None:
    tab.set_viewport_size({"width": 1400, "height": 900})
    tab.goto(address)
    tab.locator(".md-tabs__link", has_text="Concepts").click()
    tab.locator(".md-nav--primary .md-nav__link", has_text="Glossary").click()
    tab.wait_for_url("**/glossary.html")
    assert tab.locator("h1").inner_text().startswith("Glossary")


def test_a_name_in_a_guide_leads_to_the_reference(tab: Any, address: str) -> None:
    tab.goto(address + "way-of-a-model.html")
    tab.locator("article a code", has_text="delegraph.lower").first.click()
    tab.wait_for_url("**/reference/delegraph.html#*")
    place = tab.evaluate("decodeURIComponent(location.hash).slice(1)")
    assert "Lower a model onto backends" in tab.locator(f'[id="{place}"] ~ .doc-contents').first.inner_text()


def test_code_is_copied(tab: Any, address: str) -> None:
    tab.goto(address)
    block = tab.locator(".highlight").first
    block.hover()
    block.locator("button").click()
    tab.wait_for_function("async () => (await navigator.clipboard.readText()).length > 0")
    copied = tab.evaluate("navigator.clipboard.readText()")
    written = (SITE.parents[1] / "docs" / "index.md").read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert copied.strip() == written.strip()


@pytest.mark.parametrize("width", [NARROW["width"], 768, 1400])
def test_no_page_is_wider_than_the_screen(tab: Any, address: str, width: int) -> None:
    """Wide tables and code scroll within themselves."""
    tab.set_viewport_size({**NARROW, "width": width})
    wide = []
    for page in PAGES:
        tab.goto(address + page, wait_until="domcontentloaded")
        if tab.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(page)
    assert wide == []


CUT = """
() => [...document.querySelectorAll('article pre > code, article table, article img, article svg')]
    .filter(own => {
        const box = own.getBoundingClientRect();
        return own.scrollWidth > own.clientWidth + 1 && own.clientWidth > 0
            || box.right > document.querySelector('article').getBoundingClientRect().right + 1;
    })
    .map(own => `${own.tagName.toLowerCase()} is ${own.scrollWidth} in ${own.clientWidth} pixels: `
        + (own.innerText ?? own.src ?? '').trim().slice(0, 60))
"""
"""What does not show all of itself without being scrolled, or stands out of its column."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_on_a_notebooks_screen(tab: Any, address: str, scheme: str) -> None:
    """Code, tables and pictures are seen whole at 1280 pixels."""
    tab.set_viewport_size({"width": 1280, "height": 800})
    tab.emulate_media(color_scheme=scheme)
    cut = []
    for page in PAGES:
        tab.goto(address + page, wait_until="load")
        cut += [f"{page}: {element}" for element in tab.evaluate(CUT)]
    assert cut == []


def test_a_narrow_screen_has_a_menu_and_readable_text(tab: Any, address: str) -> None:
    tab.set_viewport_size(NARROW)
    tab.goto(address + "memory.html")
    assert tab.locator("article p").first.bounding_box()["width"] <= NARROW["width"]
    assert (
        float(tab.evaluate("getComputedStyle(document.querySelector('article p')).fontSize").removesuffix("px")) >= 14
    )
    tab.locator("label.md-header__button[for=__drawer]").click()
    assert tab.locator(".md-nav--primary").is_visible()


def test_drawings_are_shown(tab: Any, address: str) -> None:
    tab.goto(address + "concepts/index.html")
    sizes = tab.evaluate("[...document.querySelectorAll('article img')].map(i => i.naturalWidth)")
    assert len(sizes) >= 7 and all(sizes)


CROSSED = """
() => [...document.querySelectorAll('path[marker-end]')].flatMap(arrow =>
    [...document.querySelectorAll('text')].filter(word => {
        const box = word.getBBox(), length = arrow.getTotalLength();
        return [...Array(50).keys()].some(part => {
            const at = arrow.getPointAtLength(length * part / 49);
            return at.x > box.x && at.x < box.x + box.width && at.y > box.y + 3 && at.y < box.y + box.height - 3;
        });
    }).map(word => word.textContent))
"""


@pytest.mark.parametrize(
    "drawing", sorted((SITE.parents[1] / "docs" / "concepts").glob("*.svg")), ids=lambda own: own.stem
)
def test_arrows_cross_no_words(context: Any, drawing: Path) -> None:
    tab = context.new_page()
    tab.goto(drawing.as_uri())
    assert tab.evaluate(CROSSED) == []
    tab.close()


def test_it_is_read_in_the_dark(tab: Any, address: str) -> None:
    tab.add_init_script("localStorage.clear()")  # earlier tests chose a palette
    tab.emulate_media(color_scheme="dark")
    tab.goto(address)
    tab.wait_for_function("document.body.getAttribute('data-md-color-scheme') === 'slate'")
