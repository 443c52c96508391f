"""A program, or two beside each other, to look at: `view("m.pte")` in a notebook, or saved as one HTML file."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeAlias

from delegraph.devtools.program_model.reading import read_model
from delegraph.devtools.program_view.explorer import collection, node_data
from delegraph.devtools.program_view.graph import view_graphs
from delegraph.devtools.program_view.overlays import Ranked, byte_overlay, make_overlay, ranked
from delegraph.devtools.program_view.page import Shown, page
from delegraph.errors import InvalidArgument
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.files.atomic_file import write_atomically
from delegraph.program.schema import Program

__all__ = ["ProgramView", "view"]

Numbers: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"
"""JSON that a tool printed, parsed or in a file; or a number for each module, line or node."""


@dataclass(frozen=True)
class ProgramView:
    """Programs as graphs, with what was measured. A notebook shows it."""

    programs: tuple[Shown, ...]
    start: str = ""

    def to_html(self) -> str:
        """One page, which needs nothing beside it. Raises `NotSupported` without `delegraph[view]`."""
        return page(self.programs, self.start)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all. Raises `NotSupported` and `OSError`."""
        write_atomically(path, [self.to_html().encode()])

    def show(self) -> Path:
        """Open the page in a browser, if there is one here; returns where it lies. Raises as `save`."""
        path = Path(mkdtemp(prefix="delegraph-view-"), "view.html")
        self.save(path)
        if sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
            webbrowser.open(path.as_uri())  # without a display it would take one for terminals
        return path

    def save_for_explorer(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write what Model Explorer opens into `folder`, which is made if need be: the graphs of each program, and node
        data for each overlay. Returns the files, those of graphs first."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        graphs, numbers = [], []
        for number, shown in enumerate(self.programs):
            stem = f"{number}-{Path(shown.name).stem}" if len(self.programs) > 1 else Path(shown.name).stem
            graphs.append((Path(folder, f"{stem}.json"), collection(shown)))
            numbers += [(Path(folder, f"{stem}.{o.name}.json"), node_data(shown, o)) for o in shown.overlays]
        for path, content in (*graphs, *numbers):
            write_atomically(path, [json.dumps(content).encode()])
        return [path for path, _ in (*graphs, *numbers)]

    def largest(self, name: str, most: int = 5) -> list[Ranked]:
        """The nodes of the first program with the largest numbers in the overlay `name`, which it must have."""
        first = self.programs[0]
        overlays = {overlay.name: overlay for overlay in first.overlays}
        if name not in overlays:
            raise InvalidArgument(f"there is no overlay {name!r} here; there are {', '.join(overlays)}")
        return ranked(overlays[name], first.graphs, most)

    def __repr__(self) -> str:
        nodes = [sum(len(graph.nodes) for graph in shown.graphs) for shown in self.programs]
        told = (f"{shown.name}: {count} nodes" for shown, count in zip(self.programs, nodes, strict=True))
        return f"ProgramView({', '.join(told)})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the page in a frame of its own, which cannot reach the notebook."""
        frame = 'sandbox="allow-scripts" width="100%" height="640" style="border: 1px solid #8888"'
        return f'<iframe {frame} title="{escape(repr(self))}" srcdoc="{escape(self.to_html())}"></iframe>'


def view(
    *sources: object,
    names: Sequence[str] | None = None,
    overlays: Mapping[str, Numbers | Sequence[Numbers]] | None = None,
    start: str = "",
    data_path: Sequence[str] | None = None,
    plugins: PluginRegistry | None = None,
) -> ProgramView:
    """A view of a program; of several, side by side, such as one before and after it was quantized.

    Each of `sources` is a `.pte`'s path, its bytes, what `delegraph.lower` or `delegraph.load` gave, or a `Program`.
    `names` are shown for them, else their files' names. `overlays` have numbers, by "time", "bytes" and "error": for
    all sources, or a list with those of each; bytes are known without. `start` is the one that is shown first. The
    numbers are what `delegraph profile --json`, `delegraph quantize --json` and `delegraph debug --json` print,
    parsed or in a file, or a mapping of modules, lines or nodes to seconds, bytes, or shares of the result. External
    weights are in `data_path`. Nothing of the programs runs.

    Raises `AccessFailed`, `InvalidProgram`, `InvalidExternalData`; `InvalidArgument` for another source or overlay.
    """
    if not sources:
        raise InvalidArgument("there is nothing to view: give a .pte, or what `delegraph.lower` gave")
    given_names = list(names or (_name(source, place) for place, source in enumerate(sources)))
    if len(given_names) != len(sources):
        raise InvalidArgument(f"there are {len(sources)} programs, and {len(given_names)} names")
    shown = tuple(
        _shown(source, name, _of(overlays or {}, place, len(sources)), data_path, plugins or default_registry())
        for place, (source, name) in enumerate(zip(sources, given_names, strict=True))
    )
    known = {overlay.name for own in shown for overlay in own.overlays}
    if start and start not in known:
        raise InvalidArgument(
            f"there is nothing measured for {start!r}; there are numbers for {', '.join(sorted(known))}"
        )
    return ProgramView(shown, start)


def _of(overlays: Mapping[str, Numbers | Sequence[Numbers]], place: int, programs: int) -> dict[str, Numbers]:
    """The numbers for the program at `place`."""
    own: dict[str, Numbers] = {}
    for name, numbers in overlays.items():
        if isinstance(numbers, list | tuple):
            if len(numbers) != programs:
                raise InvalidArgument(
                    f"{len(numbers)} overlays {name!r} for {programs} programs: give one for each, or one"
                )
            own[name] = numbers[place]
        else:
            own[name] = numbers  # type: ignore[assignment]
    return own


def _shown(
    source: object,
    name: str,
    overlays: Mapping[str, Numbers],
    data_path: Sequence[str] | None,
    plugins: PluginRegistry,
) -> Shown:
    from delegraph.runtime.program import Program as LoadedProgram
    from delegraph.runtime.program import Verification

    loaded = _loaded(source)
    if not isinstance(loaded, LoadedProgram):
        loaded = LoadedProgram.load(loaded, verification=Verification.Minimal, data_path=data_path or None)
    graphs = view_graphs(loaded.records, read_model(loaded.records, loaded.named_data, plugins))
    made = {own: make_overlay(own, _numbers(own, numbers), graphs) for own, numbers in overlays.items()}
    return Shown(name, graphs, tuple({"bytes": byte_overlay(graphs), **made}.values()))


def _loaded(source: object) -> Any:
    """The loaded program itself, or a source that one can be made of."""
    from delegraph.runtime.program import Program as LoadedProgram

    if isinstance(source, str | os.PathLike | Program | LoadedProgram | bytes | bytearray | memoryview):
        return source
    if isinstance(program := getattr(source, "program", None), LoadedProgram):  # a module that `delegraph.load` gave
        return program
    if hasattr(source, "__bytes__"):  # what `delegraph.lower` gave
        return bytes(source)
    buffer = getattr(source, "buffer", None)  # a program manager
    if isinstance(buffer, bytes | bytearray | memoryview):
        return buffer
    raise InvalidArgument(
        f"a {type(source).__name__} is no program: give a .pte, its bytes, or what `delegraph.lower` gave"
    )


def _name(source: object, place: int) -> str:
    return os.path.basename(os.fspath(source)) if isinstance(source, str | os.PathLike) else f"program {place + 1}"


def _numbers(name: str, numbers: Numbers) -> Any:
    if isinstance(numbers, Mapping):
        return dict(numbers)
    try:
        return json.loads(Path(numbers).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the overlay {name!r}: {os.fspath(numbers)!r} is no JSON: {error}") from error
