"""What ExecuTorch drew in Model Explorer says how to draw it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delegraph.errors import NotSupported
from delegraph_executorch.devtools import visualization

CALLS: dict[str, Callable[[], object]] = {
    "visualize": lambda: visualization.visualize(None),
    "visualize_graph": lambda: visualization.visualize_graph(None, None),
    "visualize_model_explorer": visualization.visualize_model_explorer,
    "visualize_with_clusters": lambda: visualization.visualize_with_clusters(None, "model.json"),
    "ModelExplorerServer": visualization.ModelExplorerServer,
    "SingletonModelExplorerServer": visualization.SingletonModelExplorerServer,
}


@pytest.mark.parametrize("name", CALLS)
def test_model_explorer_is_opened_by_hand(name: str) -> None:
    with pytest.raises(NotSupported, match=rf"{name}: .*torch.export.save\(exported_program"):
        CALLS[name]()
