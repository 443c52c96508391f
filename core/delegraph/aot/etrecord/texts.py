"""The texts of an exported program, each by the rule of its field: what torch resolves, runs or writes into source.

torch looks targets up attribute by attribute, imports what a structure names, and compiles a function from the names of
a graph, so that each text that reaches it is one of a closed set, or cannot be more than a name. A rule returns the
text, written again where torch parses it, and raises `ValueError` for another.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from torch.utils import _pytree as pytree

from delegraph.aot.etrecord.expressions import read_guard, read_size
from delegraph.aot.etrecord.typed_json import JsonReader, parse_json
from delegraph.aot.torch_internals import SYM_OPERATORS, all_operator_names
from delegraph.errors import shown

__all__ = ["RULES_OF_FIELDS", "rules_of_texts"]


def _identifier(text: str) -> str:
    """Of what has a name in the source of a graph."""
    return _expected(text, text.isidentifier() and not keyword.iskeyword(text), "a name in Python")


def _identifier_or_none(text: str) -> str:
    return text and _identifier(text)


def _attribute(text: str) -> str:
    """Of a weight: a path through modules, which are named as the user likes."""
    special = any(not part or part.startswith("__") for part in text.split("."))
    return _expected(text, _is_quotable(text) and not special, "the path of a weight")


def _quotable(text: str) -> str:
    """Of a text that torch puts between quotes in source."""
    return _expected(text, _is_quotable(text), "free of quotes and backslashes")


def _is_quotable(text: str) -> bool:
    return text.isprintable() and not {*text} & {*"'\"\\"}


def _device(text: str) -> str:
    return _expected(text, text in ("cpu", "cuda", "mps", "xpu", "meta"), "a device")


def _verifier(text: str) -> str:
    return _expected(text, text in ("", "ATEN", "TRAINING", "DELEGRAPH"), "a dialect that is checked here")


def _expected(text: str, condition: bool, kind: str) -> str:
    if not condition:
        raise ValueError(f"{text!r:.80} is not {kind}")
    return text


# ---- operators -------------------------------------------------------------------------------------

_INNER: Final = frozenset(
    {
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor"),
        *("debugprims", "debug_mode_ops", "profiler", "inductor", "inductor_prims", "static_runtime", "_test"),
    }
)
"""torch's namespaces that no exported program has: other processes, files, and memory by its address."""
_READS_FILES: Final = frozenset({"aten::from_file", "aten::from_file.out"})
_HIGHER_ORDER: Final = frozenset(
    {
        *("cond", "while_loop", "map_impl", "map", "scan", "associative_scan", "invoke_subgraph", "strict_mode"),
        *("wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast", "executorch_call_delegate"),
        *("auto_functionalized", "auto_functionalized_v2", "hints_wrapper"),
    }
)
_OPERATOR: Final = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", re.ASCII)


def _operator(text: str, registered: frozenset[str]) -> str:
    """Of a call: one that is `registered`, or of the closed set of functions on sizes."""
    if text in _ON_SIZES:
        return text
    match = _OPERATOR.fullmatch(text)
    namespace, name, overload = match.groups() if match else ("", "", "")
    if namespace == "higher_order" and overload is None:
        return _expected(text, name in _HIGHER_ORDER, "an operator of higher order that programs have")
    qualified = f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")
    known = qualified in registered and namespace not in _INNER and qualified not in _READS_FILES
    return _expected(text, known, "an operator that is registered here and may stand in a file")


_ON_SIZES: Final = frozenset(f"{function.__module__}.{function.__name__}" for function in SYM_OPERATORS)


# ---- structures ------------------------------------------------------------------------------------

_DEEPEST: Final = 64
_FACTORIES: Final = frozenset({"list", "dict", "int", "float", "str", "set", "tuple", "bool"})
_UNNAMED: Final = "NO_SERIALIZED_TYPE_NAME_FOUND"


def _structure(text: str) -> str:
    """Of arguments or results, as `torch.utils._pytree.treespec_dumps` writes it, of classes that are registered."""
    protocol, root = parse_json(text)
    if protocol != 1:
        raise ValueError(f"a structure of protocol {protocol!r:.20}")
    return json.dumps([1, _node(root, 0)])


def _structure_of_arguments(text: str) -> str:
    """The same of ((args), {kwargs}), whose keywords become names in the source of a graph."""
    written = _structure(text)
    children = json.loads(written)[1]["children_spec"]
    if len(children) == 2 and children[1]["type"] == "builtins.dict":
        for keyword_ in json.loads(children[1]["context"]):
            _identifier(keyword_)
    return written


