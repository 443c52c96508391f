"""A kernels.yaml: what it may say, and what is told of everything else, with its line."""

from __future__ import annotations

import sys

import pytest
from yaml import SequenceNode
from yaml.error import Mark

from delegraph.codegen.check import registrations
from delegraph.codegen.read import _Reader, _Wrong
from delegraph.errors import CodegenError

SCALED = "sample_ops::scaled.out(Tensor x, float factor, SymInt offset=0, *, Tensor(a!) out) -> Tensor(a!)"
"""The out variant that lowering makes for the operator, as torch writes its schema."""


def violations(text: str) -> list[str]:
    with pytest.raises(CodegenError) as caught:
        registrations(text, "kernels.yaml")
    return str(caught.value).splitlines()


def entry(operator: str, kernel: str = "sample_ops.kernels:any_call", meta: str = "null", more: str = "") -> str:
    return f"- op: {operator}\n{more}  kernels:\n    - arg_meta: {meta}\n      kernel_name: {kernel}\n"


def one_violation(text: str) -> str:
    (violation,) = violations(text)
    return violation


# ---- what it may say -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "registered"),
    [
        ("op: add.out", "aten::add.out"),
        ("op: aten::add.Scalar_out", "aten::add.Scalar_out"),
        ("op: copy_", "aten::copy_"),
        ("op: dim_order_ops::_to_dim_order_copy.out", "dim_order_ops::_to_dim_order_copy.out"),
        ("op: sample_ops::scaled.out", "sample_ops::scaled.out"),
        ("op: sample_ops::put", "sample_ops::put"),
        ("func: relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "aten::relu.out"),
        (f"func: {SCALED}", "sample_ops::scaled.out"),
        (f"func: {SCALED.replace('SymInt', 'int').replace('a!', 'z!')}", "sample_ops::scaled.out"),
        ("func: sample_ops::put(Tensor(a!) cache, Tensor row, int position) -> ()", "sample_ops::put"),
    ],
)
def test_the_forms_of_an_operator(operator: str, registered: str) -> None:
    text = f"- {operator}\n  kernels: [{{arg_meta: null, kernel_name: 'sample_ops.kernels:any_call'}}]\n"
    (made,) = registrations(text, "kernels.yaml")
    assert (made.operator, made.key, made.kernel) == (registered, None, "sample_ops.kernels:any_call")


def test_an_alias_has_one_value_at_a_time() -> None:
    aliases = "  type_alias: {T0: [Float, Double], T1: [Int, Bool]}\n  dim_order_alias: {D0: [0, 1], D1: [1, 0]}\n"
    meta = "{other: [T1, D0], self: [T0, D1], out: [T0, D0]}"
    made = registrations(entry("add.out", meta=meta, more=aliases), "kernels.yaml")
    assert [one.key for one in made] == [
        ((first, (1, 0)), (second, (0, 1)), (first, (0, 1)))
        for first in ("float32", "float64")
        for second in ("int32", "bool")
    ]


def test_an_optional_tensor_may_be_left_out_and_lists_have_no_place_in_a_key() -> None:
    aliases = "  type_alias: {T: [Half]}\n  dim_order_alias: {S: []}\n"
    one, two = (
        registrations(entry("sample_ops::total.out", "sample_ops.kernels:total", meta, aliases), "kernels.yaml")
        for meta in ("{out: [T, S]}", "{weight: [T, S], out: [T, S]}")
    )
    assert [made.key for made in one] == [(("float16", ()),)]
    assert [made.key for made in two] == [(("float16", ()), ("float16", ()))]


# ---- what it may not say -------------------------------------------------------------------------------

FIT = "it is called as (context, x, factor, offset, out)"

