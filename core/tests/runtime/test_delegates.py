"""Delegates: found, judged by their stamp, initialised, bound, run and destroyed."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import (
    BackendMissing,
    DelegateInvalidCompatibility,
    Internal,
    InvalidArgument,
    InvalidType,
    NotSupported,
)
from delegraph.interfaces import BlobStamp
from delegraph.interfaces.stamp import STAMP_KEY
from delegraph.program.schema import CompileSpec, NamedData
from delegraph.runtime import (
    Availability,
    BackendInterface,
    Compatibility,
    EventTracer,
    Platform,
    Runtime,
    Verdict,
    load,
)

STAMP = BlobStamp("Adder", "acme-adder", "1.2.0", 3)


class Adder(BackendInterface):
    """Adds the number in its blob to every input."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.contexts: list[Any] = []

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        handle = float(bytes(processed))
        self.log.append(("init", handle, [spec.key for spec in compile_specs]))
        self.threads = context.runtime_specs.get("threads", 1)
        self.contexts.append(context)
        return handle

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        *inputs, out = args
        out = context.resize(out, inputs[0].shape)
        np.copyto(out, sum(inputs) + handle)

    def destroy(self, handle: Any) -> None:
        self.log.append(("destroy", handle))


class Binder(Adder):
    def bind(self, context: Any, handle: Any, args: Any) -> Any:
        x, out = args
        return lambda: np.add(x, handle * 10, out=out)


