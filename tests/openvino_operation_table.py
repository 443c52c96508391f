"""OpenVINO's own descriptions of its operations -> `delegraph_openvino/ir/operations.py`: attributes by version."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from openvino.utils.node_factory import NodeFactory

from delegraph_openvino.ir import operations

__all__ = ["FILE", "renewed"]

FILE: Final = Path(operations.__file__)
_START: Final = '_TABLE: Final = """\\\n'
_OPSETS: Final = range(1, 17)
_IN_PYTHON: Final = {"PReLU": "PRelu", "ReLU": "Relu", "SoftMax": "Softmax"}
"""Names in an IR -> other names in Python."""
_WRITTEN: Final = {
    "Const": "element_type:type shape:shape offset:int size:int",
    "Parameter": "shape:shape element_type:type",
}
"""Operations that have other attributes in an IR than in Python."""
_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "text", list: "ints"}
_KINDS_BY_NAME: Final = {
    "activations": "texts", "activations_alpha": "floats", "activations_beta": "floats", "destination_type": "type",
    "output_type": "type", "index_element_type": "type", "count_element_type": "type", "cube_coeff": "float",
}  # fmt: skip


def renewed() -> str:
    """The module's text, with a table made anew."""
    start, end = FILE.read_text("utf-8").split(_START, 1)
    return start + _START + "".join(f"{line}\n" for line in _lines()) + end[end.index('"""') :]


def _lines() -> Iterator[str]:
    for name in sorted(operations.ARITIES):
        if name in _WRITTEN:
            yield f"{name} opset1 {_WRITTEN[name]}"
            continue
        for version, node in sorted(_versions(name).items(), key=lambda item: int(item[0].removeprefix("opset"))):
            attributes = {} if name in ("If", "Result") else node.get_attributes()
            told = [f"{key}:{_kind(key, value)}" for key, value in sorted(attributes.items())]
            yield textwrap.fill(" ".join([name, version, *told]), 120, subsequent_indent="    ")


def _versions(name: str) -> dict[str, Any]:
    """The opsets in which the operation is another -> one of it."""
    nodes = {}
    for opset in _OPSETS:
        try:
            node = NodeFactory(f"opset{opset}").create(_IN_PYTHON.get(name, name))
        except (RuntimeError, UserWarning):  # not in this opset
            continue
        nodes[node.get_type_info().version_id] = node
    return nodes


def _kind(name: str, value: object) -> str:
    return _KINDS_BY_NAME.get(name) or _KINDS[type(value)]