OPERATORS = {
    "ad.out": "torch has no operator aten::ad; did you mean aten::pad or aten::add or aten::rand?",
    "sample_ops::scalde.out": "torch has no operator sample_ops::scalde; did you mean sample_ops::scaled?",
    "nowhere::f.out": "torch has no operators of the namespace nowhere: --import the module that defines them",
    "relu.outt": "torch has no overload aten::relu.outt; kernels run aten::relu.out",
    "relu": "aten::relu is no out variant, and only those run on planned memory; kernels run aten::relu.out",
    "sample_ops::scaled": "sample_ops::scaled is no out variant, and only those run on planned memory;"
    " kernels run sample_ops::scaled.out",
    "view": "aten::view is no out variant, and only those run on planned memory; it has no out variant",
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_that_is_no_kernels(operator: str) -> None:
    assert one_violation(entry(operator)).startswith(f"kernels.yaml:1: {OPERATORS[operator]}")


SCHEMAS = {
    SCALED.replace("Tensor(a!) out)", "Tensor(a!) out"): "the schema cannot be read: expected",
    SCALED.replace("Tensor x", "Tensr x"): "the schema cannot be read: unknown type specifier.",
    SCALED.replace("float factor", "int factor"): "the schema is not that of the operator: argument 2 is"
    f" `int factor` here and `float factor` there; the operator's is {SCALED}",
    SCALED.replace("factor", "scale"): "the schema is not that of the operator: argument 2 is `float scale` here",
    SCALED.replace("=0", "=1"): "the schema is not that of the operator: argument 3 is `int offset=1` here and"
    " `int offset=0` there",
    SCALED.replace(", SymInt offset=0", ""): "the schema is not that of the operator: argument 3 is"
    " `*, Tensor(!) out` here and `int offset=0` there",
    "copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)": "the schema is not that of the operator: it has 2 arguments"
    " here and 3 there",
    SCALED.replace("-> Tensor(a!)", "-> ()"): "the schema is not that of the operator: it returns something else",
    "sample_ops::other.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": "torch has no operator sample_ops::other",
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_that_is_not_the_operators(schema: str) -> None:
    text = f"# a comment\n- func: {schema}\n  kernels: []\n"
    assert one_violation(text).startswith(f"kernels.yaml:2: {SCHEMAS[schema]}")


FUNCTIONS = {
    "sample_ops.kernels.scaled": "kernel_name sample_ops.kernels.scaled is no `module:function`",
    "sample_ops.kernles:scaled": "importing sample_ops.kernles raised ModuleNotFoundError: No module named",
    "sample_ops.broken:scaled": "importing sample_ops.broken raised OSError: libacme.so.3",
    "sample_ops.kernels:scald": "sample_ops.kernels has no function scald; did you mean scaled?",
    "sample_ops.kernels:not_a_function": "sample_ops.kernels:not_a_function is no function but int",
    "sample_ops.kernels:too_few": "sample_ops.kernels:too_few has the parameters (context: 'Any', x: 'Any',"
    f" out: 'Any') -> 'None'; {FIT}",
    "sample_ops.kernels:by_keyword": f"-> 'None'; {FIT}",
    "sample_ops.kernels:swapped": f"-> 'None', offset where factor comes; {FIT}",
    "builtins:dict": "builtins:dict does not tell its parameters: write a function around it",
}


@pytest.mark.parametrize("kernel", FUNCTIONS)
def test_a_function_that_is_no_kernel_of_the_operator(kernel: str) -> None:
    violation = one_violation(entry("sample_ops::scaled.out", kernel))
    assert violation.startswith("kernels.yaml:4: ")
    assert FUNCTIONS[kernel] in violation


ALIASES = "  type_alias: {T0: [Float]}\n  dim_order_alias: {D0: [0, 1]}\n"

METAS = {
    "{self: [T0, D0]}": "kernels.yaml:5: arg_meta says nothing of out of aten::relu.out",
    "{}": "kernels.yaml:5: arg_meta says nothing of self, out of aten::relu.out",
    "{self: [T0, D0], out: [T0, D0], other: [T0, D0]}": "kernels.yaml:5: arg_meta names other, which is no tensor",
    "{self: [T1, D0], out: [T0, D0]}": "kernels.yaml:5: arg_meta of self: unknown type_alias T1 (T0)",
    "{self: [T0, D0], out: [T0, D7]}": "kernels.yaml:5: arg_meta of out: unknown dim_order_alias D7 (D0)",
    "{self: [T0], out: [T0, D0]}": "kernels.yaml:5: arg_meta of self is [a type alias, a dim order alias]",
    "{self: T0, out: [T0, D0]}": "kernels.yaml:5: arg_meta of self is a list, not a word",
    "[T0, D0]": "kernels.yaml:5: arg_meta is a mapping, not a list",
}


@pytest.mark.parametrize("meta", METAS)
def test_arg_meta_that_makes_no_key(meta: str) -> None:
    assert one_violation(entry("relu.out", meta=meta, more=ALIASES)).startswith(METAS[meta])


@pytest.mark.parametrize(
    ("aliases", "told"),
    [
        ("type_alias: {T: [Flaot]}", "2: type_alias T: Flaot is no dtype of a kernel; did you mean Float?"),
        ("type_alias: {T: [QInt8]}", "2: type_alias T: QInt8 is no dtype of a kernel; did you mean"),
        ("type_alias: {T: [quantised]}", "2: type_alias T: quantised is no dtype of a kernel; there are Byte, Char"),
        ("dim_order_alias: {D: [0, 2]}", "2: dim_order_alias D: [0, 2] is not each of 0 to 1 once"),
        ("dim_order_alias: {D: [0, 0]}", "2: dim_order_alias D: [0, 0] is not each of 0 to 1 once"),
        ("type_alias: [Float]", "2: type_alias is a mapping, not a list"),
        ("type_alias: {T: Float}", "2: type_alias T is a list, not a word"),
    ],
)
def test_aliases_that_stand_for_nothing(aliases: str, told: str) -> None:
    assert one_violation(entry("relu.out", more=f"  {aliases}\n")).startswith(f"kernels.yaml:{told}")


SHAPES = {
    "- op: [": "kernels.yaml:1: this is no YAML: expected the node content",
    "\x00": "kernels.yaml:1: this is no YAML: unacceptable character",
    "": "kernels.yaml:1: the file is empty",
    "op: add.out": "kernels.yaml:1: the file is a list, not a mapping",
    "- add.out": "kernels.yaml:1: an entry is a mapping, not a word",
    "- kernels: []": "kernels.yaml:1: an entry has either op (a name) or func (a schema)",
    "- op: add.out\n  func: add.out\n  kernels: []": "kernels.yaml:1: an entry has either op (a name) or func",
    "- op: add.out": "kernels.yaml:1: the entry has no kernels",
    "- op: null\n  kernels: []": "kernels.yaml:1: op is a word, not nothing",
    "- op: add.out\n  kernels: add": "kernels.yaml:2: kernels is a list, not a word",
    "- op: add.out\n  variants: function\n  kernels: []": "kernels.yaml:2: unknown key variants; an entry has op,",
    "- op: add.out\n  kernels: []\n  kernels: []": "kernels.yaml:3: kernels is given twice, first in line 2",
    "- op: add.out\n  kernels:\n    - arg_meta: null": "kernels.yaml:3: the kernel has no kernel_name",
    "- op: add.out\n  kernels:\n    - kernel_name: m:f": "kernels.yaml:3: the kernel has no arg_meta",
    entry("add.out") + "      bind: f": "kernels.yaml:5: unknown key bind; a kernel has arg_meta, kernel_name",
}


@pytest.mark.parametrize("text", SHAPES)
def test_yaml_of_another_shape(text: str) -> None:
    assert one_violation(text).startswith(SHAPES[text])


def test_two_kernels_for_one_operator_and_key() -> None:
    partial = entry("relu.out", meta="{self: [T, D], out: [T, D]}", more=ALIASES.replace("0:", ":").replace("T0", "T"))
    assert violations(partial + entry("relu.out") + partial + entry("aten::relu.out")) == [
        "kernels.yaml:15: aten::relu.out has a kernel for float32 [0, 1], float32 [0, 1] already, in line 5",
        "kernels.yaml:19: aten::relu.out has a fallback already, in line 9",
    ]


def test_everything_is_told_at_once_in_the_order_of_lines() -> None:
    text = entry("ad.out") + entry("relu.out", "sample_ops.kernels:nothing", "{self: [T, D]}") + "- 3\n"
    lines = [violation.partition(": ")[0] for violation in violations(text)]
    assert lines == [f"kernels.yaml:{line}" for line in (1, 7, 7, 7, 8, 9)]


def test_without_pyyaml_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(CodegenError, match=r"needs PyYAML: pip install 'pyyaml>=6'"):
        registrations("[]", "kernels.yaml")


# ---- files that were made to harm ------------------------------------------------------------------------


def test_aliases_that_grow_are_counted() -> None:
    kernels = "kernels: &k\n" + "".join("    - {arg_meta: null, kernel_name: a:b}\n" for _ in range(400))
    bomb = f"- op: add.out\n  {kernels}" + "".join(f"- {{op: x{i}.out, kernels: *k}}\n" for i in range(2000))
    assert any("the file has more than 50,000 words and lists" in text for text in violations(bomb))


def test_a_list_of_itself() -> None:
    assert violations("&a [*a]")


def test_deep_nesting() -> None:
    assert "the file is nested too deeply" in violations("[" * 1500)[-1]


def test_as_many_nodes_as_are_read() -> None:
    _Reader().count(SequenceNode("", [None] * 50_000))
    with pytest.raises(_Wrong):
        _Reader().count(SequenceNode("", [None] * 50_001, start_mark=Mark("", 0, 0, 0, None, None)))
