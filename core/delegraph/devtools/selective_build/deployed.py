"""The kernels, backends and programs in a deployable -> loaded programs. Runs in the deployable, on NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import get_data
from typing import TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.interfaces.kernel import KernelLibrary, kernel_key_text
from delegraph.plugins.discovery import Offer
from delegraph.plugins.registry import PluginRegistry
from delegraph.runtime.data_loader import Source
from delegraph.runtime.external_data import DataSources
from delegraph.runtime.module import Module
from delegraph.runtime.program import Program
from delegraph.runtime.resolution.environment import Environment

__all__ = ["Deployed", "OrderOfNames", "only"]

OrderOfNames: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of kernel libraries in order of preference; or by operator, where "*" stands for all other operators."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """The kernels, backends and programs of a deployable.

    `offers` are its kernel libraries and backends, `kernels` is the libraries' order of preference; `programs` are the
    names of those that lie in `package`.
    """

    package: str
    offers: tuple[Offer, ...]
    kernels: OrderOfNames = ()
    programs: tuple[str, ...] = ()

    def open(self, program: str = "", data_path: DataSources | None = None) -> Program:
        """A program by its name here, or else by its path; without a name, the only one that is here.

        Installed plug-ins do not matter. Raises `InvalidArgument` if none is named and there is not exactly one, else
        as `Program.load`.
        """
        if not program and len(self.programs) != 1:
            raise InvalidArgument(f"say which program: {', '.join(self.programs) or 'the path of a .pte'}")
        name = program or self.programs[0]
        source: Source = name
        if name in self.programs:
            source = get_data(self.package, f"programs/{name}.pte") or b""
        return Program.load(source, data_path=data_path, environment=self.environment())

    def load(self, program: str = "", *, method: str = "forward", data_path: DataSources | None = None) -> Module:
        """A callable of the model's own arguments, as `delegraph.load` gives; programs are named as in `open`."""
        return Module(self.open(program, data_path), method)

    def environment(self) -> Environment:
        """The environment with the kernels and backends of the deployable, and no others."""
        return Environment(kernels=self.kernels, plugins=PluginRegistry(self.offers))


def only(library: KernelLibrary, kept: Mapping[str, Sequence[str]]) -> KernelLibrary:
    """A library of the same name with the kernels `kept`, whose modules are imported: keys (`default` for the
    fallback) by operator."""
    chosen = KernelLibrary(library.name)
    for kernel in library.registered():
        key = "default" if kernel.key is None else kernel_key_text(kernel.key)
        if key in kept.get(kernel.op, ()):
            chosen.add(kernel)
    return chosen
