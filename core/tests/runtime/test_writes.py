"""The values that a program may write: never a constant, the caller's own input, or a value of another kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.runtime import BackendInterface, Borrowing

ONES = np.ones(2, np.float32)


class Poke(BackendInterface):
    """Writes 7 into its last argument past NumPy's flags, as a driver does that is handed an address."""

    outputs: int | None = None

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return None

    def num_outputs(self, handle: Any) -> int | None:
        return self.outputs

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        import ctypes

        for out in args[1:]:
            ctypes.memset(out.ctypes.data, 7, out.nbytes)


class PokeTwo(Poke):
    outputs = 2


def refuse(build: Any, load_method: Any, message: str, *, inputs: Any = (), backend: Any = None) -> None:
    with pytest.raises(InvalidProgram, match=message):
        load_method(build, build.plan(inputs), backends={"Poke": backend or Poke()})


def test_a_delegate_does_not_write_into_a_constant(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.delegate("Poke", x, build.constant(ONES))
    refuse(
        build, load_method, r"instruction 0, delegate 0 Poke\(.*\): it writes value 1, which is a constant", inputs=[x]
    )


def test_nor_into_one_among_its_outputs(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.delegate("Poke", x, build.constant(ONES), build.tensor(2))
    refuse(build, load_method, "it writes value 1, which is a constant", inputs=[x], backend=PokeTwo())


def test_nor_into_an_external_one(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.delegate("Poke", x, build.external("w", 2))
    with pytest.raises(InvalidProgram, match="it writes value 1, which is a constant"):
        load_method(build, build.plan([x]), backends={"Poke": Poke()}, data_path=_ptd())


def _ptd() -> bytes:
    from delegraph.program import serialize_flat_tensor
    from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout
    from delegraph.program.schema import ScalarType

    return serialize_flat_tensor(FlatTensor({"w": ExternalData(bytes(8), TensorLayout(ScalarType.FLOAT, (2,), (0,)))}))


def test_nor_into_the_callers_input(build: Any, load_method: Any) -> None:
    x = build.tensor(2, planned=False)
    build.delegate("Poke", build.tensor(2), x)
    refuse(build, load_method, "value 0, an input without planned memory, which is the caller's", inputs=[x])


def test_nor_into_a_number(build: Any, load_method: Any) -> None:
    build.delegate("Poke", build.tensor(2), build.int(1))
    refuse(build, load_method, "it writes value 1, a Int, where it gives a tensor")


def test_a_delegate_with_more_outputs_than_values(build: Any, load_method: Any) -> None:
    build.delegate("Poke", build.tensor(2))
    refuse(build, load_method, "the delegate has 2 outputs, and is called with 1 values", backend=PokeTwo())


def test_nor_into_a_view_of_a_constant(build: Any, load_method: Any) -> None:
    x, constant, view = build.tensor(2), build.constant(ONES), build.tensor(2, dynamic=True)
    build.prim("executorch_prim::et_view.default", constant, build.ints(build.int(2)), view)
    build.delegate("Poke", x, view)
    method = load_method(build, build.plan([x], [constant]), backends={"Poke": Poke()})
    with pytest.raises(InvalidProgram, match="an output of the delegate lies in memory that is not the method's own"):
        method.execute([ONES])
    assert method._loaded.values.slots[constant].tolist() == [1, 1]


def test_a_kernel_does_not_write_into_a_constant(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.call("aten::mul.out", x, x, build.constant(ONES))
    refuse(build, load_method, "it writes value 1, which is a constant", inputs=[x])


def test_nor_into_one_in_a_list_of_results(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    constant = build.constant(ONES)
    build.prim("aten::split_copy.Tensor_out", x, build.int(1), build.int(0), build.tensors(constant))
    refuse(build, load_method, "it writes value 1, which is a constant", inputs=[x])


def test_nor_through_a_view_of_the_callers_input(build: Any, load_method: Any) -> None:
    x, view = build.tensor(2, planned=False), build.tensor(2, dynamic=True)
    build.prim("executorch_prim::et_view.default", x, build.ints(build.int(2)), view)
    build.call("aten::mul.out", x, build.constant(ONES * 3), view)
    method = load_method(build, build.plan([x], []))
    array = ONES.copy()
    with pytest.raises(InvalidArgument, match="read-only"):
        method.execute([array])
    assert array.tolist() == [1, 1]


def test_a_kernel_that_hides_what_it_writes(build: Any, kernels: Any, load_method: Any) -> None:
    @kernels.kernel("test::negate_")
    def negate_(context: Any, x: Any) -> None:
        np.negative(x, x)

    x = build.tensor(2, planned=False)
    build.prim("test::negate_", x)  # without the slot that would say so
    array = ONES.copy()
    with pytest.raises(InvalidArgument, match="read-only"):
        load_method(build, build.plan([x], [])).execute([array])
    assert array.tolist() == [1, 1]


def test_an_argument_that_the_model_changes(build: Any, load_method: Any) -> None:
    x = build.tensor(2, planned=False)
    build.prim("aten::copy_", x, build.constant(ONES * 3), build.bool(False), x)
    method = load_method(build, build.plan([x], []))
    array = ONES.copy()
    method.execute([array])
    assert array.tolist() == [3, 3]
    with pytest.raises(InvalidArgument, match=r"input 0: the model changes this argument.*pass array\.copy\(\)"):
        method.execute([np.frombuffer(bytes(8), np.float32)])


def test_an_argument_that_is_copied_is_not_changed(build: Any, load_method: Any) -> None:
    x = build.tensor(2, planned=False)
    build.prim("aten::copy_", x, build.constant(ONES * 3), build.bool(False), x)
    method = load_method(build, build.plan([x], [x]), borrowing=Borrowing(inputs="copy"))
    array = ONES.copy()
    assert method.execute([array])[0].tolist() == [3, 3]
    assert array.tolist() == [1, 1]


def test_moves_keep_off_what_is_not_the_methods(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.move(x, build.constant(ONES))
    refuse(build, load_method, "it writes value 1, which is a constant", inputs=[x])
    build.instructions.clear()
    unplanned = build.tensor(2, planned=False)
    build.move(x, unplanned)
    refuse(build, load_method, "value 2, an input without planned memory", inputs=[unplanned])


def test_a_list_is_not_moved_into_its_own_item(build: Any, load_method: Any) -> None:
    item = build.int(1)
    build.move(build.ints(item, item), item)
    refuse(build, load_method, "a IntList is moved to a Int")


@pytest.mark.parametrize(
    ("op", "operands", "result", "message"),
    [
        ("add.Scalar", ("int", "int"), "tensor", "a Tensor, where it gives a Int"),
        ("add.Scalar", ("int", "double"), "int", "a Int, where it gives a Double"),
        ("mul.Scalar", ("int", "int"), "ints", "a IntList, where it gives a Int"),
        ("truediv.Scalar", ("int", "int"), "int", "a Int, where it gives a Double"),
        ("eq.Scalar", ("int", "int"), "int", "a Int, where it gives a Bool"),
        ("sym_ite.Scalar", ("bool", "tensor", "tensor"), "int", "a Int, where it gives a NoneType"),
        ("sym_ite.Scalar", ("bool", "int", "double"), "int", "a Int, where it gives a NoneType"),
    ],
)
def test_scalar_operators_keep_the_kinds_of_values(
    build: Any, load_method: Any, op: str, operands: tuple[str, ...], result: str, message: str
) -> None:
    make: dict[str, Callable[[], int]] = {
        "int": lambda: build.int(1),
        "double": lambda: build.double(1.0),
        "bool": lambda: build.bool(True),
        "tensor": lambda: build.tensor(2),
        "ints": build.ints,
    }
    build.prim(f"executorch_prim::{op}", *(make[kind]() for kind in (*operands, result)))
    refuse(build, load_method, message)


def test_elements_keep_the_kinds_of_values(build: Any, load_method: Any) -> None:
    build.prim("aten::_local_scalar_dense", build.tensor(1, dtype="bfloat16"), build.int(0))
    refuse(build, load_method, "a Int, where it gives a Double")


def test_views_keep_the_dtype(build: Any, load_method: Any) -> None:
    view = build.tensor(2, dtype="int32", dynamic=True)
    build.prim("executorch_prim::et_view.default", build.tensor(2), build.ints(build.int(2)), view)
    refuse(build, load_method, "takes a tensor of its result's dtype")
