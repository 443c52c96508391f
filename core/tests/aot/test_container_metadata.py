"""The structure of arguments and results, in containers that any runtime can build."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from delegraph.aot.emission.container_metadata import dump_spec

Point = namedtuple("Point", ["x", "y"])


class Box:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    """A class as a library registers it: without a name to be written under, its field names as context."""
    pytree.register_pytree_node(Box, lambda box: ([box.a, box.b], ["a", "b"]), lambda values, _: Box(*values))


def shape(value: Any) -> Any:
    """The containers of the dumped structure, nested; leaves are None."""

    def read(node: dict[str, Any]) -> Any:
        if node["type"] is None:
            return None
        children = [read(child) for child in node["children_spec"]]
        if node["type"] == "builtins.dict":
            return dict(zip(json.loads(node["context"]), children, strict=True))
        return {"builtins.tuple": tuple, "builtins.list": list}[node["type"]](children)

    protocol, root = json.loads(dump_spec(pytree.tree_structure(value)))
    assert protocol == 1
    return read(root)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, None),
        ((1, [2, {"a": 3}]), (None, [None, {"a": None}])),
        (torch.max(torch.ones(2, 2), 0), (None, None)),
        (Point(1, 2), (None, None)),
        (OrderedDict(b=1, a=(2, 3)), {"b": None, "a": (None, None)}),
        (Box(1, [2]), {"a": None, "b": [None]}),
        ({}, {}),
    ],
)
def test_containers_are_plain(value: Any, expected: Any) -> None:
    assert shape(value) == expected


def test_no_structure_is_an_empty_text() -> None:
    assert dump_spec(None) == ""


def test_a_method_has_those_of_its_arguments_and_result(lower_model) -> None:
    class Model(nn.Module):
        def forward(self, x, *, scale):
            return torch.topk(x * scale, 2)

    exported = torch.export.export(Model(), (torch.randn(4),), {"scale": torch.randn(4)})
    from delegraph.aot.emission.container_metadata import container_metadata

    metadata = container_metadata(exported)
    assert '"builtins.dict", "context": "[\\"scale\\"]"' in metadata.encoded_inp_str
    assert "return_types" not in metadata.encoded_out_str
