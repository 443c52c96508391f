"""Tells on standard error how far lowering is, as a tool that watches its stages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.plugins.tools import hookimpl

__all__ = ["Progress", "shown_progress"]

_NEXT: Final = {"export": "making the edge program", "edge": "partitioning and compiling", "delegate": "emitting"}


class Progress:
    """Prints each stage as it is done. `seconds` are by stage, all methods together."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._status: Any = None

    @hookimpl
    def lowering_stage_done(self, stage: str, method: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        print(f"{stage}{'' if method == '*' else f' of {method}'}: {seconds:.2f} s", file=sys.stderr)
        if self._status is not None:
            self._status.update(_NEXT.get(stage, "lowering"))

    @contextmanager
    def spinning(self) -> Iterator[None]:
        """With rich, and a terminal to draw on, show what is being done now."""
        try:
            from rich.console import Console
        except ImportError:
            yield
            return
        with Console(stderr=True).status("loading torch, exporting") as self._status:
            yield
        self._status = None


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show the stages of every lowering in the `with` block."""
    registry, progress = PluginRegistry.discover(), Progress()
    registry.register("plugins", "progress", progress)
    with ExitStack() as stack:
        stack.enter_context(use_registry(registry))
        stack.enter_context(progress.spinning())
        yield progress
