"""Offers -> loaded plug-ins: who is meant by a name, loaded once, when it is used.

Never fatal at discovery, always fatal at use: a broken plug-in costs nobody but those who ask for it. A name that two
distributions offer is refused unless the user says which is meant. Plug-ins registered in the process go before
installed ones.
"""

from __future__ import annotations

import os
import warnings
from _thread import RLock, allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from delegraph.errors import (
    FOREIGN,
    DelegraphError,
    PluginConflict,
    PluginError,
    PluginLoadError,
    PluginNotFound,
    PluginWarning,
    UnknownOption,
    cause_of,
    restated,
)
from delegraph.logs import Logger
from delegraph.plugins.discovery import Offer, Selection, did_you_mean, full_id, normalised, scan
from delegraph.plugins.factory import make
from delegraph.plugins.hookspecs import group_named
from delegraph.plugins.loader import adopt, adopt_product, failure, import_offer

if TYPE_CHECKING:
    from delegraph.plugins.tools import Tools

__all__ = ["IN_PROCESS", "PluginRegistry", "default_registry", "use_registry"]

_log = Logger(__name__)

IN_PROCESS = "in-process"
"""Stands for the distribution of a plug-in that was registered by `PluginRegistry.register`."""

_TAKEN_ELSEWHERE = {
    "delegraph.partitioners": "\n  options of the half that runs are given at load:"
    " delegraph.load(…, backend_options=…) or `delegraph run --backend-options`"
}
"""The likely meaning of an option that a plug-in of the group does not have, in words."""


