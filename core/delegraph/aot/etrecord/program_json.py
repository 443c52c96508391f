"""ExportedProgram <-> JSON as ExecuTorch writes it, and torch files of its tensors and example inputs.

torch writes the JSON. It is read by the types of torch's schema and a rule for each text (`typed_json.py`, `texts.py`),
and torch makes a program of the records, seeing neither the file nor a text that it would evaluate. This is what
changes between torch's schema (`torch/_export/serde/schema.py`, version 8) and the older one that ExecuTorch kept
(`exir/serde/schema.py`, version 5.4):

    torch                                       ExecuTorch
    fields that came later                      not there: it refuses a field that it does not know; guards and names of
                                                inputs are kept in the first node's metadata, of which it takes any
    dtype 28 (uint16)                           dtype 14
    a range without an end: null                Infinity
    Symbol('s77', positive=True, integer=True)  s77
    one result of a tuple of one: as_tensor     as_tensors
    edge operators by where their class is      executorch.exir.dialects.edge.ops.aten.add.Tensor
    metadata of a node                          the debug handle too

Its reader knows nothing of a graph's `getitem` calls; they get the metadata of what they take an item of, and the
`get_attr` of a body that of what runs it.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.edge.edge_ops import use_edge_operators
from delegraph.aot.etrecord.expressions import is_guard
from delegraph.aot.etrecord.tensors import read_tensors
from delegraph.aot.etrecord.texts import RULES_OF_FIELDS, rules_of_texts
from delegraph.aot.etrecord.typed_json import JsonReader, parse_json, read_json
from delegraph.aot.graph.bodies import attributes
from delegraph.aot.graph.edit import REGISTERED_NAME, copy_program, rebuild
from delegraph.aot.torch_internals import ExportedProgramDeserializer, SchemaUnion, serialize, torch_schema
from delegraph.errors import ETRecordError, shown

__all__ = ["SerializedExportedProgram", "deserialize_exported_program", "serialize_exported_program"]


class SerializedExportedProgram(NamedTuple):
    """The files of one program, as an ETRecord and ExecuTorch's `exir.save` have them: JSON, and three torch files."""

    exported_program: bytes
    state_dict: bytes
    constants: bytes
    example_inputs: bytes


VERSION: Final = {"major": 5, "minor": 4}
TORCH_OPERATORS: Final = "torch.ops."
HIGHER_ORDER: Final = "torch.ops.higher_order."
EDGE_OPERATORS: Final = "executorch.exir.dialects.edge.ops."
EDGE_MODULE: Final = "executorch.exir.dialects.edge._ops."
"""Where the class of edge operators is, which torch writes; ExecuTorch's reader wants the other."""
EDGE: Final = "EDGE"
LATER_FIELDS: Final = frozenset(
    {
        "is_hop_single_tensor_return",
        "sym_float_values",
        "forward_arg_names",
        "treespec_namedtuple_fields",
        "torch_version",
        "guards_code",
    }
)
DTYPE_CODES: Final = {
    torch_schema.ScalarType.UINT16.value: 14,
    torch_schema.ScalarType.FLOAT8E5M2.value: 15,
    torch_schema.ScalarType.FLOAT8E4M3FN.value: 16,
}
"""torch's code of a dtype -> ExecuTorch's, where they differ."""

LATER: Final = "delegraph_later_fields"

Rewrite = Callable[[dict[str, Any]], dict[str, Any]]


def serialize_exported_program(program: ExportedProgram) -> SerializedExportedProgram:
    """The files of `program`, of any dialect; nodes keep their debug handles and what they come from.

    Raises what torch raises for a program that it cannot write, such as one that calls delegates.
    """
    program = _lifted(program)
    written = serialize(program)
    document = json.loads(written.exported_program)
    later = _later_fields(document)
    document = _rewritten(document, _as_executorch_has_it)
    document["graph_module"].pop("metadata", None)
    for node in document["graph_module"]["graph"]["nodes"][:1]:
        node["metadata"][LATER] = json.dumps(later)
    for graph, module in _graphs(document["graph_module"]["graph"], program.graph_module):
        _add_handles(graph, module)
    _rename_targets(document, EDGE_MODULE, EDGE_OPERATORS)
    document["schema_version"] = VERSION
    return SerializedExportedProgram(
        json.dumps(document).encode(), written.state_dict, written.constants, written.example_inputs or b""
    )


