"""The table of entry-point groups -> the page of what a package may register."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from delegraph.plugins.hookspecs import GROUPS, PluginGroup

__all__ = ["groups_page"]

ROOT: Final = Path(__file__).resolve().parents[2]

_HEAD = """# Entry-point groups

What a distribution may register in its `pyproject.toml`, one line for each object:

    [project.entry-points."delegraph.backends"]
    Npu = "acme_npu.runtime:NpuBackend"

Generated from the table that discovery, validation and tools' wrappers use. A *hook* is what is called, an *attribute*
what is read; an object fits if it has every hook and takes these parameters by position. `delegraph plugins check NAME`
loads a distribution's plug-ins and tries them out.

| group | an entry is used as | on the device too |
| --- | --- | --- |
"""


def groups_page() -> str:
    """The page's Markdown: a table of all groups, then a section for each."""
    rows = [
        f"| [`{group.name}`](#{group.name}) | {group.form.value} | {'yes' if group.torch_free else 'no'} |\n"
        for group in GROUPS.values()
    ]
    return "".join([_HEAD, *rows, "\n", *map(_section, GROUPS.values())])


def _section(group: PluginGroup) -> str:
    parts = [f"## {group.name} {{ #{group.name} }}\n"]
    side = "On the device: loading it must not import torch." if group.torch_free else "Where models are lowered."
    parts.append(f"{side} An entry is used as {group.form.value}.\n")
    parts.append(f"Interface: `delegraph.interfaces.{group.class_name}`. {_first_sentence(group.interface)}\n")
    if group.product:
        parts.append(f"What it makes: `{group.product.base}`. {_first_sentence(group.product.interface)}\n")
    parts.append(_table("hook", [f"`{made.text(hook)}`" for made in _both(group) for hook in made.hook_names]))
    parts.append(_table("attribute", _attributes(group)))
    parts.append(_table("registered in this repository", _registered(group.name)))
    return "\n".join(parts)


def _both(group: PluginGroup) -> list[PluginGroup]:
    return [group, group.product] if group.product else [group]


def _attributes(group: PluginGroup) -> list[str]:
    return [f"`{name} = {value!r}`" for made in _both(group) for name, value in made.attributes.items()]


def _registered(group: str) -> list[str]:
    """The entries of the distributions in this repository, those of tests and examples left out."""
    files = [path for path in ("pyproject.toml", "*/pyproject.toml", "*/*/pyproject.toml") for path in ROOT.glob(path)]
    projects = [tomllib.loads(file.read_text("utf-8"))["project"] for file in sorted(files)]
    offers = [(project["name"], project.get("entry-points", {}).get(group, {})) for project in projects]
    return [f"`{name} = {value}` in `{project}`" for project, entries in offers for name, value in entries.items()]


def _table(title: str, rows: list[str]) -> str:
    return "".join([f"| {title} |\n| --- |\n", *(f"| {row} |\n" for row in rows), "\n"]) if rows else ""


def _first_sentence(interface: type) -> str:
    return " ".join((interface.__doc__ or "").partition("\n\n")[0].split())
