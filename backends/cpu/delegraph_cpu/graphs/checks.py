"""The bytes of a stranger's ONNX graph -> its messages, in which there is nothing that lowering does not write.

Operators, their attributes and what these may be are a closed set (`operators.py`, `attributes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Final, TypeAlias

from delegraph.interfaces import Buffer
from delegraph_cpu.blob import ITEM_SIZES
from delegraph_cpu.graphs.attributes import DIVIDED
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.operators import Operator, operator
from delegraph_cpu.graphs.wire import decoded, refused

__all__ = ["ELEMENT_TYPES", "EXTERNAL", "OPSETS", "OperatorOf", "checked_graph", "operator_of", "operator_of_any"]

ELEMENT_TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
    16: "bfloat16",
}  # fmt: skip
"""The numbers of `TensorProto.DataType` in `onnx.proto`."""

OPSETS: Final = range(20, 24)
"""Versions of ONNX's operators in graphs that lowering has written."""
_OTHER_OPSETS: Final = range(1, 6)
_DOMAINS: Final = frozenset(
    {
        *("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training", "com.microsoft"),
        *("com.microsoft.experimental", "com.microsoft.nchwc", "com.ms.internal.nhwc", "org.pytorch.aten"),
    }
)
"""Those that onnxruntime lists in every graph, and names of `""`."""
_IR_VERSIONS: Final = range(8, 13)
_MOST_DIMS: Final = 64
EXTERNAL: Final = 1
"""A value of `TensorProto.DataLocation`."""
_VALUES: Final = {
    "float": (1, "f"), "int": (2, "i"), "string": (3, "s"), "tensor": (4, "t"), "graph": (5, "g"),
    "floats": (6, "floats"), "ints": (7, "ints"), "strings": (8, "strings"),
}  # fmt: skip
"""Types of attributes -> their number in `AttributeProto.AttributeType`, and the field that has the value."""
_LISTS: Final = ("floats", "ints", "strings")

OperatorOf: TypeAlias = Callable[[str, str], "Operator | None"]
"""Domain, name -> the operator; None: its node is not looked at further. Raises for one that must not be there."""


def checked_graph(graph: Buffer, rule: OperatorOf) -> Message:
    """The ModelProto in `graph`, all of whose content lowering writes. Only initializers of its main graph have their
    data elsewhere, wherever they say. Change none of the messages in it in place.

    Raises `DelegateInvalidCompatibility` for any other graph.
    """
    model = decoded(graph)
    if model.get("ir_version", 0) not in _IR_VERSIONS or "graph" not in model:
        raise refused(f"its graph has version {model.get('ir_version')} of ONNX's format, or is missing")
    for opset in model.get("opset_import", ()):
        domain, version = opset.get("domain", ""), opset.get("version", 0)
        if version not in (_OTHER_OPSETS if domain in _DOMAINS else () if domain else OPSETS):
            raise refused(f"its graph imports version {version} of the operators {domain!r:.80}")
    _Checks(rule).graph(model["graph"], is_main=True)
    return model


def operator_of_any(domain: str, name: str) -> Operator | None:
    """For graphs that onnxruntime has optimised: it has many operators of its own there, none of which names a file
    but one, whose attribute does."""
    if name == "EPContext":
        raise refused("an EPContext node, which names a file")
    return operator(domain, name)


def operator_of(domain: str, name: str) -> Operator:
    """The operator of a graph that lowering writes."""
    known = operator(domain, name)
    if known is None:
        raise refused(f"it has an operator {name!r:.80} of {domain!r:.80}, which lowering does not write")
    return known


