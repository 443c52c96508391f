"""The tool SampleName for Delegraph: it measures how long each backend runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from threading import Lock
from time import perf_counter

from delegraph.plugins import Offer, hookimpl

__all__ = ["SampleName"]


class SampleName:
    """Is on where it is installed; `default_registry().load("plugins", "sample_name")` gives this object."""

    def __init__(self) -> None:
        self.loaded = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = Lock()  # several threads may execute at one time

    @hookimpl(wrapper=True)
    def execute(self, plugin: Offer) -> Generator[None, None, None]:
        start = perf_counter()
        try:
            return (yield)  # what the backend raises comes out here, and goes on
        finally:
            with self._lock:
                self.seconds[plugin.name] += perf_counter() - start

    @hookimpl
    def method_loaded(self) -> None:
        self.loaded += 1
