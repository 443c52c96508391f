"""Graphs and overlays -> one HTML file: the tree of modules, the graph, a search, colours. It fetches nothing.

The page's policy (Content-Security-Policy) admits its own script and style, by their digests, and nothing else; texts
of the program are data in it, never markup. The layout of graphs is dagre, as the package `netron` brings it (MIT).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from delegraph.devtools.program_view.graph import GraphView, ViewNode
from delegraph.devtools.program_view.overlays import OVERLAYS, Overlay
from delegraph.errors import NotSupported

__all__ = ["Shown", "page"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A program on the page: its name, the graphs of its methods, and what was measured of it."""

    name: str
    graphs: tuple[GraphView, ...]
    overlays: tuple[Overlay, ...] = ()


def page(programs: Sequence[Shown], start: str = "") -> str:
    """The HTML of `programs`, side by side. `start` is the overlay by which it is coloured first, "" for partitions.

    Raises `NotSupported` where the package that lays graphs out is not installed.
    """
    style = _own("page.css")
    script = f"{_layout()}\n{_own('page.js')}"
    names = {overlay.name for shown in programs for overlay in shown.overlays}
    data = {
        "programs": [_program(shown) for shown in programs],
        "overlays": {name: {"unit": m.unit, "summed": m.summed} for name, m in OVERLAYS.items() if name in names},
        "start": start,
    }
    title = " and ".join(shown.name for shown in programs)
    return Template(_own("page.html")).substitute(
        policy=f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}';"
        " base-uri 'none'; form-action 'none'",
        title=escape(title),
        style=style,
        script=script,
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _own(name: str) -> str:
    return files("delegraph.devtools.program_view").joinpath(name).read_text("utf-8")


def _layout() -> str:
    """The text of dagre, a module that exports `layout`. The package that has it is not imported."""
    spec = find_spec("netron")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        text = Path(folder, "dagre.js")
        if text.is_file():
            return text.read_text("utf-8")
    raise NotSupported("drawing a graph needs netron: pip install 'delegraph[view]'")


def _digest(text: str) -> str:
    """The name of an inline script or style in a policy (Content Security Policy Level 3, `hash-source`)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _program(shown: Shown) -> dict[str, Any]:
    overlays = {overlay.name: overlay.values for overlay in shown.overlays}
    return {"name": shown.name, "methods": [_method(graph, overlays) for graph in shown.graphs]}


def _method(graph: GraphView, overlays: Mapping[str, Mapping[tuple[str, str], float]]) -> dict[str, Any]:
    numbers = {name: [values.get((graph.method, node.id)) for node in graph.nodes] for name, values in overlays.items()}
    return {
        "name": graph.method,
        "partitions": graph.partitions,
        "nodes": [_node(node) for node in graph.nodes],
        "values": numbers,
    }


_TEXTS = (
    "id",
    "label",
    "operator",
    "module",
    "partition",
    "inputs",
    "results",
    "memory",
    "lines",
    "reason",
    "weights",
)


def _node(node: ViewNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in _TEXTS}
