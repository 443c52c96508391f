"""Choice -> Contents: the files of a deployable, its requirements, and each distribution's share in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from delegraph.devtools.selective_build.choice import Choice, ChosenLibrary
from delegraph.devtools.selective_build.deployed import OrderOfNames
from delegraph.devtools.selective_build.distributions import PURE, Distribution, Distributions
from delegraph.devtools.selective_build.modules import Closure, ModuleFile, ModuleGraph, find_module, parents
from delegraph.devtools.selective_build.needs import ProgramNeeds
from delegraph.errors import PluginLoadError
from delegraph.plugins.discovery import HOST, Offer, normalised
from delegraph.plugins.loader import reference
from delegraph.program.dtypes import is_extended

__all__ = ["PACKAGE", "Contents", "Share", "collect", "wheel_tag"]

PACKAGE: Final = "delegraph_selected"
"""The package in a deployable that `delegraph select` writes."""

_LOAD: Final = ("delegraph", "delegraph.runtime", "delegraph.runtime.module")
"""The modules of `delegraph.load`."""

_EMPTY: Final = b'"""Emptied by `delegraph select`: its modules are here as far as programs need them."""\n'


@dataclass(frozen=True, slots=True)
class Share:
    """The modules that a distribution has on the runtime's side and elsewhere, and those of it in the deployable.

    Modules by name, with their bytes; `data` are other files, by archive path.
    """

    distribution: str
    version: str
    kept: Mapping[str, int]
    left_out: Mapping[str, int]
    data: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a deployable by archive path, and what the machine has to have besides."""

    files: dict[str, bytes]
    offers: tuple[Offer, ...]
    requirements: tuple[str, ...]
    requires_python: tuple[str, ...]
    licences: Mapping[str, bytes]
    tag: str
    shares: tuple[Share, ...]


def collect(
    choice: Choice,
    needs: Sequence[ProgramNeeds],
    launcher: str,
    programs: Mapping[str, bytes],
    identity: tuple[str, str],
) -> Contents:
    """Everything that runs `needs` on the kernels and backends of `choice`, with `programs` in it by name.

    `launcher` is the module whose `main(deployed)` runs a program; `identity` is the deployable's name and version.
    Raises a `PluginError` where a module or a distribution's metadata is not there.
    """
    find_module.cache_clear()  # what is installed may have changed since the last time
    distributions = Distributions([(_entry(offer)[0], offer.distribution) for offer in choice.offers])
    tree = _tree(choice, needs, launcher, distributions)
    generated = _Generated(choice, tree.emptied, identity)
    files = {
        **{module.archive_path: _read(module) for name, module in tree.closure.modules.items() if module.path},
        **{_initial(package): _EMPTY for package in tree.emptied},
    }
    owners = _owners(tree.closure, distributions)
    data = {owner.name: _data(modules) for owner, modules in owners if normalised(owner.name) != HOST}
    for own in data.values():
        files |= {path: place.read_bytes() for path, place in own.items()}
    files |= generated.files(launcher, tuple(programs))
    files |= {f"{PACKAGE}/programs/{name}.pte": content for name, content in programs.items()}
    vendored = [owner for owner, _ in owners]
    return Contents(
        files=dict(sorted(files.items())),
        offers=generated.offers,
        requirements=_requirements(tree.closure, distributions),
        requires_python=tuple(sorted({owner.requires_python for owner in vendored} - {""})),
        licences={f"{owner.name}/{name}": text for owner in vendored for name, text in owner.licences.items()},
        tag=wheel_tag(vendored, data),
        shares=tuple(_share(owner, modules, files, data.get(owner.name, {})) for owner, modules in owners),
    )


# ---- which modules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tree:
    closure: Closure
    emptied: frozenset[str]


def _tree(choice: Choice, needs: Sequence[ProgramNeeds], launcher: str, distributions: Distributions) -> _Tree:
    has_extended = any(is_extended(dtype) for program in needs for dtype in program.dtypes)
    allowed_to_host = {"numpy", "ml_dtypes"} if has_extended else {"numpy"}

    def allows(package: str, distribution: str) -> bool:
        """Whether a lazy import of `package` counts: it is declared, and not only there for dtypes that nobody has."""
        owner, imported = distributions.named(distribution), distributions.of(package)
        name = normalised(imported.name if imported is not None else package)
        if normalised(owner.name) == HOST:
            return package in allowed_to_host
        return name in owner.requirements and (has_extended or package != "ml_dtypes")

    external = any(program.has_external_data for program in needs)
    unneeded = frozenset[str]() if external else frozenset({"delegraph.program.flat_tensor"})
    emptied = _crowded_packages(choice.libraries, ModuleGraph(distributions, allows, unneeded))
    roots = {*_LOAD, launcher, f"{__package__}.deployed", *(module for module in _roots(choice))}
    while True:
        closure = ModuleGraph(distributions, allows, unneeded, emptied).closure(sorted(roots))
        if not closure.taken & emptied:
            return _Tree(closure, emptied & closure.modules.keys())
        emptied -= closure.taken


