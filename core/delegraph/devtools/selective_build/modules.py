"""Modules -> all modules that they import, as files, and the packages of others that they need. Imports nothing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path

from delegraph.devtools.selective_build.distributions import Distributions
from delegraph.devtools.selective_build.imports import Import, When, bound_names, imports_of
from delegraph.errors import PluginLoadError

__all__ = ["Closure", "ModuleFile", "ModuleGraph", "find_module", "parents"]


@dataclass(frozen=True)
class ModuleFile:
    """A module as it lies on disk. `path` is None for a namespace package, which is nothing but directories."""

    name: str
    path: Path | None
    is_package: bool

    @property
    def archive_path(self) -> str:
        """Where it belongs in an archive: its path from the top-level package on."""
        file = self.path.name if self.path is not None else "__init__.py"
        return "/".join([*(self.name.split(".") if self.is_package else self.name.split(".")[:-1]), file])

    @property
    def is_source(self) -> bool:
        """Whether it is Python, not native code."""
        return self.path is not None and self.path.suffix == ".py"

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Its import statements; none in native code."""
        return imports_of(self._tree, self.name, self.is_package)

    @cached_property
    def bound(self) -> frozenset[str]:
        """The names that it has once it is imported, submodules that it imports from itself not counted."""
        others = (statement for statement in self.imports if statement.module != self.name)
        return bound_names(self._tree, others)

    @cached_property
    def promised(self) -> Mapping[str, Import]:
        """Names that only type checkers see imported: those that a lazy package's `__getattr__` gives."""
        return {statement.bound: statement for statement in self.imports if statement.when is When.NEVER}

    @cached_property
    def _tree(self) -> ast.Module:
        source = self.path.read_bytes() if self.path is not None and self.is_source else b""
        return ast.parse(source, str(self.path))


@dataclass(frozen=True, slots=True)
class Closure:
    """Modules by name; `foreign` has the modules of others and which distribution imports them; `taken` the packages
    of which something takes a name that is no submodule."""

    modules: dict[str, ModuleFile] = field(default_factory=dict)
    foreign: set[tuple[str, str]] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)


class ModuleGraph:
    """The imports between the modules of the host and its plug-ins.

    An import that runs with its module is followed, and so is one in a function, unless it is `unneeded` or leads to
    a package that the distribution may not have, by `allows(package, distribution)`: then it is of a feature left out.
    `emptied` packages are taken to import nothing.
    """

    def __init__(
        self,
        distributions: Distributions,
        allows: Callable[[str, str], bool],
        unneeded: frozenset[str] = frozenset(),
        emptied: frozenset[str] = frozenset(),
    ) -> None:
        self._distributions = distributions
        self._allows = allows
        self._unneeded = unneeded
        self._emptied = emptied

    def closure(self, roots: Iterable[str], *, also_lazy: bool = True) -> Closure:
        """Everything that `roots` import. Raises `PluginLoadError` for a module that is not there."""
        closure = Closure()
        pending = [ancestor for root in roots for ancestor in (*parents(root), root)]
        while pending:
            name = pending.pop()
            if name in closure.modules:
                continue
            module = closure.modules[name] = self._module(name)
            if name in self._emptied:
                continue
            for statement in module.imports:
                if statement.when is When.ALWAYS or (also_lazy and statement.when is When.PERHAPS):
                    pending += self._followed(statement, name, closure)
        return closure

    def _followed(self, statement: Import, importer: str, closure: Closure) -> Iterator[str]:
        owner = self._distributions.of(importer)
        own = owner.name if owner else ""
        lazy = statement.when is When.PERHAPS
        for target in self._targets(statement, closure):
            imported = self._distributions.of(target)
            if imported is not None and imported.needs_host:
                if not lazy or not self._is_left_out(target, own):
                    yield from (*parents(target), target)
            elif target.partition(".")[0] not in sys.stdlib_module_names and (
                not lazy or self._allows(target.partition(".")[0], own)
            ):
                closure.foreign.add((target.partition(".")[0], own))

    def _targets(self, statement: Import, closure: Closure) -> Iterator[str]:
        yield statement.module
        module = None if statement.name is None else find_module(statement.module)
        if statement.name is None or module is None or not module.is_package:
            return
        submodule = f"{statement.module}.{statement.name}"
        if statement.name not in module.bound and find_module(submodule) is not None:
            yield submodule
            return
        closure.taken.add(statement.module)
        if statement.name in module.promised:
            yield from self._targets(module.promised[statement.name], closure)

    def _is_left_out(self, target: str, own: str) -> bool:
        if target in self._unneeded:
            return True
        foreign = self.closure([target], also_lazy=False).foreign
        return not all(self._allows(package, owner) for package, owner in foreign)

    def _module(self, name: str) -> ModuleFile:
        module = find_module(name)
        if module is None:
            raise PluginLoadError(f"the module {name!r} is imported, but it is not installed")
        return module


@cache
def find_module(name: str) -> ModuleFile | None:
    """The module `name`, found without importing its packages."""
    search: list[str] | None = None
    spec: ModuleSpec | None = None
    for ancestor in (*parents(name), name):
        finders = (finder.find_spec(ancestor, search) for finder in sys.meta_path)
        spec = next((candidate for candidate in finders if candidate is not None), None)
        if spec is None:
            return None
        search = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if search is None and ancestor != name:
            return None
    assert spec is not None
    path = Path(spec.origin) if spec.has_location and spec.origin else None
    return ModuleFile(name, path, search is not None)


def parents(name: str) -> list[str]:
    """The packages that `name` lies in, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]
