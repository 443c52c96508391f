"""A kernel library's entry point -> which module, when imported, registers which kernel.

Told by loading the library in a process of its own, where `KernelLibrary` notes whose import is under way: a function
does not tell, for factories define kernels in other modules than those that call them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Final

from delegraph.errors import PluginLoadError
from delegraph.interfaces.kernel import Kernel, KernelLibrary, kernel_key_text
from delegraph.plugins.discovery import Offer
from delegraph.plugins.loader import reference
from delegraph.plugins.registry import PluginRegistry

__all__ = ["FALLBACK", "Registrations", "registrations"]

FALLBACK: Final = "default"
"""The key of a kernel that takes whatever no partial kernel does, as ExecuTorch writes it."""


@dataclass(frozen=True, slots=True)
class Registrations:
    """`home` is (module, name) of the library object: the place to import it from without all of its kernels.

    `modules` is by (operator, key). Both are empty for a library that is no plain `KernelLibrary`: one that makes its
    kernels as they are asked for cannot be taken apart.
    """

    home: tuple[str, str] | None
    modules: dict[tuple[str, str], str]


def registrations(offer: Offer) -> Registrations:
    """Load the library behind `offer` elsewhere. Raises `PluginLoadError`."""
    here = os.path.abspath(__file__)
    for _ in __name__.split("."):
        here = os.path.dirname(here)
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps({"path": sys.path, "offer": asdict(offer)}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))},
    )
    if done.returncode:
        raise PluginLoadError(f"{offer} cannot be loaded in a process of its own:\n{done.stderr.strip()}")
    answer = json.loads(done.stdout)
    modules = {(op, key): module for op, key, module in answer["kernels"]}
    if answer["home"] is None or "__main__" in modules.values():  # registered after the imports, by whatever calls it
        return Registrations(None, {})
    return Registrations(tuple(answer["home"]), modules)


# ---- in the worker -------------------------------------------------------------------------------------


def _serve() -> None:
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a plug-in prints goes to stderr
    offer = Offer(**request["offer"])
    kernels, homes = _watch()
    library = PluginRegistry([offer]).load(offer.group, offer.name)
    answer: dict[str, Any] = {"home": None, "kernels": []}
    if type(library) is KernelLibrary:
        list(library)  # imports what registers kernels when they are looked up
        answer["home"] = _home(library, homes.get(id(library), ""), offer)
        answer["kernels"] = [(*slot, module) for (owner, *slot), module in kernels.items() if owner == id(library)]
    json.dump(answer, answers)
    answers.flush()


def _watch() -> tuple[dict[tuple[int, str, str], str], dict[int, str]]:
    """Dicts that fill up as libraries do: (library, operator, key) -> module, and library -> the module it is of."""
    kernels: dict[tuple[int, str, str], str] = {}
    homes: dict[int, str] = {}
    add, init = KernelLibrary.add, KernelLibrary.__init__

    def watched_add(self: KernelLibrary, kernel: Kernel) -> None:
        add(self, kernel)
        key = FALLBACK if kernel.key is None else kernel_key_text(kernel.key)
        kernels[id(self), kernel.op, key] = _importing()

    def watched_init(self: KernelLibrary, name: str, modules: Mapping[str, Iterable[str]] | None = None) -> None:
        init(self, name, modules)
        homes[id(self)] = _importing()

    KernelLibrary.add, KernelLibrary.__init__ = watched_add, watched_init  # type: ignore[method-assign]
    return kernels, homes


def _importing() -> str:
    """The module whose body is being executed, innermost first."""
    return next(str(frame.f_globals["__name__"]) for frame in _frames() if frame.f_code.co_name == "<module>")


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _home(library: KernelLibrary, made_in: str, offer: Offer) -> tuple[str, str] | None:
    """Where the library can be imported from: the module that made it, else the one that the entry point names."""
    entry, attribute = reference(offer.value) or ("", "")
    attributes: dict[str, object] = vars(sys.modules[made_in]) if made_in in sys.modules else {}
    name = next((name for name, value in attributes.items() if value is library), "")
    if name:
        return made_in, name
    return (entry, attribute) if vars(sys.modules[entry]).get(attribute) is library else None


if __name__ == "__main__":
    _serve()
