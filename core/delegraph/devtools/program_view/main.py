"""Model Explorer's adapter for `.pte`: `model-explorer m.pte --extensions=delegraph.devtools.program_view`.

Model Explorer imports the module `main` of a package that it is given, and finds the classes in it.
"""

from __future__ import annotations

import os
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs, graph_builder

from delegraph.devtools.program_view.explorer import graph_json
from delegraph.devtools.program_view.view import view

__all__ = ["ProgramAdapter"]


class ProgramAdapter(Adapter):  # type: ignore[misc]  # Model Explorer is not typed
    """Reads programs, ExecuTorch's as well: a graph for each method."""

    metadata = AdapterMetadata(
        id="delegraph_pte",
        name="Delegraph",
        description="Programs that Delegraph or ExecuTorch lowered: modules, lines, delegates through and through",
        source_repo="https://github.com/delegraph/delegraph",
        fileExts=["pte"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """The graphs of the program at `model_path`; raises as `view`."""
        (shown,) = view(os.fspath(model_path)).programs
        return {"graphs": [graph_builder.Graph(**graph_json(graph)) for graph in shown.graphs]}
