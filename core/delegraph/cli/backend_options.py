"""`--backend-options 'cpu{num_threads=1},npu{…}'` -> options by load, by backend."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

__all__ = ["add_argument", "parsed"]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--backend-options`."""
    parser.add_argument(
        "--backend-options",
        default="",
        metavar="NAMES",
        help="options of backends by load: 'cpu{num_threads=1}', with commas between backends",
    )


def parsed(text: str) -> dict[str, Mapping[str, bool | int | str]] | None:
    """The text as `delegraph.load(backend_options=…)` takes it. Raises `PluginError` for malformed text, and
    `argparse.ArgumentError` for a backend that is named twice."""
    from delegraph.plugins.plugin_spec import parse_plugins

    specs = parse_plugins(text)
    options = {spec.name: spec.options for spec in specs}
    if len(options) < len(specs):
        raise argparse.ArgumentError(None, f"--backend-options {text}: a backend is named twice")
    return options or None