def _node(node: object, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST or not isinstance(node, dict) or node.keys() != {"type", "context", "children_spec"}:
        raise ValueError(f"{node!r:.80} is no structure, or more than {_DEEPEST} deep")
    kind, context, children = node["type"], node["context"], node["children_spec"]
    if kind is None:
        _expected(str(node), context is None and children == [], "a leaf")
    elif kind == "collections.defaultdict":
        _check_factory(context)
    else:
        _expected(str(kind), kind in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE and kind != _UNNAMED, "registered here")
        context = _context(kind, context)
    return {"type": kind, "context": context, "children_spec": [_node(child, depth + 1) for child in children]}


def _check_factory(context: Any) -> None:
    module, name = context["default_factory_module"], context["default_factory_name"]
    _expected(f"{module}.{name}", module == "builtins" and name in _FACTORIES, "what a defaultdict is filled with")
    _check_context(context["dict_context"], 0)


def _context(kind: str, context: Any) -> Any:
    """Of a container, beside its children: keys, mostly, as JSON in a text."""
    if kind == "collections.namedtuple":
        return _expected(context, context in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE, "a named tuple registered here")
    value = parse_json(context) if isinstance(context, str) else context
    _check_context(value, 0)
    return json.dumps(value) if isinstance(context, str) else value


def _check_context(value: Any, depth: int) -> None:
    """Names and numbers; torch imports what stands beside the key `__enum__`."""
    if isinstance(value, str):
        _quotable(value)
    elif isinstance(value, list | dict) and depth <= _DEEPEST and "__enum__" not in value:
        for item in (*value, *(value.values() if isinstance(value, dict) else ())):
            _check_context(item, depth + 1)
    elif not isinstance(value, int | float | None):
        raise ValueError(f"{value!r:.80} in the context of a container")


# ---- metadata --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """The node that a node was made of, as torch's `NodeSource` is written."""

    name: str = ""
    target: str = ""
    pass_name: str = ""
    action: str = ""
    graph_id: int = -1
    from_node: list[_Source] | None = None


def _sources(text: str) -> str:
    reader = JsonReader("from_node", {f"_Source.{name}": shown for name in _Source.__annotations__}, {})
    sources = reader.read(list[_Source] | None, parse_json(text))
    return json.dumps(sources and [asdict(source) for source in sources])


_METADATA: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(("stack_trace", "nn_module_stack", "torch_fn"), shown),
    "custom": lambda text: json.dumps(parse_json(text)),
    "from_node": _sources,
}


def _metadata(value: Any) -> dict[str, str]:
    """Of a node; the keys that torch reads, but for `source_fn_stack`, in which it looks names up."""
    return {key: _METADATA[key](text) for key, text in value.items() if key in _METADATA}


# ---- by field --------------------------------------------------------------------------------------


def _inputs(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a graph. A text among them stands in the source of the program's guards."""
    for argument in value:
        _quotable(argument.get("as_string", ""))
    return value


def _nothing(value: object) -> Any:
    if value:
        raise ValueError("an object of a class of its own, which would have to be unpickled")
    return value


def _fields(rule: Callable[[str], Any], places: Iterable[str]) -> dict[str, Callable[[str], Any]]:
    return dict.fromkeys(places, rule)


def rules_of_texts() -> dict[str, Callable[[str], Any]]:
    """`Class.field` of torch's schema -> the rule of its texts; a field that is not there has none that is read."""
    operator = partial(_operator, registered=frozenset(all_operator_names()))
    return {"Node.target": operator, "Argument.as_operator": operator, **_RULES}


_RULES: Final[dict[str, Callable[[str], Any]]] = {
    "SymExpr.expr_str": read_size,
    "Device.type": _device,
    "ExportedProgram.verifiers": _verifier,
    "ExportedProgram.guards_code": read_guard,
    "ModuleCallSignature.in_spec": _structure_of_arguments,
    "ModuleCallSignature.out_spec": _structure,
    **_fields(str, ("Argument.as_string", "Argument.as_strings", "Node.metadata", "GraphModule.metadata")),
    **_fields(_quotable, ("ConstantValue.as_string", "ExportedProgram.torch_version", "ModuleCallEntry.fqn")),
    **_fields(_identifier_or_none, ("NamedArgument.name", "InputToConstantInputSpec.name")),
    **_fields(
        _identifier,
        (
            *("TensorArgument.name", "TokenArgument.name", "GraphArgument.name", "Node.name"),
            *(f"{kind}.as_name" for kind in ("SymIntArgument", "SymFloatArgument", "SymBoolArgument")),
            *("GradientToUserInputSpec.user_input_name", "UserInputMutationSpec.user_input_name"),
            *("ModuleCallSignature.forward_arg_names", "NamedTupleDef.field_names"),
        ),
    ),
    **_fields(
        _attribute,
        (
            *("InputToParameterSpec.parameter_name", "GradientToParameterSpec.parameter_name"),
            *("ParameterMutationSpec.parameter_name", "InputToBufferSpec.buffer_name"),
            *("BufferMutationSpec.buffer_name", "InputToTensorConstantSpec.tensor_constant_name"),
        ),
    ),
}


def _ranges(value: dict[str, Any]) -> dict[str, Any]:
    """Of symbols, or of sizes such as `2*s77`."""
    for name in value:
        read_size(name)
    return value


RULES_OF_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "Node.metadata": _metadata,
    "GraphModule.metadata": _metadata,
    "Graph.inputs": _inputs,
    "Graph.custom_obj_values": _nothing,
    "ExportedProgram.range_constraints": _ranges,
}
"""The rules that look at a field as a whole, before its values are read."""
