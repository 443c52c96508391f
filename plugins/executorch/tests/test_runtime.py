"""`delegraph_executorch.runtime` and the bindings: what code that was written for ExecuTorch's runtime relies on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph.errors import (
    DelegraphError,
    InvalidArgument,
    InvalidProgram,
    InvalidState,
    InvalidType,
    NotFound,
    NotSupported,
    RuntimeFault,
)
from delegraph.runtime import BufferDataLoader
from delegraph_executorch.exir.passes import MemoryPlanningPass
from delegraph_executorch.extension.pybindings import _C, portable_lib
from delegraph_executorch.runtime import MethodMeta, Runtime, Verification


class Scaled(torch.nn.Module):
    """Has state, a scalar among its arguments, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, times: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        return x * times, self.calls + 0


class Nothing(torch.nn.Module):
    """Takes nothing."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self) -> torch.Tensor:
        return torch.full((2,), 3, dtype=self.dtype)


X = torch.arange(6, dtype=torch.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scaled") / "m.pte"
    delegraph.lower(Scaled(), (X, 2), backends=[]).save(path)
    return path


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, torch.nn.Module]:
    """A program, its `.ptd`, and the model."""
    folder = tmp_path_factory.mktemp("linear")
    model = torch.nn.Linear(3, 4).eval()
    exported = torch.export.export(model, (X,))
    config = delegraph.ExecutorchBackendConfig(external_constants=True)
    delegraph.to_edge(exported).to_executorch(config).save(folder / "m.pte")
    (ptd,) = folder.glob("*.ptd")
    return folder / "m.pte", ptd, model


# ---- executorch.runtime ----------------------------------------------------------------------------


def test_sources_of_a_program(pte: Path) -> None:
    assert Runtime.get() is Runtime.get()
    data = pte.read_bytes()
    with open(pte, "rb") as file:
        for source in (pte, str(pte), data, bytearray(data), file):
            program = Runtime.get().load_program(source, verification=Verification.Minimal)
            assert program.method_names == {"forward"}
    with pytest.raises(TypeError, match="expected bytes, a path, a binary file object"):
        Runtime.get().load_program(3)  # type: ignore[arg-type]


def test_outputs_are_torch_tensors(pte: Path) -> None:
    outputs = load(pte).execute([X, 2])
    assert all(isinstance(output, torch.Tensor) for output in outputs)
    assert torch.equal(outputs[0], X * 2)


def load(path: Path) -> Any:
    method = Runtime.get().load_program(path).load_method("forward")
    assert method is not None
    return method


def test_outputs_of_a_method_without_inputs(tmp_path: Path) -> None:
    """Nobody says what they should be: torch tensors, as ExecuTorch's always are."""
    delegraph.lower(Nothing(), (), backends=[]).save(tmp_path / "m.pte")
    (output,) = load(tmp_path / "m.pte").execute([])
    assert torch.equal(output, torch.full((2,), 3.0))


def test_arrays_for_who_works_in_numpy(pte: Path) -> None:
    outputs = load(pte).execute([X.numpy(), 2])
    assert all(isinstance(output, np.ndarray) for output in outputs)


def test_without_torch(pte: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from delegraph_executorch.runtime import Runtime\n"
        f"method = Runtime.get().load_program({str(pte)!r}).load_method('forward')\n"
        "print(method.execute([np.ones((2, 3), np.float32), 2])[0].tolist(), method.metadata.num_outputs())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] 2\n", "")


