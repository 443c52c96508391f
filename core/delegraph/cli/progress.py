"""The stages of a lowering, or the steps of a longer command -> how far it is, on standard error: in one place on a
terminal, else a line for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delegraph.aot.progress import ProgressBar

if TYPE_CHECKING:
    from delegraph.aot.stage import Lowering, Stage

__all__ = ["Progress", "shown_progress", "shown_steps"]


class Progress:
    """Watches the stages. `seconds` are by stage, all methods together."""

    def __init__(self, bar: ProgressBar | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._bar = bar

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        """Show the step that runs now."""
        if self._bar is not None:
            self._bar.started(stage, methods, lowering, remaining)

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        """Add up the seconds, and show them."""
        self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds
        if self._bar is not None:
            self._bar.done(stage, methods, lowering, seconds)
        else:
            of = f" of {', '.join(methods)}" if stage.by_method else ""
            print(f"{stage.name}{of}: {seconds:.2f} s", file=sys.stderr)


@contextmanager
def shown_progress(stages: Sequence[Stage] | None = None) -> Iterator[Progress]:
    """A watcher for the lowering in the `with` block, of these stages or all."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from delegraph.aot.pipeline import ALL

    with ProgressBar(stages or ALL) as bar:
        yield Progress(bar)


@contextmanager
def shown_steps() -> Iterator[Callable[[str], object]]:
    """A function that is told the current step."""
    if not sys.stderr.isatty():
        yield lambda step: print(step, file=sys.stderr)
        return
    from rich.console import Console

    with Console(stderr=True).status("exporting") as status:
        yield status.update
