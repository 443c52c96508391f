"""ExecuTorch's module paths -> modules, for the import system. What is no file here is found here:

    delegraph_executorch.exir.scalar_type     a row of `paths.txt`: names that other modules have
    delegraph_executorch.backends.xnnpack     ExecuTorch's own module, from its wheel, under a second name
    delegraph_executorch.version              any other path: the wheel's source, its imports changed as by `port`, so
                                              that it works on the objects of this package

Where the wheel is not installed the last two raise an error that says what to install.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import PluginUnavailable
from delegraph_executorch.bridge.imports import INSTALL, executorch
from delegraph_executorch.path_table import BESIDE, PACKAGE, homes_in, rows

__all__ = ["NeedsWheel", "install_finders", "row_names", "wheel_names"]

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importing that takes longer than all of this

ROOT: Final = os.path.dirname(__file__)  # pathlib would be half of the time that importing this takes
_LOADER: Any = __spec__.loader  # of a folder, or of an archive that a program was packed into
PATHS: Final = rows(_LOADER.get_data(os.path.join(ROOT, "paths.txt")).decode("utf-8"))
FOUND: Final = {row[:end] for row in PATHS for end, letter in enumerate(f"{row}.") if letter == "."}
"""Paths in the table, and the packages that they are in."""
THEIRS: Final = ("backends.", "examples.", "export.recipe", "export.target_recipes", "export.types")
"""Where the paths begin of modules that stay ExecuTorch's own: its backends, and the recipes that these make."""
PASS_BASE: Final = "executorch.exir.pass_base"
"""The module of the classes that the wheel's passes are derived from."""


class NeedsWheel(PluginUnavailable, ModuleNotFoundError):
    """A module or a name is ExecuTorch's own, and its wheel is not installed."""


class _AtTheFront:
    """Asked before all others: a folder of a path here, of tests for instance, or of the wheel, is not the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if fullname == PASS_BASE:
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and spec.origin is not None:
                spec.loader = _OfPasses(fullname, spec.origin)
            return spec
        if package != PACKAGE:
            return None
        if name.startswith(THEIRS):
            return ModuleSpec(fullname, _Theirs()) if _wheel() else None
        own = PathFinder.find_spec(fullname, [os.path.join(ROOT, *name.split(".")[:-1])])
        if own is not None and own.origin is not None:
            return own
        if name in FOUND:
            return ModuleSpec(fullname, _Row() if name in PATHS else None, is_package=True)
        spec = _in_the_wheel(fullname, name) if _wheel() else None
        return spec if spec is not None and spec.origin is not None and spec.submodule_search_locations == [] else None


class _BehindAll:
    """Asked after all others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        return _in_the_wheel(fullname, name) if package == PACKAGE else None


def install_finders() -> None:
    """Let the import system ask here for what this package has no file of."""
    sys.meta_path.insert(0, _AtTheFront())
    sys.meta_path.append(_BehindAll())
    if PASS_BASE in sys.modules:
        _let_passes_see_our_graphs(sys.modules[PASS_BASE])


class _SecondName(Loader):
    """Has another module stand under a name, and leaves it as it is."""

    own_spec: ModuleSpec | None = None

    def stand_in(self, module: ModuleType) -> ModuleType:
        """`module`, whose spec is kept."""
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self.own_spec is not None:
            module.__spec__ = self.own_spec  # which the import system has just replaced by that of the second name


# ---- rows ------------------------------------------------------------------------------------------


