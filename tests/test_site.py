"""The documentation as a site: that every page can be found, every link leads somewhere, every name has its place.

What only a browser can tell is in `tests/site`, which `make test-site` runs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.test_docs import PAGES, READMES
from tools.site.api_page import PUBLIC, names_of
from tools.site.errors_page import children, meaning
from tools.site.links import SOURCE, links, rewritten
from tools.site.names import anchor, home, linked
from tools.site.navigation import expanded
from tools.site.pages import generated
from tools.site.parameters import listed

import delegraph
from delegraph import errors
from delegraph.cli import command_parser
from delegraph.plugins import PluginRegistry
from delegraph.plugins.hookspecs import GROUPS
from delegraph.plugins.plugin_spec import PluginSpec, plugin_spec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages that nobody writes, as they are generated."""
    return generated()


@pytest.fixture(scope="module")
def pages(made: dict[str, str]) -> dict[str, str]:
    """Every page of the site by its path, as Markdown whose links are the site's."""
    written = {page.relative_to(DOCS).as_posix(): page.read_text("utf-8") for page in DOCS.rglob("*.md")}
    return {path: rewritten(text, path) for path, text in (written | made).items()}


def paths_in(nav: Any) -> list[str]:
    """The pages that a part of the navigation leads to."""
    match nav:
        case str():
            return [nav]
        case dict():
            return [path for part in nav.values() for path in paths_in(part)]
    return [path for part in nav for path in paths_in(part)]