class Broken(Adder):
    """Whatever it is told to raise."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        raise self.error


class Judge(Adder):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        return Compatibility(self.verdict, "its weights are packed for another chip")


def plus(build: Any, *numbers: float, specs: Sequence[CompileSpec] = (), dynamic: bool = False) -> Any:
    """x + sum(numbers), each by a delegate of its own."""
    x = value = build.tensor(2, dynamic=dynamic)
    for number in numbers:
        previous, value = value, build.tensor(2, dynamic=dynamic)
        build.delegate("Adder", previous, value, blob=str(number).encode(), specs=specs)
    return build.plan([x], [value])


def test_runs(build: Any, load_method: Any) -> None:
    method = load_method(build, plus(build, 1, 2), backends={"Adder": Adder()})
    np.testing.assert_array_equal(method.execute([np.float32([1, 2])])[0], [4, 5])


def test_bound_where_everything_is_fixed(build: Any, load_method: Any) -> None:
    method = load_method(build, plus(build, 1), backends={"Adder": Binder()})
    np.testing.assert_array_equal(method.execute([np.float32([1, 2])])[0], [11, 12])


def test_not_bound_where_shapes_change(build: Any, load_method: Any) -> None:
    method = load_method(build, plus(build, 1, dynamic=True), backends={"Adder": Binder()})
    assert method.execute([np.float32([1])])[0].tolist() == [2]
    assert method.execute([np.float32([1, 2])])[0].tolist() == [2, 3]


class Divider(Adder):
    def execute(self, context: Any, handle: Any, args: Any) -> None:
        np.divide(args[0], np.float32(0), out=args[1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_dividing_by_zero_is_silent_within_execute(build: Any, load_method: Any, dynamic: bool) -> None:
    method = load_method(build, plus(build, 1, dynamic=dynamic), backends={"Adder": Divider()})
    assert method.execute([np.float32([1, 0])])[0].tolist() == [np.inf, pytest.approx(np.nan, nan_ok=True)]


def test_lifecycle(build: Any, load_method: Any) -> None:
    backend = Adder()
    specs = [STAMP.to_compile_spec(), CompileSpec("chip", b"x1")]
    method = load_method(build, plus(build, 1, 2, specs=specs), backends={"Adder": backend})
    assert backend.log == [("init", 1, ["chip"]), ("init", 2, ["chip"])]  # the stamp is not the backend's own
    del method
    gc.collect()
    assert backend.log[2:] == [("destroy", 2), ("destroy", 1)]


def test_closing_destroys_once(build: Any, load_method: Any) -> None:
    backend = Adder()
    with_close = load_method(build, plus(build, 1), backends={"Adder": backend})
    with_close.close()
    with_close.close()
    assert backend.log == [("init", 1, []), ("destroy", 1)]


def test_what_init_may_use(build: Any, kernels: Any) -> None:
    backend, tracer, platform = Adder(), EventTracer(), Platform(ns_per_tick=2)
    plan = plus(build, 1)
    program = build.program(plan, named_data={"weights": NamedData(b"1234")})
    runtime = Runtime(kernels=[kernels], backends={"Adder": backend}, platform=platform)
    runtime.load_program(program).load_method("forward", backend_options={"Adder": {"threads": 2}}, event_tracer=tracer)
    (context,) = backend.contexts
    assert context.method_name == "forward"
    assert {key: bytes(data) for key, data in context.named_data.items()} == {"weights": b"1234"}
    assert dict(context.runtime_specs) == {"threads": 2}
    assert (context.event_tracer, context.platform) == (tracer, platform)


def test_missing_with_a_stamp(build: Any, load_method: Any) -> None:
    plan = plus(build, 1, specs=[STAMP.to_compile_spec()])
    with pytest.raises(BackendMissing) as caught:
        load_method(build, plan, backends={"Npu": Adder()})
    assert str(caught.value) == (
        "method 'forward' cannot be loaded:\n"
        "  backend 'Adder' is not installed (installed: Npu); the file says that its blob was made by"
        " 'acme-adder' '1.2.0', which is not installed; install the distribution that offers this backend, from where"
        " you trust it"
    )


def test_missing_without_a_stamp(build: Any, load_method: Any) -> None:
    with pytest.raises(
        BackendMissing, match=r"not installed \(installed: none\); its blob carries no stamp that would"
    ):
        load_method(build, plus(build, 1))


def test_all_that_are_missing_are_named(build: Any, load_method: Any) -> None:
    class Absent(Adder):
        def is_available(self) -> Availability:
            return Availability(False, "no /dev/npu0", "load the driver: modprobe npu")

    x = build.tensor(2)
    build.delegate("Npu", x, build.tensor(2))
    build.delegate("Dsp", x, build.tensor(2))
    with pytest.raises(BackendMissing) as caught:
        load_method(build, build.plan([x], []), backends={"Npu": Absent()})
    message = "backend 'Npu' is installed but not available here: no /dev/npu0; load the driver: modprobe npu"
    assert message in str(caught.value)
    assert "backend 'Dsp' is not installed" in str(caught.value)


@pytest.mark.parametrize(
    ("verdict", "stamped", "remedy"),
    [
        (Verdict.RECOMPILE, True, "; lower the model again with what is installed here"),
        (Verdict.REFUSE, True, "; use the release of the backend that reads it, or lower the model again"),
        (Verdict.REFUSE, False, "; lower the model again with what is installed here"),
    ],
)
def test_refused_blobs(build: Any, load_method: Any, verdict: Verdict, stamped: bool, remedy: str) -> None:
    backend = Judge(verdict)
    plan = plus(build, 1, specs=[STAMP.to_compile_spec()] if stamped else [])
    with pytest.raises(DelegateInvalidCompatibility) as caught:
        load_method(build, plan, backends={"Adder": backend})
    origin = "Adder blob version 3, made by acme-adder 1.2.0" if stamped else "a blob without a stamp"
    start = (
        f"method 'forward', delegate 0 (Adder): the backend refuses {origin}: its weights are packed for another chip"
    )
    assert str(caught.value).startswith(start + remedy)
    assert backend.log == []  # init never saw the blob


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (4, "Adder blob version 4, made by acme-adder 1.2.0; blob version 3 is read here: install a newer release of"),
        (2, "Adder blob version 2, made by acme-adder 1.2.0; blob version 3 is needed: lower the model again"),
    ],
)
def test_a_version_that_is_not_read_is_told_once(build: Any, load_method: Any, version: int, told: str) -> None:
    class Versioned(Adder):
        blob_version = 3

    plan = plus(build, 1, specs=[replace(STAMP, blob_version=version).to_compile_spec()])
    with pytest.raises(DelegateInvalidCompatibility) as caught:
        load_method(build, plan, backends={"Adder": Versioned()})
    message = str(caught.value)
    assert message.startswith(f"method 'forward', delegate 0 (Adder): the backend refuses {told}")
    assert message.count("blob version 3") == message.count("made by") == 1
    assert message.count("install") + message.count("lower") == 1


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        (b'{"blob_version": x}', "the stamp of its blob cannot be read: the file is damaged, or was made by"),
        (b"[" * 100_000, "the stamp of its blob cannot be read"),
        (b"", "the stamp of its blob cannot be read"),
        (b"\xff", "the stamp of its blob cannot be read"),
        (replace(STAMP, backend="Npu").to_compile_spec().value, "the stamp of its blob is one of backend 'Npu'"),
    ],
    ids=["no JSON", "deep", "empty", "no text", "another's"],
)
def test_a_stamp_that_is_damaged_is_not_none(build: Any, load_method: Any, stamp: bytes, told: str) -> None:
    backend = Adder()
    with pytest.raises(DelegateInvalidCompatibility) as caught:
        load_method(build, plus(build, 1, specs=[CompileSpec(STAMP_KEY, stamp)]), backends={"Adder": backend})
    assert str(caught.value).startswith(f"method 'forward', delegate 0 (Adder): {told}")
    assert backend.log == []  # init never saw the blob


@pytest.mark.parametrize(
    ("raised", "fault", "message"),
    [
        (InvalidArgument("no chip of that name"), InvalidArgument, r"method 'forward', delegate 1 \(Bad\): no chip"),
        (OSError("gone"), Internal, r"delegate 1 \(Bad\): while initialising: OSError: gone"),
    ],
)
def test_a_failing_init_destroys_the_others(
    build: Any, load_method: Any, raised: Exception, fault: type[Exception], message: str
) -> None:
    good, x = Adder(), build.tensor(2)
    build.delegate("Adder", x, build.tensor(2), blob=b"1")
    build.delegate("Bad", x, build.tensor(2))
    with pytest.raises(fault, match=message) as caught:
        load_method(build, build.plan([x], []), backends={"Adder": good, "Bad": Broken(raised)})
    assert caught.value.__cause__ is raised
    assert good.log == [("init", 1, []), ("destroy", 1)]


def test_a_missing_kernel_destroys_delegates(build: Any, load_method: Any) -> None:
    backend = Adder()
    plan = plus(build, 1)
    build.call("aten::sin.out", build.tensor(2), build.tensor(2))
    with pytest.raises(Exception, match=r"no kernel for\n  aten::sin\.out"):
        load_method(build, build.plan(plan.inputs, plan.outputs), backends={"Adder": backend})
    assert backend.log == [("init", 1, []), ("destroy", 1)]


def test_a_failing_execute_says_where(build: Any, load_method: Any) -> None:
    class Fails(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            raise NotSupported("batches of two")

    method = load_method(build, plus(build, 1), backends={"Adder": Fails()})
    place = r"method 'forward', instruction 0, delegate 0 Adder\(float32\[2\], float32\[2\]\): batches of two"
    with pytest.raises(NotSupported, match=place):
        method.execute([np.float32([1, 2])])


def test_a_failing_destroy_keeps_no_other_from_it(build: Any, load_method: Any) -> None:
    class Fails(Adder):
        def destroy(self, handle: Any) -> None:
            super().destroy(handle)
            if handle == 2:
                raise OSError("bus error")

    backend = Fails()
    method = load_method(build, plus(build, 1, 2), backends={"Adder": backend})
    with pytest.raises(Internal, match="method 'forward': destroying a delegate: OSError: bus error"):
        method.close()
    assert backend.log[2:] == [("destroy", 2), ("destroy", 1)]


def test_the_registry_of_backends(nothing_installed: Any) -> None:
    class Named(Adder):
        pass

    nothing_installed.register("backends", "Installed", Named)
    registry = Runtime(backends={"Mine": Adder()}).backend_registry
    assert registry.registered_backend_names == ["Installed", "Mine"]
    assert registry.is_available("Installed")
    missing = registry.is_available("Other")
    assert not missing
    assert "'Other' in delegraph.backends" in missing.reason


def test_options_of_a_backend_without_any() -> None:
    with pytest.raises(InvalidArgument, match="Adder has no options; got threads"):
        Adder().set_option({"threads": 1})
    with pytest.raises(InvalidArgument, match="Adder has no options; asked for threads"):
        Adder().get_option(["threads"])


def test_tools_wrap_what_delegates_do(build: Any, nothing_installed: Any, load_method: Any) -> None:
    from delegraph.plugins.tools import hookimpl

    calls: list[str] = []

    class Tool:
        @hookimpl(wrapper=True)
        def execute(self, plugin: Any, handle: Any) -> Any:
            calls.append(f"execute {handle}")
            return (yield)

        @hookimpl
        def method_loaded(self, method: Any) -> None:
            calls.append(f"loaded {method.metadata.name()}")

    nothing_installed.register("plugins", "tool", Tool())
    method = load_method(build, plus(build, 1), backends={"Adder": Binder()})
    assert method.execute([np.float32([1, 2])])[0].tolist() == [11, 12]  # what was bound ran, within the tool
    assert calls == ["loaded forward", "execute 1.0"]


# ---- options by backend --------------------------------------------------------------------------------


def test_options_by_id_and_by_the_name_in_lowering(build: Any, load_method: Any, nothing_installed: Any) -> None:
    nothing_installed.register("backends", "Adder", Adder)
    nothing_installed.register("partitioners", "add", lambda options: None)
    for name in ("Adder", "add"):
        method = load_method(build, plus(build, 1), backend_options={name: {"threads": 2}})
        assert nothing_installed.load("backends", "Adder").threads == 2
        method.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"Addr": {}}, "the program has no backend 'Addr'; its backends are Adder; did you mean 'Adder'?"),
        ({"mul": {}}, "the program has no backend 'mul'; its backends are Adder"),
        ({"Adder": 2}, "the options of backend 'Adder' are 2, which is not a mapping by option"),
        ({"add": {}, "Adder": {}}, "backend 'Adder' is given options twice, by its id and by its name"),
        (
            {"Adder": {"thread": 2}},
            "method 'forward', delegate 0 (Adder): backend 'Adder' has no option 'thread'; it has threads;"
            " did you mean 'threads'?",
        ),
    ],
)
def test_options_that_go_nowhere(
    build: Any, load_method: Any, nothing_installed: Any, options: Any, message: str
) -> None:
    nothing_installed.register("partitioners", "add", lambda options: None)
    nothing_installed.register("backends", "Adder", Adder)
    nothing_installed.register("backends", "Other", Adder())
    with pytest.raises(InvalidArgument) as caught:
        load_method(build, plus(build, 1), backend_options=options)
    assert str(caught.value) == message


def test_a_name_of_several_backends_of_the_program(build: Any, load_method: Any, nothing_installed: Any) -> None:
    nothing_installed.register("partitioners", "add", lambda options: None)
    x = build.tensor(2)
    for backend in ("Adder", "Fast"):
        nothing_installed.register("backends", backend, Adder())
        build.delegate(backend, x, build.tensor(2), blob=b"1")
    with pytest.raises(InvalidArgument, match="'add' of in-process may mean 'Adder' or 'Fast' here; name one of these"):
        load_method(build, build.plan([x], []), backend_options={"add": {}})


# ---- what backends get wrong ---------------------------------------------------------------------------


def test_an_is_available_that_raises(build: Any, load_method: Any) -> None:
    class Raises(Adder):
        def is_available(self) -> bool:
            raise OSError("no bus")

    class Says(Adder):
        def is_available(self) -> Any:
            return "yes"

    with pytest.raises(BackendMissing, match=r"not available here: its is_available raised OSError: no bus; report it"):
        load_method(build, plus(build, 1), backends={"Adder": Raises()})
    with pytest.raises(BackendMissing, match="its is_available returned 'yes', neither a bool nor an Availability"):
        load_method(build, plus(build, 1), backends={"Adder": Says()})


def test_a_check_that_returns_true(build: Any, load_method: Any) -> None:
    class Agrees(Adder):
        def check(self, stamp: Any) -> Any:
            return True

    message = r"delegate 0 \(Adder\): its check returned True; it has to return a delegraph\.interfaces\.Compatibility"
    with pytest.raises(Internal, match=message):
        load_method(build, plus(build, 1), backends={"Adder": Agrees()})


@pytest.mark.parametrize("raised", [KeyError("weights"), ValueError("x"), TypeError("y"), ZeroDivisionError("z")])
def test_a_fault_in_a_backend_is_the_backends(build: Any, load_method: Any, raised: Exception) -> None:
    class Fails(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            raise raised

    method = load_method(build, plus(build, 1), backends={"Adder": Fails()})
    with pytest.raises(Internal, match=rf"delegate 0 Adder\(.*\): {type(raised).__name__}: "):
        method.execute([np.float32([1, 2])])


class Detailed(NotSupported):
    """A plug-in's own exception, made of two things."""

    def __init__(self, chip: str, reason: str) -> None:
        super().__init__(f"{chip}: {reason}")
        self.chip = chip


