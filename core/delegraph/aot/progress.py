"""The stages of a lowering -> a progress bar on standard error, drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from delegraph.aot.stage import Lowering, Stage, StageWatcher
from delegraph.errors import LoweringError

__all__ = ["ProgressBar", "shown_progress"]


@contextmanager
def shown_progress(progress: bool | StageWatcher, stages: Sequence[Stage]) -> Iterator[Sequence[StageWatcher]]:
    """Whom to tell of each stage: nobody for False, a bar over `stages` for True, or the watcher that was given."""
    if not isinstance(progress, bool):
        yield (progress,)
    elif not progress:
        yield ()
    else:
        with ProgressBar(stages) as bar:
            yield (bar,)


class ProgressBar:
    """Shows which stage is running, for which method, and how many are done. A context manager."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            raise LoweringError("a progress bar needs rich: `pip install rich`") from None
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)
        )
        self._names = [stage.name for stage in stages]
        self._task = self._bar.add_task("lowering", total=len(stages))

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._bar.stop()

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        """Name the stage that runs now."""
        of = f" of {', '.join(methods)}" if stage.by_method else ""
        self._bar.update(self._task, description=f"{stage.name}{of}", completed=self._names.index(stage.name))

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        """Move on."""
        self._bar.update(self._task, completed=self._names.index(stage.name) + 1)
