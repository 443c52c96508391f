"""An IR's xml -> its tree, in which there is nothing that lowering does not write; and the tree -> xml for the engine.

    xml ── read_ir ──> elements ── written_ir ──> xml of the same elements, in one form, without the dims of ports

A stranger's xml is not handed on. Each element stands where it belongs, with the attributes that it has and no others;
operations, their numbers of inputs and outputs and their attributes are a closed set (`operations.py`). Constants lie
within the bin. Layers stand in the order of their ids, each behind those that it reads.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from delegraph.interfaces import Buffer
from delegraph_openvino.blob import ELEMENT_TYPES, Weight, damaged
from delegraph_openvino.ir.attributes import is_size, is_value
from delegraph_openvino.ir.operations import ARITIES, operations

__all__ = ["read_ir", "written_ir"]

Element: TypeAlias = ElementTree.Element

_START: Final = '<?xml version="1.0"?>'
_BODIES: Final = ("then", "else")
"""The bodies of an If, the only operation that has some."""
_PRECISIONS: Final = frozenset(("BF16", "BOOL", "FP16", "FP32", "FP64", "I16", "I32", "I64", "I8", "U4", "U64", "U8"))
_DTYPES: Final = {name: dtype for dtype, name in ELEMENT_TYPES.items()} | {"u64": "int64", "f64": "int64"}
_DEEPEST: Final = 16
"""Bodies in bodies."""


def read_ir(xml: Buffer, bin_size: int) -> Element:
    """The root of an xml whose bin has `bin_size` bytes. Raises `DelegateInvalidCompatibility` for one that lowering
    does not write."""
    try:
        text = bytes(xml).decode()
        if not text.startswith(_START) or "<!" in text or text.count("<?") > 1:
            raise damaged("its xml has a document type, a comment or an instruction, or begins as none of ours")
        net = ElementTree.fromstring(text.removeprefix(_START))
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError) as error:
        raise damaged(f"its xml cannot be read: {error!s:.200}") from error
    _expect(net, "net", {"name", "version"}, ("layers", "edges", "rt_info"))
    if net.get("version") != "11":
        raise damaged(f"its xml has version {net.get('version')!r:.40}, not 11")
    _check_graph(net, bin_size, _DEEPEST)
    return net


def written_ir(net: Element) -> bytes:
    """The xml of a tree that `read_ir` gave, or of one changed since, for the engine: it computes sizes itself."""
    pieces = [_START, "\n"]
    _write(net, pieces, {})
    return "".join(pieces).encode()


def _write(element: Element, pieces: list[str], quoted: dict[str, str]) -> None:
    """Add the xml of an element; `quoted` are the values of attributes so far, which recur."""
    pieces.append(f"<{element.tag}")
    for name, value in element.items():
        text = quoted.get(value)
        if text is None:
            text = quoted[value] = quoteattr(value)
        pieces.append(f" {name}={text}")
    if element.tag == "port" or not len(element):
        pieces.append(" />")
        return
    pieces.append(">")
    for child in element:
        _write(child, pieces, quoted)
    pieces.append(f"</{element.tag}>")


# ---- elements -------------------------------------------------------------------------------------------------------


def _expect(element: Element, tag: str, attributes: set[str], children: tuple[str, ...] = ()) -> None:
    """Raise unless the element has these attributes, and no child and no text but these, each once and in order."""
    if element.tag != tag or set(element.keys()) != attributes:
        raise damaged(f"its xml has <{element.tag!s:.40} {dict(element.attrib)!r:.80}> where <{tag}> should be")
    if tuple(child.tag for child in element) != children:
        raise damaged(f"its xml has other elements in <{tag}> than {children}")


def _check_graph(graph: Element, bin_size: int, depth: int) -> None:
    """Look at the layers and edges of a net or of a body."""
    layers, edges, about = graph
    _expect(about, "rt_info", set())
    if not depth or layers.keys() or edges.keys():
        raise damaged("its bodies nest too deep, or its lists have attributes")
    ports = [_check_layer(layer, place, bin_size, depth) for place, layer in enumerate(layers)]
    _check_edges(edges, ports)


def _check_layer(layer: Element, place: int, bin_size: int, depth: int) -> tuple[int, int]:
    """How many inputs and outputs a layer has."""
    kind, version = layer.get("type", ""), layer.get("version", "")
    attributes = operations().get((kind, version))
    if attributes is None:
        raise damaged(f"it has an operation {kind!r:.40} of {version!r:.40}, which lowering does not write")
    told = set(layer.keys()) - {"output_names"}
    if layer.tag != "layer" or layer.get("id") != str(place) or told != {"id", "name", "type", "version"}:
        raise damaged(f"its layer {place} is <{layer.tag!s:.40} {dict(layer.attrib)!r:.120}>")
    parts = {part.tag: part for part in layer}
    if len(parts) < len(layer):
        raise damaged(f"its layer {place}, a {kind}, has an element twice")
    _check_data(kind, attributes, parts.pop("data", None), bin_size)
    inputs = _check_ports(parts.pop("input", None), 0)
    outputs = _check_ports(parts.pop("output", None), inputs)
    (least, most), (fewest, many) = ARITIES[kind]
    if not (least <= inputs <= most and fewest <= outputs <= many):
        raise damaged(f"its layer {place}, a {kind}, has {inputs} inputs and {outputs} outputs")
    if kind == "If":
        for which in _BODIES:
            _check_body(parts, which, inputs, outputs, bin_size, depth)
    if parts:
        raise damaged(f"its layer {place}, a {kind}, has an element {next(iter(parts))!r:.40}")
    return inputs, outputs


def _check_data(kind: str, attributes: dict[str, str], data: Element | None, bin_size: int) -> None:
    told = {} if data is None else dict(data.attrib)
    if told.keys() != attributes.keys() or (data is not None and len(data)):
        raise damaged(f"a {kind} has attributes {sorted(told)!r:.120}, not {sorted(attributes)!r:.120}")
    for name, text in told.items():
        if not is_value(name, attributes[name], text):
            raise damaged(f"{name} of a {kind} is {text!r:.80}, beyond what lowering writes")
    if kind == "Const":
        _check_constant(told, bin_size)


def _check_constant(told: dict[str, str], bin_size: int) -> None:
    """Raise unless a constant lies in the bin, and is as large as its shape says."""
    try:
        offset, size = int(told["offset"]), int(told["size"])
        shape = tuple(int(n) for n in told["shape"].split(",") if n.strip())
        whole = Weight(_DTYPES[told["element_type"]], shape).nbytes
    except (KeyError, ValueError) as error:
        raise damaged(f"a constant's description cannot be read, {type(error).__name__}: {error!s:.60}") from error
    if min(offset, size, *shape) < 0 or offset > bin_size - size or size not in (whole, whole or 1):
        raise damaged(f"a constant {told!r:.120} does not lie in {bin_size} bytes, or is not of its shape")


def _check_ports(ports: Element | None, first: int) -> int:
    """How many ports there are, whose ids count from `first`."""
    if ports is None:
        return 0
    if ports.keys():
        raise damaged("its xml has attributes of a list of ports")
    for place, port in enumerate(ports, first):
        told = dict(port.items())
        if port.tag != "port" or told.pop("id", "") != str(place) or told.pop("precision", "") not in _PRECISIONS:
            raise damaged(f"its xml has <{port.tag!s:.40} {dict(port.attrib)!r:.80}> where port {place} should be")
        told.pop("names", None)
        if told or not all(map(_is_dim, port)):
            raise damaged(f"its port {place} has other attributes, or other elements than the sizes of dims")
    return len(ports)


def _is_dim(dim: Element) -> bool:
    return dim.tag == "dim" and is_size(dim.text or "") and not len(dim) and not dim.keys()


def _check_edges(edges: Element, ports: list[tuple[int, int]]) -> None:
    """Raise unless each input reads one output, of a layer that stands before its own."""
    reads = set[tuple[int, int]]()
    for edge in edges:
        _expect(edge, "edge", _ENDS)
        source, out, reader, port = (_number(edge, name) for name in _EDGE)
        if not source < reader < len(ports):
            raise damaged(f"its edge from layer {source} to layer {reader} leads back, or nowhere")
        (inputs, outputs), (read, _) = ports[source], ports[reader]
        if not (inputs <= out < inputs + outputs and port < read) or (reader, port) in reads:
            raise damaged(f"its edge to port {port} of layer {reader} is one of two, or one of its ports is none")
        reads.add((reader, port))
    if len(reads) < sum(inputs for inputs, _ in ports):
        raise damaged("an input of a layer reads nothing")


_EDGE: Final = ("from-layer", "from-port", "to-layer", "to-port")
_ENDS: Final = set(_EDGE)


def _number(element: Element, name: str) -> int:
    text = element.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < _DIGITS):
        raise damaged(f"{name} of <{element.tag}> is {text!r:.40}, and not a number")
    return int(text)


_DIGITS: Final = 10


def _check_body(parts: dict[str, Element], which: str, inputs: int, outputs: int, bin_size: int, depth: int) -> None:
    """Look at a body of an If, and take it from `parts`. What goes in is a Parameter there, what comes out a Result."""
    body, ports = parts.pop(f"{which}_body", None), parts.pop(f"{which}_port_map", None)
    if body is None or ports is None:
        raise damaged(f"an If has no {which}_body, or no {which}_port_map")
    _expect(body, f"{which}_body", set(), ("layers", "edges", "rt_info"))
    _check_graph(body, bin_size, depth - 1)
    kinds = [layer.get("type") for layer in body[0]]
    if ports.keys():
        raise damaged(f"the port map of its {which}_body has attributes")
    for side in ports:
        _expect(side, "input" if side.tag == "input" else "output", {"external_port_id", "internal_layer_id"})
        outer, inner = _number(side, "external_port_id"), _number(side, "internal_layer_id")
        sides = (range(inputs), "Parameter") if side.tag == "input" else (range(inputs, inputs + outputs), "Result")
        if outer not in sides[0] or inner >= len(kinds) or kinds[inner] != sides[1]:
            raise damaged(f"its {which}_port_map joins port {outer} and layer {inner}, which do not belong together")