class PluginRegistry:
    """Offers by group and name, and the objects behind those that were asked for. Safe to use from several threads.

    Groups are named with or without `delegraph.`. An empty registry, `PluginRegistry()`, offers only what is
    registered in it.
    """

    def __init__(self, offers: Iterable[Offer] = (), prefer: Mapping[str, str] | None = None) -> None:
        self._prefer = {full_id(name): distribution for name, distribution in (prefer or {}).items()}
        self._offers = tuple(offers)
        self._explicit: dict[tuple[str, str], object] = {}
        self._loaded: dict[Offer, object] = {}
        self._failed: dict[Offer, PluginLoadError] = {}
        self._loading: set[Offer] = set()
        self._tools: Tools | None = None
        self._lock = allocate_lock()
        self._locks: dict[Offer, RLock] = {}

    @classmethod
    def discover(
        cls,
        prefer: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        path: Sequence[str] | None = None,
    ) -> PluginRegistry:
        """The plug-ins installed on `path` (`sys.path`), as the environment variables of `discovery` select them.

        `prefer` says which distribution is meant where two offer one name: `{"backends:Npu": "acme-npu"}`.
        Imports no plug-in. Raises `PluginNotFound` if a variable or `prefer` names a missing plug-in.
        """
        selection = Selection.from_environment(os.environ if environ is None else environ, prefer)
        start = perf_counter()
        offers = selection.apply(scan(path))
        distributions = len({offer.distribution for offer in offers})
        _log.debug(
            "found %d plug-ins of %d distributions in %.3f s", len(offers), distributions, perf_counter() - start
        )
        return cls(offers, selection.prefer)

    def __deepcopy__(self, memo: dict[int, object]) -> PluginRegistry:
        return self  # the installed plug-ins are the same in each copy

    def preferring(self, prefer: Mapping[str, str]) -> PluginRegistry:
        """This registry, with more preferences that go before its own; a plug-in that either loads, both have.

        Raises `PluginNotFound` if `prefer` names a missing plug-in.
        """
        added = {full_id(name): distribution for name, distribution in prefer.items()}
        if problems := Selection(prefer=added).unknown(self._offers):
            raise PluginNotFound("; ".join(problems) + "; see `delegraph plugins list`")
        from copy import copy

        registry = copy(self)
        registry._prefer = {**self._prefer, **added}
        registry._tools = None
        return registry

    # ---- offers ----------------------------------------------------------------------------------------

    def offers(self, group: str | None = None) -> tuple[Offer, ...]:
        """Every offer (of `group`), those registered in the process first."""
        group_name = group and group_named(group).name
        known = (*(_in_process(*key, obj) for key, obj in self._explicit.items()), *self._offers)
        return tuple(offer for offer in known if group_name in (None, offer.group))

    def names(self, group: str) -> tuple[str, ...]:
        """The names that `group` offers, sorted."""
        return tuple(sorted({offer.name for offer in self.offers(group)}))

    def find(self, group: str, name: str) -> Offer:
        """The offer that `name` means. Raises `PluginNotFound` or `PluginConflict`."""
        matches = [offer for offer in self.offers(group) if offer.name == name]
        if not matches:
            raise self._not_found(group_named(group).name, name)
        if matches[0].distribution == IN_PROCESS:
            return matches[0]
        preferred = self._prefer.get(f"{matches[0].group}:{name}")
        if preferred is not None:
            matches = [offer for offer in matches if normalised(offer.distribution) == normalised(preferred)]
        if len(matches) > 1:
            raise _conflict(matches)
        return matches[0]

    # ---- loaded objects --------------------------------------------------------------------------------

    def load(self, group: str, name: str) -> Any:
        """The validated object behind `name`: always the same one, imported at the first call.

        Raises `PluginNotFound`, `PluginConflict`, `PluginLoadError` or `PluginVersionError`; a failure is remembered.
        """
        offer = self.find(group, name)
        if offer.distribution == IN_PROCESS:
            return self._explicit[offer.group, name]
        if offer not in self._loaded:
            self._load(offer)
        return self._loaded[offer]

    def load_all(self, group: str) -> tuple[dict[str, Any], list[PluginError]]:
        """Every plug-in of `group` that loads, by name, and why the others do not: for those who name none."""
        loaded: dict[str, Any] = {}
        broken: list[PluginError] = []
        for name in self.names(group):
            try:
                loaded[name] = self.load(group, name)
            except PluginError as error:
                broken.append(error)
        return loaded, broken

    def create(self, group: str, name: str, options: Mapping[str, object] | None = None) -> Any:
        """The product of the factory behind `name` with `options`.

        Raises as `load`, `UnknownOption` for an option that it does not have, `InvalidArgument` for one of another
        type, those of Delegraph's errors that the factory raises and that are not about plug-ins, and `PluginLoadError`
        if it raises any other or makes something that does not fit.
        """
        offer, factory = self.find(group, name), self.load(group, name)
        try:
            instance = make(factory, options or {}, f"{group_named(group).title} {name!r}")
        except UnknownOption as error:
            raise restated(error, f"{error}{_TAKEN_ELSEWHERE.get(offer.group, '')}") from None
        except PluginLoadError:
            raise
        except FOREIGN as error:
            if isinstance(error, DelegraphError) and not isinstance(error, PluginError):  # of the user's request
                raise restated(error, f"{offer.distribution}: {error}") from error
            remedy = f"check the options {dict(options)}" if options else f"report it to {offer.distribution}'s authors"
            raise failure(offer, f"its factory raised {cause_of(error)}", remedy) from error
        product = group_named(group).product
        return adopt_product(offer, product, instance) if product else instance

    def register(self, group: str, name: str, plugin: object) -> None:
        """Offer `plugin` in this process, before whatever is installed under that name.

        Raises `PluginLoadError` if it does not fit its group, `PluginConflict` if another one is registered already.
        """
        key = group_named(group).name, name
        known = self._explicit.get(key)
        if known is not None and (known is plugin or type(known) is plugin):
            return
        if known is not None:
            raise PluginConflict(f"{group}:{name} is registered in this process already, as {known!r}")
        adopted = adopt(_in_process(*key, plugin), plugin)
        with self._lock:  # a new dict, for other threads may be reading the old one
            self._explicit = {**self._explicit, key: adopted}
        if key[0] == "delegraph.plugins":
            self._tools = None

    def _load(self, offer: Offer) -> None:
        """Put the object into `_loaded`.

        Under a lock of this offer alone: a plug-in that uses the registry while it is imported must not wait for
        a thread that waits for that import.
        """
        with self._lock:
            lock = self._locks.setdefault(offer, RLock())
        with lock:
            if offer in self._loaded:
                return
            if offer in self._failed:
                known = self._failed[offer]
                raise restated(known, str(known)) from known.__cause__
            if offer in self._loading:  # the lock is re-entrant, so this is the thread that holds it
                raise failure(offer, "it asks for itself while it is being loaded", "its authors ask for it later")
            self._loading.add(offer)
            try:
                self._loaded[offer] = import_offer(offer)
            except PluginLoadError as error:
                self._failed[offer] = error
                raise
            finally:
                self._loading.discard(offer)

    def _not_found(self, group: str, name: str) -> PluginNotFound:
        names = self.names(group)
        elsewhere = [offer for offer in self._offers if offer.name == name]
        also = "".join(f"; {offer.provider} has that name in {offer.group}" for offer in elsewhere)
        return PluginNotFound(
            f"no installed distribution offers {name!r} in {group}{also or _meant(name, names)}\n"
            f"  installed: {', '.join(names) or 'none'}\n"
            "  what to do: take a name that is installed, or install the distribution that offers this one, from where"
            " you have it: Delegraph's own are listed in its README; `delegraph plugins list` shows what is there"
        )

    # ---- tools -----------------------------------------------------------------------------------------

    def bound(
        self, group: str, plugin: object, hook: str, called: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """The callable for `plugin`'s `hook`, by position: its own method (or `called`, which stands for it), or that
        with the tools' wrappers around."""
        method: Callable[..., Any] = getattr(plugin, hook) if called is None else called
        tools = self._active_tools()
        if tools is None or not tools.wraps(hook):
            return method
        return tools.bound(self._offer_of(group, plugin), hook, method)

    def is_wrapped(self, hook: str) -> bool:
        """Whether some tool wraps `hook`."""
        tools = self._active_tools()
        return tools is not None and tools.wraps(hook)

    def notify(self, event: str, **details: object) -> None:
        """Tell the tools that watch `event`. One that raises is reported by a `PluginWarning` and harms nobody."""
        tools = self._active_tools()
        if tools is not None:
            tools.notify(event, details)

    def _active_tools(self) -> Tools | None:
        """The tools, loaded when they are first needed; None where there are none, and then pluggy stays unloaded."""
        if self._tools is None and self.offers("plugins"):
            try:
                from delegraph.plugins.tools import load_tools
            except ModuleNotFoundError as absent:
                names = ", ".join(self.names("plugins"))
                told = f"going on without the tools {names}: {absent.name} is not installed"
                remedy = "pip install 'delegraph[tools]'"
                warnings.warn(f"{told}: {remedy}", PluginWarning, stacklevel=1)  # this line, so that it is shown once
                return None
            self._tools = load_tools(self._load_tools)
        return self._tools

    def _load_tools(self) -> tuple[Mapping[Offer, object], Sequence[PluginError]]:
        loaded, broken = self.load_all("plugins")
        return {self.find("plugins", name): tool for name, tool in loaded.items()}, broken

    def _offer_of(self, group: str, plugin: object) -> Offer:
        known = {id(obj): offer for offer, obj in dict(self._loaded).items()}
        known |= {id(obj): _in_process(*key, obj) for key, obj in self._explicit.items()}
        return known.get(id(plugin)) or _in_process(group_named(group).name, type(plugin).__name__, plugin)


def _in_process(group: str, name: str, plugin: object) -> Offer:
    kind = plugin if hasattr(plugin, "__qualname__") else type(plugin)
    return Offer(group, name, f"{kind.__module__}:{kind.__qualname__}", IN_PROCESS, "0")


def _conflict(rivals: Sequence[Offer]) -> PluginConflict:
    from delegraph.plugins.inventory import metadata_violation

    broken = [metadata_violation(offer) for offer in rivals]
    meant = next((offer for offer, violation in zip(rivals, broken, strict=True) if not violation), rivals[0])
    providers = "; ".join(
        f"{offer.provider} ({offer.value}, in {offer.location}{violation and f'; broken: {violation}'})"
        for offer, violation in zip(rivals, broken, strict=True)
    )
    if len({normalised(offer.distribution) for offer in rivals}) == 1:
        return PluginConflict(
            f"{meant.distribution} is installed more than once, and its copies disagree on {meant.id}: {providers}\n"
            "  what to do: remove the stale metadata, or uninstall it until pip finds it no more, and install it again"
        )
    return PluginConflict(
        f"{len(rivals)} distributions offer {meant.id}: {providers}\n"
        f'  what to do: say which is meant, prefer={{"{meant.id}": "{meant.distribution}"}} or'
        f" DELEGRAPH_PREFER={meant.id}={meant.distribution}, or uninstall the other"
    )


_default: PluginRegistry | None = None
_default_lock = allocate_lock()


def default_registry() -> PluginRegistry:
    """The process's registry of the installed plug-ins, made when it is first asked for. Raises as `discover`."""
    global _default  # noqa: PLW0603 - the one process-wide registry, replaceable by `use_registry`
    with _default_lock:
        if _default is None:
            _default = PluginRegistry.discover()
        return _default


@contextmanager
def use_registry(registry: PluginRegistry) -> Iterator[PluginRegistry]:
    """Make `registry` the process's registry for the length of a `with` block, in all threads."""
    global _default  # noqa: PLW0603
    with _default_lock:
        before, _default = _default, registry
    try:
        yield registry
    finally:
        with _default_lock:
            _default = before


def _meant(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'family:x'?` for `x`; or as `did_you_mean`."""
    members = [known for known in names if known.partition(":")[2] == name]
    return f"; did you mean {' or '.join(map(repr, members))}?" if members else did_you_mean(name, names)
