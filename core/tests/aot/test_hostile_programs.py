"""The JSON of programs in ETRecords that strangers made: each is refused by its path, and nothing in it runs.

Each case is a sound program with one thing in it changed, where torch's own reader would evaluate, look up, import or
compile it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from core.tests.aot import record_files
from core.tests.aot.record_files import PROGRAM, Members, parsed

from delegraph.aot import ETRecord, graph_modules
from delegraph.errors import ETRecordError


@pytest.fixture(scope="module")
def members() -> Members:
    return record_files.members()


Document = dict[str, Any]
Edit = Callable[[Document, str], None]


def graph(document: Document) -> Document:
    return document["graph_module"]["graph"]  # type: ignore[no-any-return]


def signature(document: Document) -> Document:
    return document["graph_module"]["module_call_graph"][0]["signature"]  # type: ignore[no-any-return]


def first(document: Document) -> Document:
    return graph(document)["nodes"][0]  # type: ignore[no-any-return]


def sizes(document: Document) -> Document:
    """The first size that is an expression."""
    metas = graph(document)["tensor_values"].values()
    return next(size["as_expr"] for meta in metas for size in meta["sizes"] if "as_expr" in size)  # type: ignore[no-any-return]


def size(text: str) -> Edit:
    return lambda document, path: sizes(document).update(expr_str=text.format(path=path))


def guard(text: str) -> Edit:
    def edit(document: Document, path: str) -> None:
        document["guards_code"] = [text.format(path=path)]
        for node in graph(document)["nodes"]:
            node["metadata"].pop("delegraph_later_fields", None)

    return edit


def later(field: str, value: Any) -> Edit:
    """In the first node's metadata, where this package keeps what ExecuTorch's schema has no field for."""

    def edit(document: Document, path: str) -> None:
        kept = json.loads(first(document)["metadata"]["delegraph_later_fields"])
        kept[field][:1] = [value]
        first(document)["metadata"]["delegraph_later_fields"] = json.dumps(kept).replace("PATH", path)

    return edit


def operator(text: str, **argument: Any) -> Edit:
    """A call more, whose result nobody takes."""

    def edit(document: Document, path: str) -> None:
        arguments = [{"name": "", "arg": argument or {"as_string": path}}]
        call = {"target": text, "inputs": arguments, "outputs": [{"as_none": True}], "metadata": {}, "name": "more"}
        graph(document)["nodes"].append(call)

    return edit


def renamed(old: str, new: str) -> Edit:
    """A name, wherever it stands."""

    def edit(document: Document, path: str) -> None:
        text = json.dumps(document).replace(f'"name": "{old}"', f'"name": {json.dumps(new.format(path=path))}')
        text = text.replace(f'"{old}": {{"dtype"', f'{json.dumps(new.format(path=path))}: {{"dtype"')
        document.clear()
        document.update(json.loads(text))

    return edit


def structure(key: str, change: Callable[[Any], None]) -> Edit:
    def edit(document: Document, path: str) -> None:
        spec = json.loads(signature(document)[key])
        change(spec[1])
        signature(document)[key] = json.dumps(spec).replace("PATH", path)

    return edit


def keywords(text: str) -> Edit:
    """Of the model's arguments, where no names of theirs are kept."""

    def edit(document: Document, path: str) -> None:
        later("forward_arg_names", None)(document, path)
        structure("in_spec", lambda spec: spec["children_spec"][1].update(context=json.dumps([text])))(document, path)

    return edit


def deep_body(document: Document, _: str) -> None:
    body = graph(document)
    for _ in range(60):
        inputs = [{"name": "", "arg": {"as_graph": {"name": "b", "graph": body}}}]
        node: Document = {
            "target": "torch.ops.higher_order.cond",
            "inputs": inputs,
            "outputs": [],
            "metadata": {},
            "name": "n",
        }
        body = {**body, "nodes": [node]}
    document["graph_module"]["graph"] = body


def deep_expression(document: Document, _: str) -> None:
    sizes(document)["expr_str"] = "-" * 3000 + "s0"


RUNS = "__import__('os').mkdir('{path}')"
TEXT = "__import__('os').mkdir('PATH')"
ENUM = json.dumps({"__enum__": True, "fqn": "os:path", "name": "x"})
FACTORY = {"default_factory_module": "antigravity", "default_factory_name": "geohash", "dict_context": []}


def container(kind: str, context: Any) -> Edit:
    return structure("out_spec", lambda spec: spec.update(type=kind, context=context, children_spec=[]))