class _Checks:
    """`done` are messages that were looked at, by identity: small ones that recur are one object."""

    def __init__(self, rule: OperatorOf) -> None:
        self.rule = rule
        self.done: set[object] = set()

    def graph(self, graph: Message, *, is_main: bool) -> None:
        for node in graph.get("node", ()):
            self.node(node)
        for tensor in graph.get("initializer", ()):
            _check_tensor(tensor, may_refer=is_main)
        for side in ("input", "output", "value_info"):
            for value in graph.get(side, ()):
                kind = value.get("type")
                if kind is not None and id(kind) not in self.done:
                    _check_type(value.get("name", ""), kind)
                    self.done.add(id(kind))

    def node(self, node: Message) -> None:
        name = node.get("op_type", "")
        operator = self.rule(node.get("domain", ""), name)
        attributes = node.get("attribute", ())
        if operator is None:
            for attribute in attributes:
                self.inside(attribute)
            return
        inputs, outputs = len(node.get("input", ())), len(node.get("output", ()))
        (least, most), (fewest, many) = operator.inputs, operator.outputs
        if not (least <= inputs <= most and fewest <= outputs <= many):
            raise refused(f"a node {name} has {inputs} inputs and {outputs} outputs")
        key = (id(operator), *map(id, attributes))
        if key not in self.done:
            for attribute in attributes:
                self.attribute(name, operator, attribute)
            _check_together(name, operator, attributes)
            self.done.add(key)

    def attribute(self, node: str, operator: Operator, attribute: Message) -> None:
        name = attribute.get("name", "")
        rule = operator.attributes.get(name)
        if rule is None:
            raise refused(f"a node {node} has an attribute {name!r:.80}, which lowering does not write")
        number, field = _VALUES[rule.type]
        is_list = rule.type in _LISTS
        allowed, least = {"name", "type", field}, 2 if is_list else 3  # an empty list is not written
        if attribute.get("type") != number or not (attribute.keys() <= allowed and len(attribute) >= least):
            raise refused(f"attribute {name!r} of a node {node} is not of type {rule.type}")
        values = attribute.get(field, []) if is_list else [attribute[field]]
        if rule.values is not None and not all(value in rule.values for value in values):
            raise refused(f"attribute {name!r} of a node {node} is {values!r:.80}, beyond what lowering writes")
        self.inside(attribute)

    def inside(self, attribute: Message) -> None:
        """Look at the tensor, or at the body, that an attribute is."""
        if "t" in attribute:
            _check_tensor(attribute["t"], may_refer=False)
        if "g" in attribute:
            self.graph(attribute["g"], is_main=False)


def _check_together(node: str, operator: Operator, attributes: Iterable[Message]) -> None:
    """Raise unless required attributes are there, each attribute once, and multiples are multiples."""
    values = {attribute["name"]: attribute.get("i", 0) for attribute in attributes}
    if len(values) < len(list(attributes)) or not operator.required <= values.keys():
        raise refused(f"a node {node} has an attribute twice, or lacks one of {', '.join(sorted(operator.required))}")
    for multiple, divisor in DIVIDED:
        if divisor in values and values.get(multiple, 0) % values[divisor]:
            raise refused(f"{multiple} of a node {node} is {values[multiple]}, no multiple of {divisor}")


def _check_tensor(tensor: Message, *, may_refer: bool) -> None:
    """Raise unless the tensor has a type and a shape, and as many bytes as it takes, or may have them elsewhere."""
    name, dims = tensor.get("name", ""), tensor.get("dims", [])
    dtype = ELEMENT_TYPES.get(tensor.get("data_type", 0))
    if dtype is None or not _is_shape(dims):
        raise refused(f"tensor {name!r:.80} has element type {tensor.get('data_type')}, or dims {dims!r:.80}")
    if "external_data" in tensor or "data_location" in tensor:
        if not may_refer or "raw_data" in tensor or tensor.get("data_location") != EXTERNAL:
            raise refused(f"tensor {name!r:.80} refers to a file, and is not one of its weights")
    elif len(tensor.get("raw_data", b"")) != prod(dims) * ITEM_SIZES[dtype]:
        raise refused(f"tensor {name!r:.80} has other data than its type and dims {dims!r:.80} say")


def _check_type(name: str, kind: Message) -> None:
    tensor = kind.get("tensor_type", {})
    dims = tensor.get("shape", {}).get("dim", ())
    sizes = [dim["dim_value"] for dim in dims if "dim_value" in dim]
    if tensor.get("elem_type") not in ELEMENT_TYPES or not _is_shape(sizes) or any(len(dim) > 1 for dim in dims):
        raise refused(f"value {name!r:.80} is no tensor of a type and sizes that lowering writes")


def _is_shape(dims: Iterable[int]) -> bool:
    sizes = list(dims)
    return len(sizes) <= _MOST_DIMS and min(sizes, default=0) >= 0 and prod(filter(None, sizes)) < _MOST_ELEMENTS


_MOST_ELEMENTS: Final = 2**59
"""With 16 bytes each, no size in bytes has more than 63 bits."""