def test_importing_it_imports_no_torch() -> None:
    script = (
        "import sys, delegraph_executorch.runtime, delegraph_executorch.extension.pybindings.portable_lib\n"
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_a_method_is_loaded_once_and_keeps_its_state(pte: Path) -> None:
    program = Runtime.get().load_program(pte)
    assert program.load_method("forward") is program.load_method("forward")
    method = program.load_method("forward")
    assert method is not None
    assert [method.execute([X, 2])[1].item() for _ in range(3)] == [1, 2, 3]


def test_unknown_methods(pte: Path) -> None:
    program = Runtime.get().load_program(pte)
    with pytest.raises(KeyError, match="no method 'backward'; the program has forward") as caught:
        program.load_method("backward")
    assert isinstance(caught.value, NotFound)
    with pytest.raises(RuntimeError, match="no method 'backward'"):
        program.metadata("backward")


def test_what_a_method_takes_and_gives(pte: Path) -> None:
    program = Runtime.get().load_program(pte)
    for meta in (program.metadata("forward"), load(pte).metadata):
        assert isinstance(meta, MethodMeta)
        tensor = "TensorInfo(sizes=[2, 3], dtype=Float, is_memory_planned=True, nbytes=24)"
        assert repr(meta.input_tensor_meta(0)) == tensor
        assert meta.input_tensor_meta(0).dtype() == 6
        assert repr(meta).startswith(
            f"MethodMeta(name='forward', num_inputs=2, input_tensor_meta=['{tensor}', 'Int'], "
        )
        for ask, index in (
            (meta.input_tensor_meta, 2),
            (meta.input_tensor_meta, 1),
            (meta.output_tensor_meta, -1),
        ):
            with pytest.raises(IndexError, match=r"there is no (input 2|output -1)|input 1 is no tensor"):
                ask(index)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.bfloat16, "BFloat16"), (torch.uint8, "Byte"), (torch.int64, "Long"), (torch.uint16, "UInt16")],
)
def test_names_of_dtypes(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    delegraph.lower(Nothing(dtype), (), backends=[]).save(tmp_path / "m.pte")
    assert f"dtype={name}, " in repr(load(tmp_path / "m.pte").metadata.output_tensor_meta(0))


def test_registries() -> None:
    runtime = Runtime.get()
    assert "aten::add.out" in runtime.operator_registry.operator_names
    assert runtime.backend_registry.registered_backend_names == portable_lib._get_registered_backend_names()
    assert not runtime.backend_registry.is_available("NonExistBackend")
    assert portable_lib._is_available("NonExistBackend") is False
    assert set(portable_lib._get_operator_names()) == runtime.operator_registry.operator_names


def test_etdump(pte: Path, tmp_path: Path) -> None:
    program = Runtime.get().load_program(pte, enable_etdump=True, debug_buffer_size=10_000)
    method = program.load_method("forward")
    assert method is not None
    method.execute([X, 2])
    program.write_etdump_result_to_file(str(tmp_path / "m.etdp"), str(tmp_path / "m.bin"))
    assert (tmp_path / "m.etdp").read_bytes()[8:12] == b"ED00"  # behind its length
    assert (2 * X).numpy().tobytes() in (tmp_path / "m.bin").read_bytes()
    with pytest.raises(RuntimeError, match="enable_etdump=True"):
        Runtime.get().load_program(pte).write_etdump_result_to_file("m.etdp", "m.bin")


# ---- the bindings ----------------------------------------------------------------------------------


def modules(pte: Path) -> list[Any]:
    data = pte.read_bytes()
    return [
        portable_lib._load_for_executorch(str(pte)),
        portable_lib._load_for_executorch_from_buffer(data),
        portable_lib._load_for_executorch_from_data_loader(BufferDataLoader(data)),
    ]


def test_modules(pte: Path) -> None:
    for module in modules(pte):
        assert module.method_names() == ["forward"]
        for outputs in (module.forward((X, 2)), module((X, 2)), module.run_method("forward", (X, 2))):
            assert torch.equal(outputs[0], X * 2)
        assert module.plan_execute("forward")[1].item() == 4  # the inputs stay, and so does the state
        assert module.method_meta("forward").num_inputs() == 2
        assert not module.has_etdump()


def test_programs_and_methods(pte: Path) -> None:
    for program in (portable_lib._load_program(str(pte)), portable_lib._load_program_from_buffer(pte.read_bytes())):
        assert (program.num_methods(), program.get_method_name(0), program.has_etdump()) == (1, "forward", False)
        method = program.load_method("forward")
        method.set_inputs([X, 2])
        method.execute()
        assert torch.equal(method.get_outputs()[0], X * 2)
        assert torch.equal(method.call([X, 2])[1], torch.tensor([2.0]))
        with pytest.raises(RuntimeError, match="there is no method 1; the program has forward"):
            program.get_method_name(1)


def test_a_single_tensor_is_the_only_input(linear: tuple[Path, Path, torch.nn.Module]) -> None:
    pte, ptd, model = linear
    module = portable_lib._load_for_executorch(str(pte), str(ptd))
    assert torch.allclose(module(X)[0], model(X))
    assert torch.equal(module.forward([X])[0], module(X)[0])


def test_outputs_that_are_not_cloned(pte: Path) -> None:
    module = portable_lib._load_for_executorch(str(pte))
    cloned = module.forward((X, 2))[0]
    view = module.forward((X, 2), clone_outputs=False)[0]
    module.forward((X + 1, 2))
    assert torch.equal(cloned, X * 2)
    assert torch.equal(view, (X + 1) * 2)


def test_external_constants(linear: tuple[Path, Path, torch.nn.Module]) -> None:
    """What is wrong with them shows when the module is used, as in ExecuTorch."""
    pte, ptd, model = linear
    expected = model(X)
    from_buffer = portable_lib._load_for_executorch_from_buffer
    assert torch.allclose(from_buffer(pte.read_bytes(), ptd.read_bytes()).forward([X])[0], expected)
    for data in (None, b"not a .ptd"):
        module = from_buffer(pte.read_bytes(), data)
        with pytest.raises(RuntimeError, match=r"\.ptd"):
            module.forward([X])


def test_external_constants_of_a_program(linear: tuple[Path, Path, torch.nn.Module]) -> None:
    pte, ptd, model = linear
    method = Runtime.get().load_program(pte, data_path=ptd).load_method("forward")
    assert method is not None
    torch.testing.assert_close(method.execute([X])[0], model(X))
    for load, source in ((_C._load_program, str(pte)), (_C._load_program_from_buffer, pte.read_bytes())):
        (result,) = load(source, data_path=str(ptd)).load_method("forward")([X])
        torch.testing.assert_close(result, model(X))


def test_attributes(tmp_path: Path) -> None:
    exported = torch.export.export(Scaled(), (X, 2))
    delegraph.to_edge(exported).to_executorch().save(tmp_path / "m.pte")
    method = portable_lib._load_program(str(tmp_path / "m.pte")).load_method("forward")
    method([X, 2])
    assert method.method_meta().attribute_names() == ("calls",)
    assert torch.equal(method.get_attribute("calls"), torch.tensor([1.0]))
    with pytest.raises(RuntimeError, match="no mutable buffer 'none'"):
        method.get_attribute("none")


@pytest.mark.parametrize(
    "fail",
    [
        lambda pte: portable_lib._load_program("/no/such/file.pte"),
        lambda pte: portable_lib._load_for_executorch("/no/such/file.pte"),
        lambda pte: portable_lib._load_program_from_buffer(b"nonsense"),
        lambda pte: portable_lib._load_for_executorch_from_buffer(b"nonsense").forward([X]),
        lambda pte: portable_lib._load_for_executorch(str(pte)).forward([X]),
        lambda pte: portable_lib._load_for_executorch(str(pte)).forward([[X], 2]),
        lambda pte: portable_lib._load_for_executorch(str(pte)).forward([X.double(), 2]),
        lambda pte: portable_lib._load_for_executorch(str(pte)).run_method("other", [X, 2]),
    ],
)
def test_errors_are_runtime_errors(pte: Path, fail: Callable[[Path], object]) -> None:
    """As ExecuTorch raises there; and ours, with their codes."""
    with pytest.raises(RuntimeError) as caught:
        fail(pte)
    assert isinstance(caught.value, RuntimeFault)
    assert isinstance(caught.value, DelegraphError)


def test_messages_begin_with_the_number_of_executorchs_error(pte: Path) -> None:
    module = portable_lib._load_for_executorch(str(pte))
    with pytest.raises(InvalidType, match=r"^Failed to execute method forward, error: 0x12\nmethod 'forward', x:"):
        module.forward([X.double(), 2])
    with pytest.raises(NotFound, match=r"^Failed to execute method other, error: 0x20\n"):
        module.run_method("other", [X, 2])
    with pytest.raises(InvalidProgram, match=r"^Failed to load program, error: 0x23\n"):
        portable_lib._load_program_from_buffer(b"nonsense")
    with pytest.raises(NotFound, match=r"^Failed to load method other, error: 0x20\n"):
        portable_lib._load_program(str(pte)).load_method("other")


def test_methods_share_the_buffers_that_they_were_planned_to_share() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.calls.add_(x) + 0

    class Reads(Counts):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.calls * x

    one = (torch.ones(1),)
    config = delegraph.ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    methods = {"count": Counts(), "read": Reads()}
    program = bytes(delegraph.lower(methods, dict.fromkeys(methods, one), config=config))
    module = portable_lib._load_for_executorch_from_buffer(program)
    from_bindings = portable_lib._load_program_from_buffer(program)
    from_runtime = Runtime.get().load_program(program)
    for _ in range(2):
        module.run_method("count", one)
        from_bindings.load_method("count")(one)
        from_runtime.load_method("count").execute(one)
    assert module.run_method("read", one) == [2]
    assert from_bindings.load_method("read")(one) == [2]
    assert from_runtime.load_method("read").execute(one) == [2]


def test_what_has_no_equal_says_what_replaces_it() -> None:
    with pytest.raises(NotSupported, match=r"backend_options=\{'cpu': \{'num_threads': 2\}\}"):
        portable_lib._unsafe_reset_threadpool(2)
    for ask in (
        lambda: portable_lib._create_profile_block("x"),
        portable_lib._dump_profile_results,
        portable_lib._reset_profile_results,
    ):
        with pytest.raises(NotSupported, match="enable_etdump=True"):
            ask()
    assert portable_lib._threadpool_get_thread_count() >= 1
    with pytest.raises(ImportError, match="pip install delegraph-aten"):
        import delegraph_executorch.extension.pybindings.aten_lib  # noqa: F401


def test_operators_of_language_models_are_defined_by_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch.extension.llm.custom_ops.custom_ops", None)
    with pytest.raises(ImportError, match=r"install executorch .* torch\.nn\.functional\.scaled_dot_product"):
        from delegraph_executorch.extension.llm.custom_ops import custom_ops  # noqa: F401


def test_a_debug_buffer_needs_an_etdump(pte: Path) -> None:
    with pytest.raises(InvalidArgument, match="give enable_etdump=True"):
        Runtime.get().load_program(pte, debug_buffer_size=1000)


def test_a_module_s_etdump(pte: Path, tmp_path: Path) -> None:
    module = portable_lib._load_for_executorch(str(pte), enable_etdump=True)
    assert module.has_etdump()
    module.forward((X, 2))
    module.write_etdump_result_to_file(str(tmp_path / "m.etdp"))
    assert [path.name for path in tmp_path.iterdir()] == ["m.etdp"]
    with pytest.raises(InvalidState):
        portable_lib._load_for_executorch(str(pte)).write_etdump_result_to_file(str(tmp_path / "none"))