def deserialize_exported_program(
    files: SerializedExportedProgram, name: str = "the exported program"
) -> ExportedProgram:
    """The program in `files`, written here or by ExecuTorch; `name` says in a message which it is.

    Nothing in the files is unpickled, evaluated or imported. Raises `ETRecordError` if they hold no program.
    """
    written = read_json(files.exported_program, name)
    try:
        document, own = _as_torch_reads(written)
        reader = JsonReader(name, rules_of_texts(), RULES_OF_FIELDS, SchemaUnion)
        record = reader.read(torch_schema.ExportedProgram, document)
        tensors = _tensors_of(files, name)
        program = ExportedProgramDeserializer().deserialize(record, *tensors)
    except ETRecordError:
        raise
    except Exception as error:  # whatever torch says of a program that is none
        cause = error.__cause__ or error  # torch adds the whole node, and its own lines
        raise ETRecordError(f"{name} cannot be read: {type(cause).__name__}: {cause!s:.500}") from error
    if REGISTERED_NAME in record.verifiers:
        use_edge_operators(program.graph_module)
    for graph, module in _graphs(document["graph_module"]["graph"], program.graph_module):
        _erase_unused_items(module)
        for node in module.graph.nodes:
            node.meta.update(own[id(graph)].get(_call_of(node).name, {}))
    return program


def _as_torch_reads(document: dict[str, Any]) -> tuple[dict[str, Any], dict[int, dict[str, dict[str, Any]]]]:
    """A file's JSON in torch's schema; and by a graph's `id` and a node's name, what the nodes get besides."""
    document = _rewritten(document, _as_torch_has_it)
    _restore_later_fields(document)
    own = {id(graph): _take_own(graph) for graph in _all_graphs(document["graph_module"]["graph"])}
    document.pop("dialect", None)  # which ExecuTorch writes beside the verifiers, and torch no longer has
    document["verifiers"] = [REGISTERED_NAME if name == EDGE else name for name in document["verifiers"]]
    document["schema_version"] = dict(zip(("major", "minor"), torch_schema.SCHEMA_VERSION, strict=True))
    _rename_targets(document, EDGE_OPERATORS, TORCH_OPERATORS)
    return document, own


def _tensors_of(files: SerializedExportedProgram, name: str) -> tuple[Any, Any, Any]:
    """State, constants and example inputs: tensors by name, and ((args), {kwargs}) or None."""
    state, constants = (
        read_tensors(data, name + suffix) if data else {}
        for suffix, data in (("_state_dict", files.state_dict), ("_constants", files.constants))
    )
    for suffix, tensors in (("_state_dict", state), ("_constants", constants)):
        if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
            raise ETRecordError(f"{name}{suffix}: it has other things than tensors by name")
    examples = read_tensors(files.example_inputs, f"{name}_example_inputs") if files.example_inputs else None
    match examples:
        case None | (tuple(), dict()):
            return state, constants, examples
    raise ETRecordError(f"{name}_example_inputs: it has something else than ((arguments), {{keywords}})")


def _call_of(node: Node) -> Node:
    """The call that a `getitem` takes a result of, or that a `get_attr` of a body is for; `node` if it is neither."""
    if node.op == "get_attr" and node.users:
        return next(iter(node.users))
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def _erase_unused_items(module: GraphModule) -> None:
    """Take the `getitem` calls away that torch's reader makes of results which nothing reads."""
    for node in list(module.graph.nodes):
        if node.target is operator.getitem and not node.users and _UNUSED.search(node.name):
            module.graph.erase_node(node)
    module.recompile()


def _lifted(program: ExportedProgram) -> ExportedProgram:
    """`program`, with inputs for the constants that folding put into its graph: torch's JSON has no place for those."""
    values = attributes(program.graph_module)
    folded = {name: tensor for name, tensor in values.items() if isinstance(tensor, torch.Tensor)}
    if not folded:
        return program
    program = copy_program(program)
    graph = program.graph
    placeholders: dict[str, Node] = {}
    for node in graph.find_nodes(op="get_attr"):
        name = str(node.target)
        if name in folded:
            with graph.inserting_before(next(iter(graph.nodes))):
                placeholder = placeholders.get(name) or graph.placeholder(name)
            placeholder.meta = {"val": node.meta["val"], "constant_name": name}
            node.replace_all_uses_with(placeholder)
            graph.erase_node(node)
            placeholders[name] = placeholder
    for name, placeholder in placeholders.items():
        placeholder.name = name
    return rebuild(program, attributes(program.graph_module), graph, program.graph_signature.output_specs, folded)


# ---- the JSON --------------------------------------------------------------------------------------


def _rewritten(value: object, rewrite: Rewrite) -> Any:
    """`value` with every object in it rewritten, from the inside out."""
    if isinstance(value, dict):
        return rewrite({key: _rewritten(item, rewrite) for key, item in value.items()})
    return [_rewritten(item, rewrite) for item in value] if isinstance(value, list) else value