class Worded(Detailed):
    def __str__(self) -> str:
        return f"the chip {self.chip}"


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [(Detailed("x1", "too hot"), Detailed, "x1: too hot"), (Worded("x1", "?"), NotSupported, "the chip x1")],
)
def test_exceptions_of_a_plugins_own(
    build: Any, load_method: Any, raised: Any, kind: type[Exception], text: str
) -> None:
    """They keep their class and attributes, and say where it happened."""
    with pytest.raises(kind) as caught:
        load_method(build, plus(build, 1), backends={"Adder": Broken(raised)})
    assert str(caught.value) == f"method 'forward', delegate 0 (Adder): {text}"
    assert caught.value.chip == "x1"  # type: ignore[attr-defined]
    assert caught.value.__cause__ is raised

    class Fails(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            raise raised

    method = load_method(build, plus(build, 1), backends={"Adder": Fails()})
    with pytest.raises(kind, match="instruction 0, delegate 0 Adder.*: " + text):
        method.execute([np.float32([1, 2])])


def test_a_backend_that_is_handed_over_under_another_id(build: Any) -> None:
    program = build.program(plus(build, 1))
    with pytest.raises(InvalidArgument, match="no backend 'Addr'; its backends are Adder; did you mean 'Adder'"):
        load(program, backends={"Addr": Adder()})


# ---- a half that is missing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_by", "remedy"),
    [
        (
            "numpy",
            "the file says that its blob was made by 'numpy' '{numpy}', which is installed but has no runtime half of"
            " that name: it offers nothing that Delegraph knows; its authors add the entry point 'Adder' in"
            " delegraph.backends",
        ),
        (
            "numpy 0.1",
            "the file says that its blob was made by 'numpy' '0.1'; numpy {numpy}, which is installed, offers nothing"
            " that Delegraph knows: another release may do",
        ),
    ],
)
def test_a_distribution_that_is_installed_without_the_backend(
    build: Any, load_method: Any, made_by: str, remedy: str
) -> None:
    distribution, _, version = made_by.partition(" ")
    stamp = BlobStamp("Adder", distribution, version or np.__version__, 1)
    with pytest.raises(BackendMissing) as caught:
        load_method(build, plus(build, 1, specs=[stamp.to_compile_spec()]))
    assert remedy.format(numpy=np.__version__) in str(caught.value)