def _roots(choice: Choice) -> Iterator[str]:
    for library in choice.libraries:
        home = library.registrations.home
        yield from library.needed_modules
        yield home[0] if home is not None else _entry(library.offer)[0]
    for offer in choice.backends:
        yield _entry(offer)[0]


def _crowded_packages(libraries: Iterable[ChosenLibrary], graph: ModuleGraph) -> frozenset[str]:
    """Packages that would bring modules with kernels that nobody needs, and do nothing themselves that is needed."""
    crowded = set[str]()
    for library in libraries:
        if library.registrations.home is None:
            continue
        needed = {*library.needed_modules, library.registrations.home[0]}
        every = {*library.registrations.modules.values(), *needed}
        entry, home = _entry(library.offer)[0], library.registrations.home[0]
        for package in {parent for module in every for parent in parents(module)} - needed:
            # A library that imports modules when they are asked for has the names of those that nobody needs.
            names_all = package == entry and package in parents(home) and every != needed
            if names_all or (every - needed) & graph.closure([package], also_lazy=False).modules.keys():
                crowded.add(package)
    return frozenset(crowded)


def _entry(offer: Offer) -> tuple[str, str]:
    parts = reference(offer.value)
    if parts is None:
        raise PluginLoadError(f"{offer}: the entry point is malformed; it has to read module:attribute")
    return parts


# ---- files ---------------------------------------------------------------------------------------------


class _Generated:
    """The modules that are written anew: the libraries of selected kernels, and the package that knows them all."""

    def __init__(self, choice: Choice, emptied: frozenset[str], identity: tuple[str, str]) -> None:
        self._kernels: dict[str, str] = {}
        self._order = choice.order
        self.offers = (
            *(self._library(index, library, emptied, identity) for index, library in enumerate(choice.libraries)),
            *(_offered(offer, offer.value, identity) for offer in choice.backends),
        )

    def files(self, launcher: str, programs: tuple[str, ...]) -> dict[str, bytes]:
        main = (
            f"import sys\n\nfrom {PACKAGE} import deployed\nfrom {launcher} import main\n\nsys.exit(main(deployed))\n"
        )
        sources = {
            **self._kernels,
            f"{PACKAGE}/__init__.py": _package_source(self.offers, self._order, programs),
            f"{PACKAGE}/__main__.py": main,
        }
        return {path: text.encode() for path, text in sources.items()}

    def _library(self, index: int, library: ChosenLibrary, emptied: frozenset[str], identity: tuple[str, str]) -> Offer:
        """The offer of the selected kernels: in the place of the whole library where that place was emptied."""
        if library.registrations.home is None:
            return _offered(library.offer, library.offer.value, identity)
        module, attribute = _entry(library.offer)
        path = _initial(module)
        if module not in emptied or not attribute.isidentifier():
            module, attribute = f"{PACKAGE}.kernels_{index}", "library"
            path = f"{PACKAGE}/kernels_{index}.py"
        self._kernels[path] = _library_source(library, library.registrations.home, attribute)
        return _offered(library.offer, f"{module}:{attribute}", identity)


def _offered(offer: Offer, value: str, identity: tuple[str, str]) -> Offer:
    name, version = identity
    return replace(offer, value=value, distribution=name, version=version, location="")


