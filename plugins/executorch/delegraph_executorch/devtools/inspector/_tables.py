"""pandas and tabulate, which the extra `devtools` brings: imported when a table is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import IO, Any

__all__ = ["display_or_print_df", "pandas"]


def pandas() -> Any:
    """The module. Raises `ImportError` that says what to install."""
    return _of_the_extra("pandas")


def display_or_print_df(df: Any, file: IO[str] | None = None) -> None:
    """Show a table: in a notebook as one there, else as text on `file` (None: standard output)."""
    notebook = sys.modules.get("IPython")
    if notebook is not None and notebook.get_ipython() is not None and file is None:
        notebook.display.display(df)
        return
    print(_of_the_extra("tabulate").tabulate(df, headers="keys", tablefmt="fancy_grid"), file=file)


def _of_the_extra(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f'tables need {name}: pip install "delegraph-executorch[devtools]"') from error
