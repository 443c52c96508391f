"""The registry with the tool that is proven, and without it: a tool must make no difference but its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from warnings import catch_warnings, simplefilter

from delegraph.errors import cause_of
from delegraph.plugins import PluginRegistry, PluginWarning, default_registry, use_registry
from delegraph_testkit.bench import Bench

__all__ = ["Refused", "assert_same_error", "assert_without_a_warning", "no_tool", "the_tool"]


class Refused(Exception):
    """Raised by a backend on purpose."""


@contextmanager
def the_tool(bench: Bench) -> Iterator[None]:
    """Of all tools the one that is proven is on, as if it had just been installed."""
    registry = default_registry()
    own = registry.find(bench.subject.group, bench.subject.name)
    with use_registry(PluginRegistry(offer for offer in registry.offers() if offer.group != own.group or offer == own)):
        yield


@contextmanager
def no_tool() -> Iterator[None]:
    """No tool is on."""
    offers = default_registry().offers()
    with use_registry(PluginRegistry(offer for offer in offers if offer.group != "delegraph.plugins")):
        yield


def assert_same_error(bench: Bench, what: str, call: Callable[[], object]) -> None:
    """Assert that `call` raises with the tool what it raises without it."""
    with no_tool():
        expected = _error_of(call)
    assert expected, f"{what} raises nothing"
    with the_tool(bench):
        actual = _error_of(call)
    assert actual == expected, f"{what} raises {actual or 'nothing'} where the tool is on, and {expected} without it"


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return cause_of(error)
    return ""


def assert_without_a_warning(bench: Bench, call: Callable[[], object]) -> None:
    """Assert that `call` with the tool gives no `PluginWarning`, which tells of a tool that raised at an event."""
    with the_tool(bench), catch_warnings(record=True) as heard:
        simplefilter("always", PluginWarning)
        call()
    told = [str(each.message) for each in heard if issubclass(each.category, PluginWarning)]
    assert not told, "; ".join(dict.fromkeys(told))
