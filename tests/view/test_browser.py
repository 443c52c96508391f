"""The page of `delegraph view` in a real browser: modules, search, colours, keys, two programs, hostile names, size.

`make test-view` brings the browser: Playwright's Chromium, or the one that `CHROMIUM` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from delegraph.devtools.program_view.graph import GraphView, ViewNode
from delegraph.devtools.program_view.overlays import Overlay, byte_overlay
from delegraph.devtools.program_view.page import Shown, page
from delegraph.devtools.program_view.view import ProgramView

pytestmark = pytest.mark.view

LIMIT_MS = 120_000
"""Tests wait for what a page does; a busy machine is not a failure, a page that never does it is."""
PARTITIONS = ("inputs and outputs", "kernels", "delegate 0: Npu")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; a test is skipped where there is none, or where what draws graphs is not installed."""
    pytest.importorskip("netron", reason="netron draws the graphs: pip install 'delegraph[view]'")
    pytest.importorskip("playwright", reason="Playwright drives the browser: run `make test-view`")
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            path = os.environ.get("CHROMIUM") or None
            opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(
                f"no browser: name Chromium in CHROMIUM, or run `make test-view` ({str(error).splitlines()[0]})"
            )
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page; the test fails if the page asks for anything beside itself, or something in it goes wrong."""
    troubles: list[str] = []
    contexts = []

    def opened(programs: Sequence[Shown], start: str = "", dark: bool = False) -> Any:
        file = tmp_path / "view.html"
        file.write_text(page(programs, start), "utf-8")
        context = browser.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": 1400, "height": 850}, offline=True
        )
        contexts.append(context)
        context.set_default_timeout(LIMIT_MS)
        tab = context.new_page()
        tab.on("request", lambda request: request.url == file.as_uri() or troubles.append(f"asked for {request.url}"))
        tab.on("console", lambda said: said.type in ("error", "warning") and troubles.append(said.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("dialog", lambda dialog: (troubles.append("a dialog"), dialog.dismiss()))
        tab.goto(file.as_uri())
        tab.wait_for_function("document.documentElement.dataset.ready === 'yes'")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def node(place: int, module: str, label: str = "conv", partition: int = 2, reason: str = "") -> ViewNode:
    return ViewNode(
        str(place),
        label,
        f"aten::{label}",
        module,
        partition,
        (str(place - 1),) if place else (),
        ("float32 [1, 8]",),
        ("planned memory 1, bytes 0 to 32",),
        (f"net.py:{place}, in forward",),
        reason,
        (f"{module}.weight: float32 8x8, 256 bytes in constants",),
        256 * (place + 1),
    )


NODES = (
    node(0, "stem"),
    node(1, "blocks.0.conv"),
    node(2, "blocks.0", "add"),
    node(3, "blocks.1.conv"),
    node(4, "head", "lgamma", 1, "npu: no lgamma"),
)
GRAPH = GraphView("forward", NODES, PARTITIONS)


def shown(name: str = "m.pte", graph: GraphView = GRAPH) -> Shown:
    return Shown(name, (graph,), (byte_overlay([graph]),))


def boxes(tab: Any) -> list[str]:
    """The labels in the graph of the first program."""
    texts: list[str] = tab.locator("svg.graph").first.locator(".item > text:first-of-type").all_text_contents()
    return texts


def detail(tab: Any) -> str:
    text: str = tab.locator("#details").inner_text()
    return text


def test_a_module_opens_and_closes(show: Callable[..., Any]) -> None:
    tab = show([shown()])
    assert boxes(tab).count("conv") >= 3 and "add" in boxes(tab), "all of a small program is open"
    tab.click("#close-all")
    assert boxes(tab) == ["forward", "stem", "blocks", "head"]
    tab.locator(".item.group", has_text="blocks").last.dblclick()
    assert boxes(tab) == ["forward", "stem", "blocks", "0", "1", "head"]
    assert tab.locator(".edge").count() == 3, "stem to blocks, 0 to 1, blocks to head"


def test_partitions_have_colours_and_what_was_left_its_reason(show: Callable[..., Any]) -> None:
    tab = show([shown()])
    legend = tab.locator("#legend").inner_text()
    assert "kernels" in legend and "delegate 0: Npu" in legend and "4 nodes" in legend
    fills = tab.evaluate("['.p1', '.p2'].map(own => getComputedStyle(document.querySelector('.item > ' + own)).fill)")
    assert len(set(fills)) == 2
    assert "npu: no lgamma" in tab.locator("#largest").inner_text()
    tab.locator("#largest button").click()
    told = detail(tab)
    for text in (
        "lgamma",
        "float32 [1, 8]",
        "planned memory 1, bytes 0 to 32",
        "net.py:4",
        "npu: no lgamma",
        "kernels",
    ):
        assert text in told
    assert tab.locator(".item.chosen").count() == 1


def test_keys_do_everything(show: Callable[..., Any]) -> None:
    tab = show([shown()])
    tab.click("#close-all")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.type("blocks.1 conv")
    tab.locator("#hits [role=option]").first.wait_for()
    assert tab.locator("#hits [role=option]").count() == 2, "the module and the node in it"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert "net.py:3" in detail(tab) and tab.locator("#hits").is_hidden()
    tab.locator("[role=treeitem][tabindex='0']").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    focused = "document.activeElement.querySelector('.name')?.textContent"
    assert tab.evaluate(focused) == "blocks"
    tab.keyboard.press("ArrowLeft")
    assert "1" not in boxes(tab), "it is closed"
    tab.keyboard.press("ArrowRight")
    assert "1" in boxes(tab) and tab.evaluate(focused) == "blocks", "open again, and still the one that keys go to"
    tab.keyboard.press("Enter")
    assert "3 nodes" in detail(tab)
    tab.locator("svg.graph").focus()
    place = "document.querySelector('svg.graph > g').getAttribute('transform')"
    before = tab.evaluate(place)
    tab.keyboard.press("+")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(place) != before
    tab.keyboard.press("0")
    assert tab.locator("#theme").get_attribute("aria-pressed") == "false"


def test_an_overlay_colours_and_names_the_largest(show: Callable[..., Any]) -> None:
    slow = Overlay("time", {("forward", "3"): 0.25, ("forward", "1"): 0.001})
    tab = show([Shown("m.pte", (GRAPH,), (byte_overlay([GRAPH]), slow))], start="time")
    first = tab.locator("#largest button").first.inner_text()
    assert first.startswith("250 ms conv") and "blocks.1.conv" in first and "net.py:3" in first
    assert "250 ms" in tab.locator("#legend").inner_text()
    fills = tab.evaluate("[...document.querySelectorAll('.item:not(.group) > .box')].map(own => own.style.fill)")
    assert fills[0] == fills[2] == "", "what is not measured has no colour of the scale"
    assert len(set(fills)) == 3
    tab.select_option("#overlay", "bytes")
    assert tab.locator("#largest button").first.inner_text().startswith("1,280 B lgamma")
    assert tab.locator("[role=treeitem]", has_text="blocks").first.inner_text().split()[-2:] == ["2,304", "B"]


def test_two_programs_side_by_side_go_together(show: Callable[..., Any]) -> None:
    after = GraphView("forward", (*NODES[:1], node(1, "blocks.0.conv", "qconv"), *NODES[2:]), PARTITIONS)
    tab = show([shown("float.pte"), shown("int8.pte", after)])
    assert tab.locator("svg.graph").count() == tab.locator("[role=tree]").count() == 2
    tab.click("#close-all")
    tab.locator("[role=tree]").first.locator(".twist", has_text="▸").nth(1).click()
    assert tab.locator(".item.open").count() == 4, "the same module is open in both, and the whole of each"
    tab.fill("#search", "qconv")
    tab.keyboard.press("Enter")
    assert tab.locator(".item.chosen").count() == 2
    assert "int8.pte" in detail(tab) and "float.pte" in detail(tab) and "blocks.0.conv" in detail(tab)


def test_methods_that_one_has_and_the_other_has_not_and_empty_ones(show: Callable[..., Any]) -> None:
    prefill, empty = GraphView("prefill", NODES[:2], PARTITIONS), GraphView("empty", (), PARTITIONS)
    both = Shown("a.pte", (GRAPH, prefill, empty), (byte_overlay([GRAPH, prefill]),))
    tab = show([both, shown("b.pte")])
    tab.select_option("#method", "prefill")
    trees = tab.locator("[role=tree]")
    assert trees.nth(1).inner_text() == "It has no method prefill." and "conv" in trees.first.inner_text()
    tab.select_option("#method", "empty")
    tab.select_option("#overlay", "bytes")
    assert boxes(tab) == ["empty"] and "Nothing here was measured." in tab.locator("#largest").inner_text()


def test_dark_and_light(show: Callable[..., Any]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab = show([shown()], dark=True)
    dark = tab.evaluate(ground)
    tab.click("#theme")
    light = tab.evaluate(ground)
    assert sum(map(int, dark[4:-1].split(","))) < 120 < 600 < sum(map(int, light[4:-1].split(",")))
    assert show([shown()]).evaluate(ground) == light


EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">"\'&<svg onload=alert(3)>'


def test_names_of_a_file_do_nothing(show: Callable[..., Any]) -> None:
    """Nor do ids and modules that are names of JavaScript's own."""
    bad = ViewNode(EVIL, EVIL, EVIL, EVIL, 1, ("__proto__",), (EVIL,), (EVIL,), (EVIL,), EVIL, (EVIL,), 1)
    proto = ViewNode("__proto__", "constructor", "toString", "__proto__.constructor", 1, (EVIL,))
    deep = ViewNode("deep", "deep", "deep", ".".join(["m"] * 5000), 1)
    graph = GraphView(EVIL, (bad, proto, deep), (EVIL, EVIL))
    tab = show([shown(EVIL, graph)], start="bytes")
    tab.click("#open-all")
    tab.fill("#search", "alert(2)")
    tab.keyboard.press("Enter")
    assert EVIL in detail(tab)
    assert tab.locator("img").count() == 0 and tab.locator("script").count() == 2
    assert tab.title() == EVIL.replace("  ", " ")


def test_ten_thousand_nodes(show: Callable[..., Any]) -> None:
    """In modules, and in none: the page opens with some forty boxes, and a search goes to any node."""
    modules = GraphView(
        "forward", tuple(node(i, f"layers.{i // 100}.part{i // 10 % 10}") for i in range(10_000)), PARTITIONS
    )
    flat = GraphView("forward", tuple(node(i, "") for i in range(10_000)), PARTITIONS)
    for graph in (modules, flat):
        tab = show([shown("m.pte", graph)])
        assert tab.locator(".item").count() < 200
        tab.fill("#search", "net.py:7777,")
        tab.keyboard.press("Enter")
        assert "net.py:7777" in detail(tab) and tab.locator(".item.chosen").count() == 1


def test_a_notebook_shows_it_in_a_frame(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(f"<!DOCTYPE html><body>{ProgramView((shown(),))._repr_html_()}", "utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator(".item.left").wait_for(timeout=LIMIT_MS)
    assert "delegate 0: Npu" in frame.locator("#legend").inner_text()
    tab.close()
