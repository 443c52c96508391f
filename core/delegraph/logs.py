"""Messages about the work of Delegraph -> Python's logging, by module: `delegraph.aot.pipeline` and so on.

Importing `logging` is a part of a start, and a process that never did so has no handler which could show a record:
there, nothing is logged. `DELEGRAPH_LOG` sets levels, and has records written to standard error:

    DELEGRAPH_LOG=info                                      everything of Delegraph
    DELEGRAPH_LOG=delegraph.aot=debug,delegraph_cpu=info    these loggers, and those below them
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["Logger", "write_to_stderr"]

VARIABLE: Final = "DELEGRAPH_LOG"
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Logger:
    """The logger called `name`, which costs next to nothing while nobody listens. Arguments go into the message as in
    `logging.Logger`, by `%`, where somebody does."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *args: object) -> None:
        """Log a detail: of a delegate, a plug-in, an entry of a cache."""
        self._log(_LEVELS["debug"], message, args)

    def info(self, message: str, *args: object) -> None:
        """Log a step that the caller asked for: a model lowered, a program loaded."""
        self._log(_LEVELS["info"], message, args)

    def _log(self, level: int, message: str, args: tuple[object, ...]) -> None:
        logging = sys.modules.get("logging")
        if logging is not None:
            logging.getLogger(self._name).log(level, message, *args, stacklevel=3)


def write_to_stderr(levels: str) -> None:
    """Set loggers to `levels`, the value of `DELEGRAPH_LOG`, and have them write to standard error, unless the program
    has handlers of its own. A part that names no level is left out, with a warning."""
    import logging

    for part in filter(None, map(str.strip, levels.split(","))):
        name, _, level = (text.strip() for text in part.rpartition("="))
        if level.lower() not in _LEVELS:
            _warn_of(part)
            continue
        logger = logging.getLogger(name or "delegraph")
        logger.setLevel(_LEVELS[level.lower()])
        top = logging.getLogger(logger.name.partition(".")[0])
        if not top.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(_FORMAT))
            handler.addFilter(lambda record: not logging.getLogger().handlers)
            top.addHandler(handler)


def _warn_of(part: str) -> None:
    import warnings

    levels = ", ".join(_LEVELS)
    told = f"{VARIABLE} has {part!r:.80}, which is left out: write a level ({levels}), or LOGGER=LEVEL"
    warnings.warn(told, RuntimeWarning, stacklevel=3)