def test_a_delegate_that_reshapes_its_output_changes_no_others(build: Any, load_method: Any) -> None:
    class Reshaping(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            args[-1].shape = (4,)
            np.add(args[0].reshape(4), handle, out=args[-1])

    x, out = build.tensor(2, 2), build.tensor(2, 2)
    build.delegate("Adder", x, out, blob=b"1")
    again = build.call("aten::add.out", out, out, build.int(1), build.tensor(2, 2))
    method = load_method(build, build.plan([x], [out, again]), backends={"Adder": Reshaping()})
    for _ in range(2):
        first, second = method.execute([np.ones((2, 2), np.float32)])
        np.testing.assert_array_equal(first, np.full((2, 2), 2))
        np.testing.assert_array_equal(second, np.full((2, 2), 4))


@pytest.mark.parametrize("raised", [InvalidArgument("a tensor of 3 dims"), InvalidType("int4")])
def test_a_backend_that_blames_the_caller(build: Any, load_method: Any, raised: Exception) -> None:
    """A caller's arguments were checked before: a delegate's arguments are its compiler's."""

    class Blames(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            raise raised

    method = load_method(build, plus(build, 1), backends={"Adder": Blames()})
    with pytest.raises(Internal, match=rf"delegate 0 Adder\(.*\): {raised}"):
        method.execute([np.float32([1, 2])])


def test_a_backend_that_wants_a_shape_that_its_output_cannot_have(build: Any, load_method: Any) -> None:
    class Resizes(Adder):
        def execute(self, context: Any, handle: Any, args: Any) -> None:
            context.resize(args[-1], (5,))

    method = load_method(build, plus(build, 1, dynamic=True), backends={"Adder": Resizes()})
    with pytest.raises(
        Internal, match=r"delegate 0 Adder\(.*\): a tensor with the upper bound \[2\] cannot become \[5\]"
    ):
        method.execute([np.float32([1, 2])])
