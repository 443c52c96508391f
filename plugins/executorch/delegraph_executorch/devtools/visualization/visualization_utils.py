"""What opened programs in Google's Model Explorer (`executorch.devtools.visualization.visualization_utils`): refused.

Model Explorer is a program of its own, which reads exported programs from files.
"""

from __future__ import annotations

from typing import Any, NoReturn

from delegraph.errors import NotSupported

__all__ = [
    "ModelExplorerServer",
    "SingletonModelExplorerServer",
    "visualize",
    "visualize_graph",
    "visualize_model_explorer",
    "visualize_with_clusters",
]

_INSTEAD = (
    "torch.export.save(exported_program, 'model.pt2'), and `model-explorer model.pt2` opens it (pip install"
    " ai-edge-model-explorer); as text, print(delegraph.aot.program_text(exported_program)), and `delegraph inspect"
    " model.pte` for a program file"
)


def _refuse(what: str) -> NoReturn:
    raise NotSupported(f"{what}: nothing here opens Model Explorer; what to do: {_INSTEAD}")


class ModelExplorerServer:
    """Raises `NotSupported`."""

    def __init__(self, open_in_browser: bool = True, port: int | None = None) -> None:
        _refuse(type(self).__name__)


class SingletonModelExplorerServer(ModelExplorerServer):
    """Raises `NotSupported`."""


def visualize(visualizable: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises `NotSupported`."""
    _refuse("visualize")


def visualize_graph(graph_module: Any, exported_program: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises `NotSupported`."""
    _refuse("visualize_graph")


def visualize_model_explorer(**kwargs: Any) -> NoReturn:
    """Raises `NotSupported`."""
    _refuse("visualize_model_explorer")


def visualize_with_clusters(exported_program: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises `NotSupported`."""
    _refuse("visualize_with_clusters")