EDITS: dict[str, tuple[Edit, str]] = {
    # evaluated, by sympy
    "a call in a size": (size(RUNS), r"graph\.tensor_values\..*\.sizes\[\d\]\.as_expr\.expr_str: .* is none of sizes"),
    "an attribute in a size": (size("s0.__class__"), "is none of sizes"),
    "a lambda in a size": (size("(lambda: 0)()"), "is none of sizes"),
    "a text in a size": (size("Symbol('{path}')"), "is none of sizes"),
    "an item in a size": (size("[s0][0]"), "is none of sizes"),
    "an assumption with a call": (size("Symbol('s0', integer=print())"), "assumes what sizes do not"),
    "a function of sympy": (size("sympify('s0')"), "is none of sizes"),
    "another number of arguments": (size("FloorDiv(s0)"), "is none of sizes"),
    "a large power": (size("10**10**10"), "a power higher than 4"),
    "powers of powers": (size("((s0**4)**4)**4"), "a power higher than 4"),
    "a large shift": (size("LShift(1, 2**40)"), "a power higher than 4"),
    "a large number": (size("1" * 400), "is none of sizes"),
    "a division by zero": (size("FloorDiv(s0, 0)"), "no expression of sizes: division by zero"),
    "infinity": (size("1/0"), "its value is zoo"),
    "a long size": (size("s0+" * 2000 + "1"), "6001 characters, of which at most 4096 are read"),
    "a deep size": (deep_expression, "expr_str: (no expression|more than 40 operations)"),
    "no size": (size("s0 +"), "no expression: invalid syntax"),
    "as many symbols as can be": (size("u9999999999"), "'u9999999999' is none of sizes"),
    "a range of as many": (
        lambda document, _: document["range_constraints"].update(u9999999999={"min_val": 0, "max_val": 1}),
        "range_constraints: 'u9999999999' is none of sizes",
    ),
    # compiled, by ExportedProgram.module()
    "a call in a guard": (guard(RUNS), r"guards_code\[0\]: .* is none of guards"),
    "a call in a guard that is kept": (later("guards_code", TEXT), r"guards_code\[0\]: .* is none of guards"),
    "an attribute in a guard": (guard("L['x'].__class__ == 1"), "is none of guards"),
    "a method in a guard": (guard("L['x'].storage() == 1"), "is none of guards"),
    "a quote in a guard": (guard('L["\\""] == 1'), "is none of guards"),
    "a name in a guard": (guard("torch == 1"), "is none of guards"),
    "a power in a guard": (guard("L['x'].size()[0] ** 99 == 1"), "is none of guards"),
    "a walrus in a guard": (guard("(y := L['x']) == 1"), "is none of guards"),
    "two lines in a guard": (guard("1 == 1\n" + RUNS), "no expression"),
    # compiled, as the source of a graph
    "a placeholder's name": (renamed("x", "x=" + RUNS), r"graph\.inputs\[\d\]\.as_tensor\.name: .* is not a name in"),
    "a node's name": (
        lambda document, path: first(document).update(name=RUNS.format(path=path)),
        r"nodes\[0\]\.name: .* is not a name in Python",
    ),
    "a keyword's name": (
        lambda document, path: first(document)["inputs"][0].update(name="a=" + RUNS.format(path=path)),
        r"nodes\[0\]\.inputs\[0\]\.name: .* is not a name in Python",
    ),
    "a word of Python": (renamed("x", "lambda"), "'lambda' is not a name in Python"),
    "a body's name": (renamed("true_graph_0", "a\n" + RUNS), "as_graph.name: .* is not a name in Python"),
    "a weight's path": (
        lambda document, _: document["graph_module"]["signature"]["input_specs"][0]["parameter"].update(
            parameter_name='a.b", "c'
        ),
        "parameter_name: .* is not the path of a weight",
    ),
    "a weight in place of a method": (
        lambda document, _: document["graph_module"]["signature"]["input_specs"][0]["parameter"].update(
            parameter_name="__class__"
        ),
        "parameter_name: '__class__' is not the path of a weight",
    ),
    "an argument's name": (later("forward_arg_names", ["x=" + TEXT]), "forward_arg_names.*is not a name in Python"),
    "a keyword of the model": (keywords("y=" + TEXT), "in_spec: .* is not (a name in Python|free of quotes)"),
    "a text among the inputs": (
        lambda document, path: graph(document)["inputs"].append(
            {"as_string": "' + " + RUNS.format(path=path) + " + '"}
        ),
        r"graph\.inputs: .* is not free of quotes",
    ),
    # looked up, attribute by attribute
    "a function of a module of torch": (operator("torch.os.mkdir"), "nodes.*target: 'torch.os.mkdir' is not an oper"),
    "a function of torch": (operator("torch.load"), "target: 'torch.load' is not an operator"),
    "attributes of an operator": (operator("torch.ops.aten.add.default.__class__"), "is not an operator"),
    "another method of torch.ops": (operator("torch.ops.load_library"), "is not an operator"),
    "a function of operator": (operator("_operator.attrgetter"), "is not an operator"),
    "an extension of torch's reader": (operator("#ns:x"), "is not an operator"),
    "a reader of files": (operator("torch.ops.aten.from_file.default"), "may stand in a file"),
    "memory by its address": (operator("torch.ops.inductor._alloc_from_pool.default"), "may stand in a file"),
    "an operator of higher order": (operator("torch.ops.higher_order.call_torchbind"), "of higher order that programs"),
    "an operator as an argument": (
        operator("torch.ops.higher_order.wrap", as_operator="torch.os.mkdir"),
        "as_operator: 'torch.os.mkdir' is not an operator",
    ),
    # imported
    "an enum in a structure": (container("builtins.dict", ENUM), "out_spec: .* in the context of a container"),
    "a factory of a module": (container("collections.defaultdict", FACTORY), "what a defaultdict is filled with"),
    "a class that nobody registered": (container("os.PathLike", "null"), "'os.PathLike' is not registered here"),
    "a named tuple that nobody registered": (container("collections.namedtuple", "os.stat_result"), "a named tuple"),
    "a quote in a key": (container("builtins.dict", '["\'"]'), "is not free of quotes"),
    "no structure": (
        structure("out_spec", lambda spec: spec.update(more=1)),
        "out_spec: .* is no structure, or more than 64 deep",
    ),
    "a structure of another protocol": (
        lambda document, _: signature(document).update(out_spec="[2, null]"),
        "out_spec: a structure of protocol 2",
    ),
    "an object of a class": (
        lambda document, _: graph(document).update(custom_obj_values={"o": {"name": "o", "class_fqn": "os.x"}}),
        "graph.custom_obj_values: an object of a class of its own",
    ),
    "an object as an argument": (
        operator("torch.ops.aten.relu.default", as_custom_obj={"name": "o", "class_fqn": "os"}),
        r"as_custom_obj\.name: 'o': no text is read here",
    ),
    "a verifier": (lambda document, _: document.update(verifiers=["os"]), "verifiers.*'os' is not a dialect"),
    "a device": (
        lambda document, _: next(iter(graph(document)["tensor_values"].values()))["device"].update(type="privateuse1"),
        "device.type: 'privateuse1' is not a device",
    ),
    # sizes, types and depths
    "a number of more than 64 bits": (
        lambda document, _: sizes(document).update(hint={"as_int": 2**64}),
        "hint.as_int: 18446744073709551616 takes more than 64 bits",
    ),
    "a truth for a number": (lambda document, _: sizes(document).update(hint={"as_int": True}), "is no whole number"),
    "a number for a text": (lambda document, _: first(document).update(target=3), "cannot be read"),
    "a text for a list": (lambda document, _: first(document).update(outputs="x"), "outputs: 'x' is no list"),
    "a field that is not there": (
        lambda document, _: first(document).update(code="x"),
        r"nodes\[0\]\.code: Node has no",
    ),
    "a field that is missing": (
        lambda document, _: first(document).pop("inputs"),
        "cannot be read: KeyError: 'inputs'",
    ),
    "two of a union": (
        lambda document, _: graph(document)["outputs"][0].update(as_int=3),
        r"outputs\[0\]: 2 values where there is one",
    ),
    "a code of no dtype": (
        lambda document, _: next(iter(graph(document)["tensor_values"].values())).update(dtype=99),
        "dtype: 99 is not a valid ScalarType",
    ),
    "a key that hides the rest": (
        lambda document, _: graph(document)["tensor_values"].update({"\x1b[2J": {}}),
        r"tensor_values\.\\x1b\[2J: .* is no name",
    ),
    "bodies in bodies": (deep_body, "more than 200 values in one another"),
    "a huge tensor": (
        lambda document, _: next(iter(graph(document)["tensor_values"].values())).update(
            sizes=[{"as_int": 2**62}] * 2, strides=[{"as_int": 2**62}] * 2
        ),
        "cannot be read: RuntimeError: numel",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_a_program_that_is_none(members: Members, case: str, tmp_path: Path) -> None:
    edit, message = EDITS[case]
    document = json.loads(members[PROGRAM])
    edit(document, str(tmp_path / "ran"))
    with pytest.raises(ETRecordError, match=f"(?s)exported_program.*{message}") as error:
        used(parsed({**members, PROGRAM: json.dumps(document).encode()}))
    assert not (tmp_path / "ran").exists()
    assert len(str(error.value)) < 1000


def used(record: ETRecord) -> None:
    """As an Inspector uses it."""
    assert record.exported_program is not None
    record.exported_program.module()(torch.randn(4, 4), "fast", y={"k": torch.randn(3)})


def test_names_of_classes_stay_names(members: Members) -> None:
    """torch would look them up; and what a terminal would act on is told by its code."""
    document = json.loads(members[PROGRAM])
    first(document)["metadata"].update(source_fn_stack="a,torch.os.system", stack_trace='File "\x1b[2J"')
    read = parsed({**members, PROGRAM: json.dumps(document).encode()}).exported_program
    assert read is not None
    call = next(
        node for _, one in graph_modules(read.graph_module) for node in one.graph.nodes if "stack_trace" in node.meta
    )
    assert call.meta["source_fn_stack"] == [("a", "torch.os.system")]
    assert call.meta["stack_trace"] == 'File "\\x1b[2J"'