def anchors_of(markdown: str) -> set[str]:
    """The anchors on a page: those that it gives itself, and those that the site gives to headings."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    given = re.findall(r"\{ ?#([^ }]+) ?\}", text) + re.findall(r"^::: (\S+)", text, re.MULTILINE)
    titles = re.findall(r"^#+ (.+?)(?: \{.*)?$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\[(.*?)\]\(.*?\)", r"\1", title)) for title in titles]
    return {*given, *(re.sub(r"[-\s]+", "-", word.strip().lower()) for word in words)}


# ---- pages and links -------------------------------------------------------------------------------


def test_the_navigation_leads_to_every_page_once(pages: dict[str, str]) -> None:
    nav = expanded(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    assert sorted(paths_in(nav)) == sorted(pages), "a page comes or goes with its line in mkdocs.yml, under `nav`"


def test_links_lead_to_a_page_and_a_heading(pages: dict[str, str]) -> None:
    lost = []
    for path, text in pages.items():
        for link, anchor_ in links(text):
            target = path if not link else (Path(path).parent / link).as_posix()
            target = Path(re.sub(r"[^/]+/\.\./", "", target)).as_posix()
            if target in pages:
                if anchor_ and anchor_[1:] not in anchors_of(pages[target]):
                    lost.append(f"{path}: {link}{anchor_}: the page has no such heading")
            elif not (DOCS / target).is_file():
                lost.append(f"{path}: {link}: there is no such page")
    assert lost == []


def test_links_out_of_docs_lead_to_what_is_there(pages: dict[str, str]) -> None:
    found = [
        (path, file) for path, text in pages.items() for file in re.findall(re.escape(SOURCE) + r"([^)#\s]+)", text)
    ]
    assert [(path, file) for path, file in found if not (ROOT / file).exists()] == []
    assert found


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("memory.md", "glossary.md", "glossary.md"),
        ("tutorials/quantize.md", "../memory.md#planners", "../memory.md#planners"),
        ("glossary.md", "../ARCHITECTURE.md", "architecture.md"),
        ("tutorials/quantize.md", "../../SECURITY.md", "../security.md"),
        ("glossary.md", "../core/delegraph/errors.py", f"{SOURCE}core/delegraph/errors.py"),
        ("architecture.md", "docs/memory.md", "memory.md"),
        ("memory.md", "https://pytorch.org", "https://pytorch.org"),
    ],
)
def test_a_link_on_the_site(page: str, link: str, there: str) -> None:
    assert rewritten(f"See [it]({link}).", page) == f"See [it]({there})."


def test_links_in_code_stay() -> None:
    text = "`a[0](../x.md)`\n\n```python\nf[0](../y.md)\n```\n"
    assert rewritten(text, "memory.md") == text
    assert links(text) == []


# ---- concepts --------------------------------------------------------------------------------------


def test_every_term_says_where_it_lives() -> None:
    """That the files are there, `tests/test_docs.py` finds out."""
    terms = re.findall(
        r"^\*\*(.+?)\*\* —(.*?)(?=\n\n|\Z)", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [term for term, text in terms if not re.search(r"^→ \[", text, re.MULTILINE)] == []
    assert len({term for term, _ in terms}) == len(terms) > 50


def test_drawings_are_shown_and_say_what_they_show() -> None:
    page = (DOCS / "concepts" / "index.md").read_text("utf-8")
    shown = dict(re.findall(r"!\[(.+?)\]\((.+?)\)", page))
    assert set(shown.values()) == {drawing.name for drawing in (DOCS / "concepts").glob("*.svg")}
    for title, drawing in shown.items():
        root = ElementTree.parse(DOCS / "concepts" / drawing).getroot()
        assert root.attrib["aria-label"] == title
        assert not re.search(
            r"https?://(?!www\.w3\.org)", ElementTree.tostring(root, encoding="unicode")
        )  # works offline


# ---- the reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_a_place(module: str, made: dict[str, str]) -> None:
    page = made[f"reference/{module}.md"]
    for name in names_of(module):
        assert anchor(module, name).partition(".")[0] in page
        assert f"{module}.{name}" in anchors_of(page) | set(re.findall(r"\{#(\S+)\}", page)), f"{module}.{name}"
        if at_home := home(module, name):
            assert f"::: {anchor(module, name)}\n" in made[f"reference/{at_home}.md"]


def test_what_is_defined_in_a_package_is_told_there() -> None:
    assert home("delegraph.aot", "BackendDetails") == home("delegraph.interfaces", "BackendDetails")
    assert home("delegraph.interfaces", "BackendDetails") == "delegraph.interfaces"
    assert home("delegraph", "lower") == "delegraph"  # what most users import
    assert home("delegraph", "DelegraphError") == "delegraph.errors"
    assert home("delegraph.aot", "PassBase") == ""  # torch's


def test_names_in_text_lead_to_the_reference() -> None:
    def place(name: str) -> str:
        return f'<autoref optional identifier="{name}"><code>'

    assert linked("<p><code>delegraph.load</code></p>").startswith(f"<p>{place('delegraph.runtime.module.load')}")
    assert place("delegraph.runtime.method.Method.execute") in linked("<code>Method.execute(inputs)</code>")
    for untouched in (
        "<code>load</code>",  # may be anybody's
        "<code>numpy.ndarray</code>",
        "<pre><code>Method</code></pre>",
        '<a href="x"><code>Method</code></a>',
        "<h2><code>Method</code></h2>",
    ):
        assert linked(untouched) == untouched


def test_parameters_become_a_list() -> None:
    text = "Do it.\n\na: the first,\nin two lines. b: the second; c: no parameter.\n\nRaises: never."
    assert listed(text, ["a", "b"]) == (
        "Do it.\n\n- `a`: the first, in two lines.\n- `b`: the second; c: no parameter.\n\nRaises: never."
    )
    assert listed(text, []) == text


def test_every_error_says_what_helps(made: dict[str, str]) -> None:
    def below(kind: type) -> list[type]:
        return [kind, *(one for child in children(kind) for one in below(child))]

    kinds = below(errors.DelegraphError)
    assert {kind.__name__ for kind in kinds} == set(errors.__all__) - {
        "FOREIGN",
        "FallbackWarning",
        "LimitWarning",
        "PluginWarning",
        "cause_of",
        "foreign_code",
        "restated",
    }
    assert [kind.__name__ for kind in kinds[1:] if not all(meaning(kind))] == []
    page = made["reference/errors.md"]
    assert "| ·  ·  [`InvalidProgram`](#InvalidProgram) | `0x23` |" in page
    assert meaning(errors.MissingKernel)[1] in page


def test_every_group_has_its_section(made: dict[str, str]) -> None:
    page = made["reference/entry-points.md"]
    assert re.findall(r"^## (\S+)", page, re.MULTILINE) == list(GROUPS)
    assert "`execute(context, handle, args)`" in page
    assert "`cpu = delegraph_cpu.aot.partitioner:cpu_partitioner` in `delegraph-cpu`" in page


def test_every_command_has_its_section(made: dict[str, str]) -> None:
    page = made["reference/cli.md"]
    for name in commands_of(command_parser())[0]:
        assert f"\n### delegraph {name}\n" in page
    assert "\n### delegraph plugins doctor\n" in page
    assert "| `-o m.pte, --output m.pte` | where to write the program (required) |" in page
    assert r"'lora\_\*=adapter,\*=base'" in page  # as it is written, not as Markdown


# ---- commands in the documents ---------------------------------------------------------------------

COMMAND = re.compile(r"(?:^|[`(]|^    )(delegraph (?:[a-z]\S*)(?: [^`#\n]*)?)", re.MULTILINE)


def commands_of(parser: argparse.ArgumentParser) -> list[Mapping[str, argparse.ArgumentParser]]:
    return [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def options_of(words: list[str]) -> set[str]:
    """The options that the command named by the first words has, in the shape in which documents write them."""
    parser = command_parser()
    for word in words:
        chosen = [
            a.choices[word] for a in parser._actions if isinstance(a, argparse._SubParsersAction) and word in a.choices
        ]
        if not chosen:
            break
        parser = chosen[0]
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_that_the_page_names(page: Path) -> None:
    for command in COMMAND.findall(page.read_text("utf-8")):
        words = re.split(r"[;&|]| {3,}|(?<=--run) ", command)[0].split()[1:]  # what is behind `--run` is the kit's
        named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert named <= options_of(words), command


def test_examples_of_options_are_options() -> None:
    """Who copies `npu{optimize=size}` from a help text, a docstring or a page gets what it says, and no error."""
    helps = [parser.format_help() for parser in commands_of(command_parser())[0].values()]
    docstrings = [str(function.__doc__) for function in (delegraph.lower, delegraph.quantize, delegraph.compare)]
    texts = " ".join([*helps, *docstrings, *(page.read_text("utf-8") for page in PAGES)])
    found = set(re.findall(r"\b(?:npu|dsp)\{[^}…]+\}", re.sub(r"\s+", " ", texts)))
    assert found >= {"npu{optimize=size}", "npu{recipe=int16x8}"}
    registry = PluginRegistry.discover()
    for text in found:
        spec = plugin_spec(text)
        assert isinstance(spec, PluginSpec)
        group = "quantizers" if "recipe" in spec.options else "partitioners"
        assert registry.create(group, spec.name, spec.options)


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda picture: picture.name)
def test_drawings_have_both_themes(picture: Path) -> None:
    """A logo has a ground of its own; all else follows the reader's theme."""
    text = picture.read_text("utf-8")
    ElementTree.fromstring(text)
    assert picture.name == "logo.svg" or re.search(r"prefers-color-scheme: ?dark", text)
