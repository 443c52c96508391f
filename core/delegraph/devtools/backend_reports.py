"""Asking backends to tell a tracer what goes on in their delegates, by the option at load that has them do so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from delegraph.errors import InvalidArgument, PluginError
from delegraph.interfaces.backend import BackendInterface
from delegraph.plugins.registry import PluginRegistry
from delegraph.runtime.resolution.backend_options import BackendOptions, by_backend_id

__all__ = ["Report", "asked_to_report"]

Report: TypeAlias = Literal["profiling", "intermediate_outputs"]
"""The options: a tracer is told the time of each node, or its value."""


def asked_to_report(
    report: Report, backend_ids: Collection[str], options: BackendOptions, plugins: PluginRegistry
) -> Mapping[str, Mapping[str, bool | int | str]]:
    """`options`, and `report` for those of the backends that have such an option, unless `options` say otherwise.
    Raises `InvalidArgument` for options of a backend that is not among them."""
    asked = by_backend_id(options, backend_ids, plugins)
    for backend_id in sorted(backend_ids):
        try:
            backend: BackendInterface = plugins.load("delegraph.backends", backend_id)
            backend.get_option([report])
        except (InvalidArgument, PluginError):
            continue  # it reports always, or never; or loading it will say why it cannot
        asked[backend_id] = {report: True, **asked.get(backend_id, {})}
    return asked
