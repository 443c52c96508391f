"""Model Explorer itself reads programs through our adapter, and finds in them what its own classes have."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import delegraph
from delegraph.devtools import view

pytestmark = pytest.mark.view


@pytest.fixture
def explorer() -> Any:
    """Its package; `make test-view` brings it."""
    return pytest.importorskip("model_explorer", reason="Model Explorer is not here: run `make test-view`")


@pytest.fixture
def pte(tmp_path: Path) -> Path:
    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())).eval()
    path = tmp_path / "m.pte"
    delegraph.lower(model, (torch.ones(1, 4),), backends=["cpu"]).save(path)
    return path


def test_the_adapter_is_found_and_converts(explorer: Any, pte: Path) -> None:
    from model_explorer.extension_manager import ExtensionManager

    manager = ExtensionManager(["delegraph.devtools.program_view"])
    manager.load_extensions()
    command = {"cmdId": "convert", "extensionId": "delegraph_pte", "modelPath": str(pte), "settings": {}}
    (graph,) = manager.run_cmd(command)["graphs"]
    assert graph["id"] == "forward"
    (shown,) = view(pte).programs
    assert [node["id"] for node in graph["nodes"]] == [node.id for node in shown.graphs[0].nodes]
    assert any(node["namespace"] == "0" for node in graph["nodes"])


def test_fields_are_those_of_its_classes(explorer: Any, pte: Path, tmp_path: Path) -> None:
    """A field that it renames would be dropped without a word."""
    from model_explorer import graph_builder, node_data_builder

    files = view(pte).save_for_explorer(tmp_path)
    content, numbers = (json.loads(path.read_text("utf-8")) for path in files)
    (graph,) = content["graphs"]
    node = max(graph["nodes"], key=lambda node: len(node["incomingEdges"]) + len(node["attrs"]))
    for told, kind in (
        (content, graph_builder.GraphCollection),
        (graph, graph_builder.Graph),
        (node, graph_builder.GraphNode),
        (node["incomingEdges"][0], graph_builder.IncomingEdge),
        (node["attrs"][0], graph_builder.KeyValue),
        (node["outputsMetadata"][0], graph_builder.MetadataItem),
        (node["style"], graph_builder.GraphNodeStyle),
        (numbers["forward"], node_data_builder.GraphNodeData),
        (numbers["forward"]["gradient"][0], node_data_builder.GradientItem),
        (next(iter(numbers["forward"]["results"].values())), node_data_builder.NodeDataResult),
    ):
        assert told.keys() <= {field.name for field in dataclasses.fields(kind)}