def _library_source(library: ChosenLibrary, home: tuple[str, str], attribute: str) -> str:
    module, name = home
    lines = [
        f'"""Kernels of {library.offer.provider} that the programs call. Written by `delegraph select`."""',
        "",
        *(f"import {needed}" for needed in sorted(library.needed_modules)),
        f"from {__package__}.deployed import only",
        f"from {module} import {name} as _all",
        "",
        f"{attribute} = only(",
        "    _all,",
        "    {",
        *(f"        {operator!r}: {keys!r}," for operator, keys in library.kept.items()),
        "    },",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _package_source(offers: Iterable[Offer], order: OrderOfNames, programs: tuple[str, ...]) -> str:
    fields = ("group", "name", "value", "distribution", "version")
    lines = [
        '"""Put together by `delegraph select`."""',
        "",
        f"from {__package__}.deployed import Deployed",
        "from delegraph.plugins.discovery import Offer",
        "",
        "deployed = Deployed(",
        "    __name__,",
        "    (",
        *(f"        Offer({', '.join(repr(getattr(offer, field)) for field in fields)})," for offer in offers),
        "    ),",
        f"    {order!r},",
        f"    {programs!r},",
        ")",
        "load = deployed.load",
    ]
    return "\n".join(lines) + "\n"


def _initial(package: str) -> str:
    return f"{package.replace('.', '/')}/__init__.py"


def _read(module: ModuleFile) -> bytes:
    assert module.path is not None
    return module.path.read_bytes()


def _data(modules: Iterable[ModuleFile]) -> dict[str, Path]:
    """The files in the packages among `modules` that are not Python: tables, native libraries."""
    files = {}
    for package in modules:
        if package.is_package and package.path is not None:
            root = package.path.parent
            for place in _files(root):
                files["/".join([*package.name.split("."), *place.relative_to(root).parts])] = place
    return files


def _files(directory: Path) -> Iterator[Path]:
    for place in sorted(directory.iterdir()):
        if place.is_dir():
            if place.name != "__pycache__" and not (place / "__init__.py").exists():
                yield from _files(place)
        elif place.suffix not in (".py", ".pyc", ".pyi") and place.name != "py.typed":
            yield place


# ---- of whom -------------------------------------------------------------------------------------------


def _owners(closure: Closure, distributions: Distributions) -> list[tuple[Distribution, list[ModuleFile]]]:
    """The modules of each distribution, the host's first."""
    by_owner: dict[str, list[ModuleFile]] = {}
    for name, module in sorted(closure.modules.items()):
        owner = distributions.of(name)
        if owner is not None:
            by_owner.setdefault(owner.name, []).append(module)
    first = sorted(by_owner, key=lambda name: (normalised(name) != HOST, name))
    return [(distributions.named(name), by_owner[name]) for name in first]


def _requirements(closure: Closure, distributions: Distributions) -> tuple[str, ...]:
    """The requirements of the deployable: each foreign distribution, as the one that imports it declares it."""
    requirements = {distributions.named(HOST).requirements["numpy"]}
    for package, importer in closure.foreign:
        imported, owner = distributions.of(package), distributions.named(importer)
        name = normalised(imported.name if imported is not None else package)
        if name not in owner.requirements and imported is None:
            raise PluginLoadError(f"{owner.name} imports {package!r}, which no installed distribution has")
        requirements.add(owner.requirements.get(name) or owner.optional.get(name, name))
    return tuple(sorted(requirements))


def wheel_tag(vendored: Iterable[Distribution], data: Mapping[str, Mapping[str, Path]]) -> str:
    """The wheel tag: that of whoever brings native code. Raises `PluginLoadError` if two do not agree."""
    native = {
        owner.tag
        for owner in vendored
        for path in data.get(owner.name, ())
        if any(suffix in (".so", ".pyd", ".dll", ".dylib") for suffix in Path(path).suffixes)
    }
    if len(native) > 1:
        raise PluginLoadError(f"no machine runs all native code in one wheel: {', '.join(sorted(native))}")
    return next(iter(native), PURE)


def _share(
    owner: Distribution, modules: Sequence[ModuleFile], files: Mapping[str, bytes], data: Mapping[str, Path]
) -> Share:
    kept = {module.name: len(files[module.archive_path]) for module in modules if module.archive_path in files}
    every = {name: size for top in {module.name.partition(".")[0] for module in modules} for name, size in _all(top)}
    return Share(
        owner.name,
        owner.version,
        kept,
        left_out={name: size for name, size in sorted(every.items()) if name not in kept},
        data={path: len(files[path]) for path in data},
    )


def _all(top: str) -> Iterator[tuple[str, int]]:
    """Every Python module of a top-level package, with its bytes."""
    package = find_module(top)
    if package is None or package.path is None:
        return
    if not package.is_package:
        yield top, package.path.stat().st_size
        return
    root = package.path.parent
    for place in root.rglob("*.py"):
        parts = place.relative_to(root).with_suffix("").parts
        yield ".".join([top, *(parts[:-1] if parts[-1] == "__init__" else parts)]), place.stat().st_size