def _as_executorch_has_it(value: dict[str, Any]) -> dict[str, Any]:
    match value:
        case {"is_hop_single_tensor_return": False, "outputs": [{"as_tensor": tensor}]}:
            value["outputs"] = [{"as_tensors": [tensor]}]
    if "expr_str" in value:
        value["expr_str"] = _SYMBOL.sub(r"\1", value["expr_str"])
    value = {key: item for key, item in value.items() if key not in LATER_FIELDS}
    if "arg" in value:
        value.pop("kind", None)
    for key in ("dtype", "as_scalar_type"):
        if key in value:
            value[key] = DTYPE_CODES.get(value[key], value[key])
    if value.keys() == {"min_val", "max_val"}:
        low, high = value["min_val"], value["max_val"]
        return {"min_val": -math.inf if low is None else low, "max_val": math.inf if high is None else high}
    return value


def _as_torch_has_it(value: dict[str, Any]) -> dict[str, Any]:
    if str(value.get("target", "")).startswith(HIGHER_ORDER):
        match value["outputs"]:
            case [{"as_tensors": [tensor]}]:
                value |= {"outputs": [{"as_tensor": tensor}], "is_hop_single_tensor_return": False}
    for key in ("dtype", "as_scalar_type"):
        if key in value:
            value[key] = _CODES_HERE.get(value[key], value[key])
    if "as_none" in value:
        value["as_none"] = True
    if value.keys() == {"min_val", "max_val"}:
        return {key: None if isinstance(item, float) and math.isinf(item) else item for key, item in value.items()}
    return value


_UNUSED: Final = re.compile(r"_unused_\d+$")
_SYMBOL: Final = re.compile(r"Symbol\('(\w+)'[^)]*\)")
_CODES_HERE: Final = {there: here for here, there in DTYPE_CODES.items()}


def _later_fields(document: dict[str, Any]) -> dict[str, Any]:
    """The values that a program has for `LATER_FIELDS`."""
    module = document["graph_module"]
    return {
        "guards_code": [guard for guard in document.get("guards_code", []) if is_guard(guard)],
        "treespec_namedtuple_fields": module.get("treespec_namedtuple_fields", {}),
        "forward_arg_names": [
            (call.get("signature") or {}).get("forward_arg_names") for call in module["module_call_graph"]
        ],
    }


def _restore_later_fields(document: dict[str, Any]) -> None:
    module = document["graph_module"]
    for node in module["graph"]["nodes"][:1]:
        if LATER in node["metadata"]:
            later = parse_json(node["metadata"].pop(LATER))
            document["guards_code"] = later["guards_code"]
            module["treespec_namedtuple_fields"] = later["treespec_namedtuple_fields"]
            for call, names in zip(module["module_call_graph"], later["forward_arg_names"], strict=True):
                if call.get("signature"):
                    call["signature"]["forward_arg_names"] = names


def _rename_targets(document: dict[str, Any], old: str, new: str) -> None:
    """Operators whose names begin with `old`, beginning with `new`."""
    for graph in _all_graphs(document["graph_module"]["graph"]):
        for node in graph["nodes"]:
            target = node["target"]
            if target.startswith(old):
                node["target"] = new + target.removeprefix(old)


def _all_graphs(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`graph` and the control-flow bodies in it."""
    yield graph
    for _, body in _bodies(graph):
        yield from _all_graphs(body)


def _bodies(graph: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in graph["nodes"]:
        for argument in node["inputs"]:
            if "as_graph" in argument["arg"]:
                yield argument["arg"]["as_graph"]["name"], argument["arg"]["as_graph"]["graph"]


def _graphs(graph: dict[str, Any], module: GraphModule) -> Iterator[tuple[dict[str, Any], GraphModule]]:
    """`graph` and the control-flow bodies in it, each with its module."""
    yield graph, module
    for name, body in _bodies(graph):
        yield from _graphs(body, module.get_submodule(name))  # type: ignore[arg-type]


def _add_handles(graph: dict[str, Any], module: GraphModule) -> None:
    handles = {node.name: node.meta["debug_handle"] for node in module.graph.nodes if "debug_handle" in node.meta}
    for node in graph["nodes"]:
        if node["name"] in handles:
            node["metadata"]["debug_handle"] = str(handles[node["name"]])


def _take_own(graph: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the name of a node, what is kept of its metadata that torch is not to see.


    `source_fn_stack` has names of classes and functions. They stay names; torch would look them up.
    """
    return {node["name"]: dict(_own_of(node["metadata"])) for node in graph["nodes"] if "name" in node}


def _own_of(metadata: dict[str, str]) -> Iterator[tuple[str, Any]]:
    handle, sources = metadata.pop("debug_handle", None), metadata.pop("source_fn_stack", None)
    if handle is not None:
        yield "debug_handle", int(handle)
    if sources:
        pairs = (shown(source).rpartition(",") for source in sources.split(";"))
        yield "source_fn_stack", [(name, kind) for name, _, kind in pairs]
