"""`load`: a callable with the model's own structure of arguments and results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidProgram, InvalidType, NotFound
from delegraph.program.schema import Null
from delegraph.runtime import Module, load
from delegraph.runtime.calls.pytree import TreeSpec, parse_treespec

LEAF = {"type": None, "context": None, "children_spec": []}


def node(kind: str, context: Any, *children: Any) -> dict[str, Any]:
    return {"type": kind, "context": json.dumps(context), "children_spec": list(children)}


def tuple_of(*children: Any) -> dict[str, Any]:
    return node("builtins.tuple", None, *children)


def dict_of(**children: Any) -> dict[str, Any]:
    return node("builtins.dict", list(children), *children.values())


def text(root: Any) -> str:
    return json.dumps([1, root])


def arguments(*args: Any, **kwargs: Any) -> str:
    return text(tuple_of(tuple_of(*args), dict_of(**kwargs)))


def two_sums(build: Any, inputs: str = "", result: str = "", name: str = "forward") -> Any:
    """(x + y, y + z)."""
    x, y, z = (build.tensor(2) for _ in range(3))
    first = build.call("aten::add.out", x, y, build.int(1), build.tensor(2))
    second = build.call("aten::add.out", y, z, build.int(1), build.tensor(2))
    return build.plan([x, y, z], [first, second], trees=(inputs, result), name=name)


X, Y, Z = (np.full(2, value, np.float32) for value in (1, 2, 4))


def test_the_models_own_structure(build: Any, kernels: Any) -> None:
    plan = two_sums(
        build,
        arguments(LEAF, dict_of(a=LEAF), b=node("builtins.list", None, LEAF)),
        text(dict_of(sum=LEAF, rest=tuple_of(LEAF))),
    )
    model = load(build.program(plan), kernels=[kernels])
    result = model(X, {"a": Y}, b=[Z])
    assert list(result) == ["sum", "rest"]
    np.testing.assert_array_equal(result["sum"], X + Y)
    assert isinstance(result["rest"], tuple)
    np.testing.assert_array_equal(result["rest"][0], Y + Z)
    assert repr(model) == "Module(forward; main: <method forward(*, {'a': *}, b=[*]) -> {'sum': *, 'rest': (*,)}>)"


def test_results_are_the_callers_own(build: Any, kernels: Any) -> None:
    model = load(build.program(two_sums(build, "", text(tuple_of(LEAF, LEAF)))), kernels=[kernels])
    first, _ = model(X, Y, Z)
    model(Z, Z, Z)
    np.testing.assert_array_equal(first, X + Y)


def test_flat_without_metadata(build: Any, kernels: Any) -> None:
    model = load(build.program(two_sums(build)), kernels=[kernels])
    result = model(X, Y, Z)
    assert isinstance(result, list)
    np.testing.assert_array_equal(result, [X + Y, Y + Z])


@pytest.mark.parametrize(
    "encoded",
    ["T2#1#1(T1#1($),D0())", json.dumps([2, LEAF]), arguments(LEAF), text(LEAF), text(tuple_of(LEAF, LEAF, LEAF))],
)
def test_flat_where_the_metadata_does_not_speak_of_these_inputs(build: Any, kernels: Any, encoded: str) -> None:
    model = load(build.program(two_sums(build, encoded, encoded)), kernels=[kernels])
    np.testing.assert_array_equal(model(X, Y, Z), [X + Y, Y + Z])


def test_wrong_structure(build: Any, kernels: Any) -> None:
    model = load(build.program(two_sums(build, arguments(LEAF, dict_of(a=LEAF), b=LEAF))), kernels=[kernels])
    takes = r"method 'forward' takes \(\*, \{'a': \*\}, b=\*\), got "
    with pytest.raises(InvalidArgument, match=takes + r"\(\*, \*, b=\*\): \* stands where the model takes \{'a': \*\}"):
        model(X, Y, b=Z)
    with pytest.raises(InvalidArgument, match=takes + r"\(\*, b=\*\): args\[1\] missing"):
        model(X, b=Z)
    with pytest.raises(InvalidArgument, match=takes + r"\(\*, \{'z': \*\}, c=\*\): b missing; it has no 'c'"):
        model(X, {"z": Y}, c=Z)
    with pytest.raises(InvalidArgument, match=r"got \(\*, \{'a': \*\}, c=\*\): b missing; it has no 'c'"):
        model(X, {"a": Y}, c=Z)


def test_wrong_arguments_are_named_by_their_path(build: Any, kernels: Any) -> None:
    model = load(build.program(two_sums(build, arguments(LEAF, dict_of(a=LEAF), b=LEAF))), kernels=[kernels])
    with pytest.raises(
        InvalidType, match=r"method 'forward', args\[1\]\['a'\]: expected float32\[2\], got dtype int64"
    ):
        model(X, {"a": np.array([1, 2])}, b=Z)
    with pytest.raises(InvalidArgument, match=r"method 'forward', b: expected float32\[2\], got shape \[3\]"):
        model(X, {"a": Y}, b=np.ones(3, np.float32))


def test_methods(build: Any, kernels: Any) -> None:
    first = two_sums(build, name="encode")
    x = build.tensor(2)
    second = build.plan([x], [x], name="forward", trees=(arguments(LEAF), text(LEAF)))
    model = load(build.program(first, second), kernels=[kernels])
    assert model.methods == ("encode", "forward")
    np.testing.assert_array_equal(model(X), X)
    np.testing.assert_array_equal(model["encode"](X, Y, Z)[0], X + Y)
    assert model.encode is model["encode"]
    assert model.metadata.name() == "forward"
    assert model.encode.metadata.num_inputs() == 3
    with pytest.raises(AttributeError, match="Module has neither an attribute nor a method 'decode'"):
        _ = model.decode
    with pytest.raises(NotFound, match="no method 'decode'; the program has encode, forward"):
        model["decode"]
    with pytest.raises(NotFound, match="no method 'backward'"):
        Module(model.program, "backward")


def test_none_is_a_leaf(build: Any, kernels: Any) -> None:
    nothing, x = build.value(Null()), build.tensor(2)
    plan = build.plan([x, nothing], [nothing, x], trees=(arguments(LEAF, LEAF), text(tuple_of(LEAF, LEAF))))
    model = load(build.program(plan), kernels=[kernels])
    assert model(X, None)[0] is None
    with pytest.raises(InvalidType, match=r"args\[1\]: expected None"):
        model(X, X)


# ---- containers --------------------------------------------------------------------------------------


def test_containers_of_python() -> None:
    root = tuple_of(
        node("collections.OrderedDict", ["b", "a"], LEAF, LEAF),
        node("collections.namedtuple", "main.Point", LEAF, LEAF),
        node("collections.deque", 3, LEAF),
        node("builtins.dict", [1], LEAF),
    )
    spec = parse_treespec(text(root))
    assert spec is not None
    result = spec.unflatten(range(6))
    assert result == (OrderedDict(b=0, a=1), (2, 3), deque([4]), {1: 5})
    assert (type(result[0]), type(result[1]), result[2].maxlen) == (OrderedDict, tuple, 3)
    assert spec.flatten(result) == list(range(6))
    assert spec.flatten(({"a": 1, "b": 0}, [2, 3], (4,), {1: 5})) == list(range(6))
    assert list(spec.paths("x")) == ["x[0]['b']", "x[0]['a']", "x[1][0]", "x[1][1]", "x[2][0]", "x[3][1]"]


def test_a_default_dict_is_a_dict() -> None:
    context = {"default_factory_module": "os", "default_factory_name": "system", "dict_context": ["q"]}
    spec = parse_treespec(text({"type": "collections.defaultdict", "context": context, "children_spec": [LEAF]}))
    assert spec is not None
    assert spec.unflatten([1]) == {"q": 1}


def test_unknown_containers() -> None:
    keyed = parse_treespec(
        text(node("transformers.modeling_outputs.BaseModelOutput", ["hidden", "logits"], LEAF, LEAF))
    )
    assert keyed is not None
    assert keyed.unflatten([1, 2]) == {"hidden": 1, "logits": 2}
    opaque = parse_treespec(text({"type": "acme.Pair", "context": "acme", "children_spec": [LEAF, LEAF]}))
    assert opaque is not None
    assert opaque.unflatten([1, 2]) == (1, 2)


def test_dataclasses() -> None:
    @dataclass
    class Output:
        a: int
        b: int | None = None

    spec = parse_treespec(text(node("main.Output", [["a"], ["b"]], LEAF)))
    assert spec is not None
    assert spec.unflatten([1]) == {"a": 1, "b": None}
    assert spec.flatten(Output(1)) == [1]
    assert spec.flatten({"a": 1, "b": None}) == [1]
    with pytest.raises(InvalidArgument, match=r"\{'a': \*, 'b': \*\} stands where the model takes \{'a': \*\}"):
        spec.flatten({"a": 1, "b": 2})


@pytest.mark.parametrize(
    "damaged",
    [
        "[",
        "[1]",
        '[1, {"type": "builtins.tuple"}]',
        text(node("builtins.dict", ["a", "b"], LEAF)),
        "[1, 5]",
        "[" * 100_000,
        text(node("builtins.dict", ["a", "a"], LEAF, LEAF)),
        text(node("builtins.dict", [["a"], "b"], LEAF, LEAF)),
        text(node("collections.deque", 1, LEAF, LEAF)),
        text(node("collections.deque", "x", LEAF, LEAF)),
        text(node("collections.deque", -1)),
        text(node("collections.deque", 10**30, LEAF)),
        text(node("example.Data", [["a"], ["a"]], LEAF)),
        text(node("example.Data", [["a"], [["b"]]], LEAF)),
        text(node("collections.defaultdict", 5, LEAF)),
        text({"type": "builtins.list", "context": None, "children_spec": 5}),
    ],
)
def test_damaged_specs(build: Any, kernels: Any, damaged: str) -> None:
    with pytest.raises(InvalidProgram, match="the container metadata is no pytree spec"):
        load(build.program(two_sums(build, damaged)), kernels=[kernels])


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (node("builtins.dict", ["a", "b"], LEAF), "2 keys for 1 children"),
        (node("builtins.dict", ["a", "a"], LEAF, LEAF), "a key is there twice, or is a container"),
        (node("collections.deque", 1, LEAF, LEAF), "a deque of at most 1 for 2 children"),
    ],
)
def test_why_a_spec_is_damaged(damaged: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidProgram, match=rf"no pytree spec: ValueError\('{reason}'\)"):
        parse_treespec(text(damaged))


def test_deep_specs_are_refused() -> None:
    deep = '{"type": "builtins.list", "context": "null", "children_spec": [' * 500 + "]}" * 500
    with pytest.raises(InvalidProgram, match="no pytree spec"):
        parse_treespec(f"[1, {deep}]")


def test_the_structure_of_what_is_deep() -> None:
    tree: Any = []
    tree.append(tree)
    assert str(TreeSpec.of(tree)) == "[" * 10 + "*" + "]" * 10


def test_nothing_that_a_spec_names_is_imported() -> None:
    parse_treespec(text(node("antigravity.Thing", ["a"], LEAF)))
    assert "antigravity" not in sys.modules


# ---- other people's tensors --------------------------------------------------------------------------


def test_torch_tensors_in_and_out(build: Any, kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    model = load(build.program(two_sums(build)), kernels=[kernels])
    first, second = model(torch.ones(2, requires_grad=True), torch.full((4,), 2.0)[::2], Z)
    assert isinstance(first, torch.Tensor)
    assert (first.tolist(), second.tolist()) == ([3, 3], [6, 6])
    assert all(isinstance(result, np.ndarray) for result in model(X, Y, Z))
    with pytest.raises(InvalidArgument, match=r"input 0: the tensor is on meta; pass tensor\.cpu\(\)"):
        model(torch.ones(2, device="meta"), Y, Z)
    with pytest.raises(InvalidArgument, match=r"the tensor is torch\.sparse_coo; pass tensor\.to_dense\(\)"):
        model(torch.ones(2).to_sparse(), Y, Z)
    with pytest.raises(InvalidType, match=r"expected float32\[2\], got dtype int64"):
        model(torch.ones(2, dtype=torch.int64), Y, Z)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_torch_tensors_of_dtypes_that_numpy_lacks(build: Any, kernels: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = build.tensor(2, dtype=dtype)
    model = load(build.program(build.plan([x], [x])), kernels=[kernels])
    tensor = torch.tensor([1.0, -2.0]).to(getattr(torch, dtype))
    (result,) = model(tensor)
    assert result.dtype == tensor.dtype
    assert result.float().tolist() == [1, -2]


def test_torch_memory_is_shared_where_nothing_is_planned(build: Any, kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    addresses = []
    kernels.kernel("test::look.out")(lambda context, x, out: addresses.append(x.ctypes.data))
    x = build.tensor(2, planned=False)
    out = build.call("test::look.out", x, build.tensor(2))
    tensor = torch.ones(2)
    load(build.program(build.plan([x], [out])), kernels=[kernels])(tensor)
    assert addresses == [tensor.data_ptr()]


@pytest.mark.filterwarnings("ignore:.*[Nn]ested tensors:UserWarning")
def test_tensors_without_memory(build: Any, kernels: Any) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Own(torch.Tensor):  # type: ignore[name-defined,misc]
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise KeyError("mine")

    with FakeTensorMode():
        fake = torch.ones(2)
    model = load(build.program(two_sums(build)), kernels=[kernels])
    for tensor in (fake, torch.ones(2).as_subclass(Own), torch.nested.nested_tensor([torch.ones(2)])):
        with pytest.raises(InvalidArgument, match="has no memory that can be read here"):
            model(tensor, torch.ones(2), torch.ones(2))
    with pytest.raises(InvalidArgument, match="has no memory that can be read here"):
        torch.func.vmap(lambda x: model(x, x, x))(torch.ones(3, 2))


def test_subclasses_of_arrays(build: Any, kernels: Any) -> None:
    class Silent(np.ndarray[Any, Any]):
        def __array_function__(self, *args: Any) -> None:
            """Does nothing, whatever is asked for."""

    x = np.ones(2, np.float32)
    model = load(build.program(two_sums(build)), kernels=[kernels])
    expected = model(x, x, x)
    np.testing.assert_array_equal(model((x * 1).view(Silent), x.view(Silent), x)[0], expected[0])
    np.testing.assert_array_equal(model(np.ma.masked_array(x, [False, False]), x, x)[0], expected[0])
    with pytest.raises(InvalidArgument, match=r"the array has masked elements; pass array\.filled"):
        model(np.ma.masked_array(x, [True, False]), x, x)


def test_dlpack(build: Any, kernels: Any) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    class OnDevice(Foreign):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it is on the device")

    model = load(build.program(two_sums(build)), kernels=[kernels])
    np.testing.assert_array_equal(model(Foreign(X), Y, Z)[0], X + Y)
    with pytest.raises(InvalidArgument, match="OnDevice gives no array through DLPack: it is on the device"):
        model(OnDevice(X), Y, Z)


def test_results_into_the_callers_arrays(build: Any, kernels: Any) -> None:
    plan = two_sums(build, result=text(dict_of(sum=LEAF, rest=tuple_of(LEAF))))
    model = load(build.program(plan), kernels=[kernels])
    total, rest = np.zeros(2, np.float32), np.zeros(2, np.float32)
    result = model(X, Y, Z, out={"sum": total, "rest": (rest,)})
    assert result["sum"] is total and result["rest"][0] is rest
    np.testing.assert_array_equal(total, X + Y)
    np.testing.assert_array_equal(rest, Y + Z)
    assert model(X, Y, Z, out={"sum": None, "rest": (rest,)})["sum"] is not total
    with pytest.raises(InvalidArgument, match=r"method 'forward', out: \* stands where the model takes"):
        model(X, Y, Z, out=total)


def test_an_argument_called_out_is_the_models(build: Any, kernels: Any) -> None:
    model = load(build.program(two_sums(build, arguments(LEAF, LEAF, out=LEAF))), kernels=[kernels])
    np.testing.assert_array_equal(model(X, Y, out=Z)[1], Y + Z)


def test_how_inputs_and_outputs_are_lent(build: Any, kernels: Any) -> None:
    program = build.program(two_sums(build))
    model = load(program, kernels=[kernels], inputs="borrow", outputs="borrow")
    assert model["forward"].method.borrowed_inputs == (0, 1, 2)
    first = model(X, Y, Z)
    assert model(Z, Y, X)[0] is first[0]
    assert model.session()["forward"].method.borrowed_inputs == (0, 1, 2)
    with pytest.raises(InvalidArgument, match="outputs='view': outputs are one of 'copy', 'borrow'"):
        load(program, kernels=[kernels], outputs="view")  # type: ignore[arg-type]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import numpy as np
import delegraph.runtime as runtime
for name in runtime.__all__:
    getattr(runtime, name)
assert "pluggy" not in sys.modules
assert dir(runtime) == runtime.__all__
"""


def test_without_torch_and_without_pluggy() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)