def row_names(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package with a row: each name is looked up when it is first used."""
    path = module.removeprefix(f"{PACKAGE}.")
    homes = {here: (home, there) for home, names in homes_in(PATHS[path]) for there, here in names}
    if module in sys.modules:
        sys.modules[module].__class__ = _Names

    def get(name: str) -> Any:
        if name == "__all__":
            return [*homes]
        if name not in homes:
            return _submodule(module, name)
        home, there = homes[name]
        value = vars(sys.modules[module])[name] = getattr(
            _beside(path) if home == BESIDE else import_module(home), there
        )
        return value

    return get, lambda: [*homes]


def _submodule(package: str, name: str) -> ModuleType:
    """`exir.memory` of `from executorch import exir`, whose packages import all of their modules."""
    if not name.startswith("__"):
        with suppress(ModuleNotFoundError):
            return import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


class _Names(ModuleType):
    """A module with a row, whose names hide modules in it that are called the same, as in ExecuTorch."""

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, ModuleType) or name not in self.__dict__["__dir__"]():
            super().__setattr__(name, value)


class _Row(_SecondName):
    """The module of a row: one of names that others have, or, where the row says no names, another module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        (home, names), *_ = homes_in(PATHS[spec.name.removeprefix(f"{PACKAGE}.")])
        if not names:
            return self.stand_in(import_module(home))
        module = _Names(spec.name, f"ExecuTorch's `{spec.name.removeprefix('delegraph_')}`.")
        module.__dict__["__getattr__"], module.__dict__["__dir__"] = row_names(spec.name)
        return module


# ---- ExecuTorch's own ------------------------------------------------------------------------------


class _Theirs(_SecondName):
    """A module of the wheel as it is."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = executorch(spec.name.removeprefix(f"{PACKAGE}."))
        return self.stand_in(module)

    def get_code(self, fullname: str) -> CodeType:
        """For `python -m`: the wheel's code."""
        from importlib.util import find_spec

        theirs = f"executorch.{fullname.removeprefix(f'{PACKAGE}.')}"
        loader: Any = getattr(find_spec(theirs), "loader", None)
        code: CodeType = loader.get_code(theirs)
        return code


class _Ported(SourceFileLoader):
    """A module of the wheel on this package. No bytecode is written: it would be taken for that of the wheel's own."""

    def get_code(self, fullname: str) -> CodeType:
        from importlib.util import decode_source

        from delegraph_executorch.port import ported

        code: CodeType = compile(ported(decode_source(self.get_data(self.path))), self.path, "exec", dont_inherit=True)
        return code


class _OfPasses(SourceFileLoader):
    """The wheel's module `PASS_BASE`: passes derived from its classes take our graphs as well."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _let_passes_see_our_graphs(module)


def _let_passes_see_our_graphs(pass_base: ModuleType) -> None:
    from delegraph_executorch.bridge.passes import see_our_graphs

    see_our_graphs(pass_base)


@cache
def _wheel() -> tuple[str, ...]:
    """The folders of the package `executorch`, which is not imported for that; none where it is not installed."""
    spec = PathFinder.find_spec("executorch")
    return tuple((spec and spec.submodule_search_locations) or ())


def _in_the_wheel(fullname: str, name: str) -> ModuleSpec | None:
    """Where a module of the wheel comes from; None if it has none of that name. Raises `NeedsWheel`."""
    if not _wheel():
        raise NeedsWheel(f"{fullname}: ExecuTorch is not installed; what to do: {INSTALL}", name=fullname)
    *packages, last = name.split(".")
    for folder in (os.path.join(root, *packages) for root in _wheel()):
        place = os.path.join(folder, last)
        for file, children in ((os.path.join(place, "__init__.py"), []), (f"{place}.py", None)):
            if os.path.isfile(file):
                spec = ModuleSpec(fullname, _Ported(fullname, file), origin=file)
                spec.has_location = True
                spec.submodule_search_locations = children
                return spec
        if os.path.isdir(place):
            return ModuleSpec(fullname, None, is_package=True)
        if os.path.isdir(folder) and any(
            file.endswith(".so") for file in os.listdir(folder) if file.split(".")[0] == last
        ):
            return ModuleSpec(fullname, _Theirs())
    return None


@cache
def _beside(name: str) -> ModuleType:
    """The wheel's module beside the one that is here, under the same name. Raises `NeedsWheel`."""
    from importlib.util import module_from_spec

    spec = _in_the_wheel(f"{PACKAGE}.{name}", name)
    if spec is None or spec.loader is None:
        raise NeedsWheel(f"the installed wheel of ExecuTorch has no module executorch.{name}; what to do: {INSTALL}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel_names(module: str, *names: str) -> Callable[[str], Any]:
    """`__getattr__` of a module that takes these names from the wheel's module of its path.

    It raises `NeedsWheel` for one of them where there is no wheel, and AttributeError for any other name.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(_beside(module.removeprefix(f"{PACKAGE}.")), name)

    return get
