"""Delegates with several blobs or a fall-back: the first that can run here does, says why, and nothing else is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import (
    BackendMissing,
    DelegateInvalidCompatibility,
    FallbackWarning,
    InvalidArgument,
    InvalidProgram,
    LimitExceeded,
    MemoryAllocationFailed,
    NotFound,
    RuntimeFault,
)
from delegraph.interfaces import BlobStamp, DataLoader
from delegraph.program import deserialize_program, serialize_program, to_text, verify_program
from delegraph.program.alternatives import AlternativeOf, alternative_of
from delegraph.program.schema import CompileSpec, ExecutionPlan, Int, NamedData, Program
from delegraph.runtime import (
    Availability,
    BackendInterface,
    Compatibility,
    EventTracer,
    HierarchicalAllocator,
    Limits,
    MemoryManager,
    Runtime,
    Verdict,
)

from .conftest import PlanBuilder, numpy_kernels


class Board(BackendInterface):
    """Adds the number in its blob; takes blobs for its own revision, and those for none."""

    def __init__(self, revision: str, *, here: bool = True) -> None:
        self.revision, self.here = revision, here
        self.blobs: list[bytes] = []

    def is_available(self) -> Availability:
        return Availability(self.here, "" if self.here else "no board is plugged in")

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        if stamp is not None and stamp.variant not in ("", self.revision):
            return Compatibility(Verdict.REFUSE, f"it is for {stamp.variant}, this board is {self.revision}")
        return Compatibility(Verdict.OK)

    def init(self, context: Any, processed: Any, compile_specs: Any) -> float:
        self.blobs.append(bytes(processed))
        return float(bytes(context.named_data["weights"])) if bytes(processed) == b"named" else float(bytes(processed))

    def execute(self, context: Any, handle: float, args: Any) -> None:
        np.add(args[0], handle, out=args[-1])


def specs(variant: str) -> tuple[CompileSpec, ...]:
    return (BlobStamp("Board", "acme-board", "1.0", 1, variant).to_compile_spec(),)


def method(build: PlanBuilder, *, calls: int = 1, variant: str = "r2") -> ExecutionPlan:
    """y = delegate(x) * x, the delegate called once or more, one result after the other."""
    x, out = build.tensor(4), build.tensor(4)
    source = x
    for _ in range(calls):
        middle = build.tensor(4)
        build.delegate("Board", source, middle, blob=b"100", specs=specs(variant))
        source = middle
    build.instructions[:] = [replace(call, delegate_index=0) for call in build.instructions]  # type: ignore[call-arg]
    build.delegates[:], build.blobs[:] = build.delegates[:1], build.blobs[:1]
    build.call("aten::mul.out", source, x, out)
    return build.plan((x,), (out,))


def variant(blob: int, name: str, place: int = 1) -> ExecutionPlan:
    """Another blob of delegate 0."""
    build = PlanBuilder()
    x, out = build.tensor(4, planned=False), build.tensor(4, planned=False)
    build.delegate("Board", x, out, specs=specs(name))
    build.delegates[0] = replace(build.delegates[0], processed=blob)
    return build.plan((x,), (out,), name=AlternativeOf("forward", 0, place).plan_name)


def fallback(place: int = 1, *, of: int = 0, named: str = "state") -> ExecutionPlan:
    """y = x + x + state, in scratch memory; then state = y."""
    build = PlanBuilder()
    x, out = build.tensor(4, planned=False), build.tensor(4, planned=False)
    one, twice, state = build.int(1), build.tensor(4), build.tensor(4, at=0, name=named)
    place_of_state = replace(build.values[state].allocation_info, memory_id=2)  # type: ignore[union-attr]
    build.values[state] = replace(build.values[state], allocation_info=place_of_state)  # type: ignore[call-arg]
    build.call("aten::add.out", x, x, one, twice)
    build.call("aten::add.out", twice, state, one, out)
    build.prim("aten::copy_", state, out, build.bool(False), state)
    plan = build.plan((x,), (out,), name=AlternativeOf("forward", of, place).plan_name)
    return replace(plan, non_const_buffer_sizes=(0, 64, 16))


def program(build: PlanBuilder, plan: ExecutionPlan, *others: ExecutionPlan, blobs: Sequence[bytes] = ()) -> Program:
    build.blobs += blobs
    named = {"weights": NamedData(b"7"), "others": NamedData(b"8")}
    return build.program(plan, *others, named_data=named)


def loaded(records: Program, board: Board | None, **options: Any) -> Any:
    runtime = Runtime(kernels=[numpy_kernels()], backends={} if board is None else {"Board": board})
    return runtime.load_program(serialize_program(records)).load_method("forward", **options)


X = np.arange(1, 5, dtype=np.float32)

# ---- which is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "place", "added"), [("r2", 0, 100), ("r1", 1, 10), ("r0", 2, 1)])
def test_the_first_blob_that_the_backend_accepts_is_taken(
    build: PlanBuilder, revision: str, place: int, added: float
) -> None:
    board = Board(revision)
    records = program(build, method(build), variant(1, "r1"), variant(2, "r0", 2), blobs=[b"10", b"1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = loaded(records, board)
    np.testing.assert_array_equal(ran.execute([X])[0], (X + added) * X)
    assert board.blobs == [str(added).encode()]  # no other was looked at
    (choice,) = ran.delegate_choices
    assert (choice.place, choice.variant, choice.is_fallback) == (place, revision, False)
    assert len(choice.reasons) == place
    assert all(f"this board is {revision}" in reason for reason in choice.reasons)


def test_where_none_is_accepted_all_reasons_are_told(build: PlanBuilder) -> None:
    records = program(build, method(build), variant(1, "r1"), blobs=[b"10"])
    with pytest.raises(DelegateInvalidCompatibility, match=r"delegate 0 \(Board\).*(?s:.*)for r2, .*(?s:.*)for r1, "):
        loaded(records, Board("r7"))
    with pytest.raises(BackendMissing, match=r"delegate 0 .*nothing .* can run here:(?s:.*)not installed"):
        loaded(records, None)


@pytest.mark.parametrize("board", [None, Board("r2", here=False), Board("r9")])
def test_a_fallback_runs_where_the_backend_cannot(build: PlanBuilder, board: Board | None) -> None:
    records = program(build, method(build), fallback())
    reasons = {None: "not installed", "r2": "no board is plugged in", "r9": "this board is r9"}
    with pytest.warns(FallbackWarning, match="delegates 0, of Board, run their fall-backs here") as told:
        ran = loaded(records, board)
    reason = reasons[None if board is None else board.revision]
    assert len(told) == 1 and reason in str(told[0].message)
    np.testing.assert_array_equal(ran.execute([X])[0], 2 * X * X)
    np.testing.assert_array_equal(ran.execute([X])[0], 4 * X * X)  # the state of the run before
    (choice,) = ran.delegate_choices
    assert choice.is_fallback and choice.fallback == () and reason in str(choice)
    assert str(choice).startswith("delegate 0 (Board) runs its fall-back, on kernels: ")


def test_a_blob_is_taken_before_the_fallback(build: PlanBuilder) -> None:
    records = program(build, method(build), variant(1, "r1"), fallback(2), blobs=[b"10"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded(records, Board("r1")).execute([X])[0], (X + 10) * X)
    with pytest.warns(FallbackWarning, match="for r2.*; .*for r1"):
        assert loaded(records, Board("r0")).delegate_choices[0].place == 2


def test_a_fallback_on_another_backend(build: PlanBuilder) -> None:
    class Other(Board):
        pass

    other = variant(1, "")
    other = replace(other, delegates=(replace(other.delegates[0], id="Other", compile_specs=()),))
    records = program(build, method(build), other, fallback(2), blobs=[b"5"])
    runtime = Runtime(kernels=[numpy_kernels()], backends={"Other": Other("r1")})
    with pytest.warns(FallbackWarning):
        ran = runtime.load_program(records).load_method("forward")
    np.testing.assert_array_equal(ran.execute([X])[0], (X + 5) * X)
    assert ran.delegate_choices[0].fallback == ("Other",)
    with pytest.warns(FallbackWarning):
        assert loaded(records, None).delegate_choices[0].fallback == ()


# ---- blobs that cannot be initialised -----------------------------------------------------------------


class Broken(Board):
    """Accepts every blob, and initialises none of those for revisions that are broken."""

    def __init__(self, error: Exception, *broken: bytes) -> None:
        super().__init__("any")
        self.error, self.broken, self.destroyed = error, broken, 0

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        return Compatibility(Verdict.OK)

    def init(self, context: Any, processed: Any, compile_specs: Any) -> float:
        if bytes(processed) in self.broken:
            raise self.error
        return super().init(context, processed, compile_specs)

    def destroy(self, handle: Any) -> None:
        self.destroyed += 1


NO_QUEUE = OSError("the driver gives no queue")


def test_a_fallback_runs_where_the_blob_cannot_be_initialised(build: PlanBuilder) -> None:
    records = program(build, method(build), fallback())
    with pytest.warns(FallbackWarning, match="delegates 0, of Board, run their fall-backs here") as told:
        ran = loaded(records, Broken(NO_QUEUE, b"100"))
    reason = (
        "the backend failed on Board blob 'r2', version 1, made by acme-board 1.0: while initialising: OSError: the"
        " driver gives no queue"
    )
    assert len(told) == 1
    np.testing.assert_array_equal(ran.execute([X])[0], 2 * X * X)
    assert ran.delegate_choices[0].is_fallback and ran.delegate_choices[0].reasons == (reason,)
    assert reason in str(told[0].message)


def test_the_next_blob_is_tried_before_the_fallback(build: PlanBuilder) -> None:
    records = program(build, method(build), variant(1, "r1"), variant(2, "r0", 2), fallback(3), blobs=[b"10", b"1"])
    board = Broken(NO_QUEUE, b"100", b"10")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = loaded(records, board)
    np.testing.assert_array_equal(ran.execute([X])[0], (X + 1) * X)
    assert ran.delegate_choices[0].variant == "r0" and len(ran.delegate_choices[0].reasons) == 2


def test_all_that_fail_are_replaced_at_once_and_the_others_loaded_again(build: PlanBuilder) -> None:
    x, first, second, out = (build.tensor(4) for _ in range(4))
    for source, target, blob in ((x, first, b"1"), (first, second, b"bad"), (second, out, b"2")):
        build.delegate("Board", source, target, blob=blob)
    plan = build.plan((x,), (out,))
    others = [fallback(of=index, named=f"s{index}") for index in range(3)]
    board = Broken(NO_QUEUE, b"bad")
    with pytest.warns(FallbackWarning, match="delegates 1, of Board"):
        ran = loaded(program(build, plan, *others), board)
    np.testing.assert_array_equal(ran.execute([X])[0], 2 * (X + 1) + 2)
    assert board.blobs == [b"1", b"2", b"1", b"2"] and board.destroyed == 2
    board.broken = (b"bad", b"1", b"2")
    with pytest.warns(FallbackWarning, match="delegates 0, 2, of Board"):
        again = ran.program.load_method("forward", like=ran)
    np.testing.assert_array_equal(again.execute([X])[0], 8 * X)


def test_where_nothing_is_left_the_fault_of_init_is_raised_with_all_reasons(build: PlanBuilder) -> None:
    records = program(build, method(build), variant(1, "r1"), blobs=[b"10"])
    board = Broken(MemoryAllocationFailed("the board is full"), b"100", b"10")
    with pytest.raises(
        MemoryAllocationFailed, match=r"delegate 0 \(Board\): nothing (?s:.*)'r2'(?s:.*)full(?s:.*)'r1'"
    ) as told:
        loaded(records, board)
    assert str(told.value).count("the board is full") == 2


@pytest.mark.parametrize(
    "fault",
    [
        InvalidArgument("the board has no such mode"),
        LimitExceeded("the limit is reached"),
        InvalidProgram("its weights are damaged"),
    ],
)
def test_what_the_caller_or_the_file_did_is_an_error(build: PlanBuilder, fault: RuntimeFault) -> None:
    with pytest.raises(type(fault), match=f"delegate 0 .Board.: {fault}"):
        loaded(program(build, method(build), fallback()), Broken(fault, b"100"))


def test_an_option_that_nobody_has_is_an_error(build: PlanBuilder) -> None:
    with pytest.raises(InvalidArgument, match="has no option 'spede'"):
        loaded(program(build, method(build), fallback()), Board("r2"), backend_options={"Board": {"spede": 1}})


# ---- what runs then --------------------------------------------------------------------------------


def test_a_delegate_that_is_called_twice_has_one_state(build: PlanBuilder) -> None:
    records = program(build, method(build, calls=2), fallback())
    with pytest.warns(FallbackWarning):
        ran = loaded(records, None)
    np.testing.assert_array_equal(ran.execute([X])[0], (2 * 2 * X + 2 * X) * X)
    assert set(ran.state) == {"state"}
    np.testing.assert_array_equal(ran.state["state"], 6 * X)
    ran.state.reset()
    np.testing.assert_array_equal(ran.execute([X])[0], 6 * X * X)


def test_scratch_is_shared_and_counts_among_the_limits(build: PlanBuilder) -> None:
    x, middle, out = build.tensor(4), build.tensor(4), build.tensor(4)
    build.delegate("Board", x, middle)
    build.delegate("Board", middle, out)
    plan = build.plan((x,), (out,))
    records = program(build, plan, fallback(of=0, named="a"), fallback(of=1, named="b"))
    with pytest.warns(FallbackWarning, match="delegates 0, 1, of Board"):
        ran = loaded(records, None)
    sizes = ran._loaded.plan.non_const_buffer_sizes
    assert sizes == (*plan.non_const_buffer_sizes, 64, 16, 16)
    np.testing.assert_array_equal(ran.execute([X])[0], 4 * X)
    assert set(ran.state) == {"a", "b"}
    enough = sum(sizes)
    with pytest.warns(FallbackWarning):
        loaded(records, None, limits=Limits(planned_bytes=enough))
    with pytest.warns(FallbackWarning), pytest.raises(RuntimeFault, match="planned"):
        loaded(records, None, limits=Limits(planned_bytes=enough - 1))


def test_the_callers_memory_is_the_methods_and_the_rest_is_allocated(build: PlanBuilder) -> None:
    records = program(build, method(build), fallback())
    memory = MemoryManager(HierarchicalAllocator.of_sizes([build.used]))
    with pytest.warns(FallbackWarning):
        ran = loaded(records, None, memory_manager=memory)
    np.testing.assert_array_equal(ran.execute([X])[0], 2 * X * X)
    with pytest.warns(FallbackWarning), pytest.raises(RuntimeFault, match="80 bytes of planned memory"):
        loaded(records, None, memory_manager=memory, limits=Limits(planned_bytes=79))


def test_events_and_errors_tell_the_place_in_the_file(build: PlanBuilder) -> None:
    records = program(build, method(build), fallback())
    tracer = EventTracer()
    with pytest.warns(FallbackWarning):
        ran = loaded(records, None, event_tracer=tracer)
    ran.execute([X])
    events = [(event.name, event.instruction) for event in tracer.blocks[-1].profile_events if event.instruction >= 0]
    assert events == [
        ("aten::add.out for delegate 0", 0),
        ("aten::add.out for delegate 0", 0),
        ("aten::copy_ for delegate 0", 0),
        ("aten::mul.out", 1),
    ]
    failing = PlanBuilder()
    x, out = failing.tensor(4, planned=False), failing.tensor(4, planned=False)
    failing.call("test::fail.out", x, out)
    own = failing.plan((x,), (out,), name=AlternativeOf("forward", 0, 1).plan_name)
    build = PlanBuilder()
    with pytest.warns(FallbackWarning):
        ran = loaded(program(build, method(build), own), None)
    with pytest.raises(RuntimeFault, match=r"instruction 0, step 0 in the place of delegate 0, test::fail.out"):
        ran.execute([X])


def test_jumps_land_where_they_did(build: PlanBuilder) -> None:
    """A loop in the method around the call, and a jump within the alternative."""
    x, out = build.tensor(4), build.tensor(4)
    again, never = build.bool(True), build.bool(False)
    to_call = build.jump_false(never, 0)
    build.call("aten::mul.out", x, x, x)  # jumped over
    build.land(to_call)
    build.delegate("Board", x, out)
    to_end = build.jump_false(again, 0)
    build.move(never, again)
    build.jump_false(never, 2)
    build.land(to_end)
    plan = build.plan((x,), (out,))
    inner = PlanBuilder()
    a, b = inner.tensor(4, planned=False), inner.tensor(4, planned=False)
    one, state, false = inner.int(1), inner.tensor(4, name="state"), inner.bool(False)
    over = inner.jump_false(false, 0)
    inner.call("aten::mul.out", a, a, b)
    inner.land(over)
    inner.call("aten::add.out", a, state, one, b)
    inner.prim("aten::copy_", state, b, false, state)
    to_the_end = inner.jump_false(false, 0)
    inner.call("aten::mul.out", a, a, b)
    inner.land(to_the_end)
    with pytest.warns(FallbackWarning):
        ran = loaded(program(build, plan, inner.plan((a,), (b,), name=AlternativeOf("forward", 0, 1).plan_name)), None)
    np.testing.assert_array_equal(ran.execute([X])[0], 2 * X)


def test_another_session_runs_the_same_and_says_nothing(build: PlanBuilder) -> None:
    board = Board("r9")
    with pytest.warns(FallbackWarning):
        first = loaded(program(build, method(build), fallback()), board)
    board.revision = "r2"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = first.program.load_method("forward", like=first)
    first.execute([X])
    np.testing.assert_array_equal(second.execute([X])[0], 2 * X * X)  # a state of its own


# ---- the file --------------------------------------------------------------------------------------


def test_alternatives_are_no_methods(build: PlanBuilder) -> None:
    records = program(build, method(build), variant(1, "r1"), fallback(2), blobs=[b"10"])
    opened = Runtime(kernels=[numpy_kernels()], backends={"Board": Board("r2")}).load_program(records)
    assert opened.method_names == {"forward"}
    with pytest.raises(NotFound, match="the program has forward"):
        opened.load_method(AlternativeOf("forward", 0, 1).plan_name)
    assert opened.metadata("forward").num_backends() == 1
    assert deserialize_program(serialize_program(records)) == records
    assert "method delegraph.alternative/0/2/forward" in to_text(records)


def test_the_data_of_what_is_not_taken_are_not_checked(build: PlanBuilder) -> None:
    """With lazy integrity they are read when they are checked, and these never are."""
    from delegraph.program.files.checked_source import CheckedSource
    from delegraph.program.files.seal import sealed

    build.blobs += [b"named", b"9" * 200_000]
    plan = method(build)
    plan = replace(plan, delegates=(replace(plan.delegates[0], processed=0),))
    build.blobs[:] = [b"named", b"9" * 200_000]
    named = {"weights": NamedData(b"7"), "others": NamedData(b"8" * 200_000)}
    records = build.program(plan, variant(1, "r1"), named_data=named)
    data = b"".join(sealed([serialize_program(records)]))
    ran = Runtime(kernels=[numpy_kernels()], backends={"Board": Board("r2")}).load_program(data).load_method("forward")
    np.testing.assert_array_equal(ran.execute([X])[0], (X + 7) * X)
    content = ran.program._files[0].content
    assert isinstance(content, CheckedSource)
    unread = 65_536 * content._is_checked.count(0)
    assert unread > 200_000  # of both
    full = Runtime(kernels=[numpy_kernels()], backends={"Board": Board("r2")})
    assert full.load_program(data, integrity="full").records == records


def test_the_blobs_of_what_is_not_taken_are_not_loaded(build: PlanBuilder) -> None:
    class Flash(DataLoader):
        """A loader that is asked for each part by itself."""

        def __init__(self, data: bytes) -> None:
            self.data, self.loads = data, list[bytes]()

        def load(self, offset: int, size: int) -> bytes:
            self.loads.append(self.data[offset : offset + size])
            return self.loads[-1]

        def size(self) -> int:
            return len(self.data)

        def release(self, data: Any) -> None:
            pass

    records = program(build, method(build), variant(1, "r1"), variant(2, "r0", 2), blobs=[b"10", b"1"])
    flash = Flash(serialize_program(records))
    opened = Runtime(kernels=[numpy_kernels()], backends={"Board": Board("r1")}).load_program(flash)
    np.testing.assert_array_equal(opened.load_method("forward").execute([X])[0], (X + 10) * X)
    assert b"10" in flash.loads and b"100" not in flash.loads and b"1" not in flash.loads
    assert opened.records == records
    assert opened.records.delegate_data[1:] == (b"10", b"1")


def test_the_names(build: PlanBuilder) -> None:
    of = AlternativeOf("a/method", 3, 1)
    assert of.plan_name == "delegraph.alternative/3/1/a/method"
    assert alternative_of(of.plan_name) == of
    for name in ("forward", "delegraph.alternative/3/1", "delegraph.alternative/x/1/f", "delegraph.alternative/03/1/f"):
        assert alternative_of(name) is None


def _renamed(plan: ExecutionPlan, name: str) -> ExecutionPlan:
    return replace(plan, name=name)


@pytest.mark.parametrize(
    ("alternative", "violation"),
    [
        (_renamed(fallback(), "delegraph.alternative/0/1/other"), "an alternative of no delegate"),
        (_renamed(fallback(), "delegraph.alternative/1/1/forward"), "an alternative of no delegate"),
        (_renamed(fallback(), "delegraph.alternative/nonsense"), "an alternative of no delegate"),
        (replace(fallback(), inputs=(0, 0)), "is another one, too"),
        (replace(fallback(), outputs=(0,)), "is another one, too"),
        (replace(fallback(), inputs=()), r"takes and gives \['float'\], and a call .* \['float', 'float'\]"),
        (replace(fallback(), values=(Int(1), *fallback().values[1:])), r"takes and gives \['Int', 'float'\]"),
        (replace(fallback(), chains=fallback().chains * 2), "an alternative has one"),
    ],
)
def test_an_alternative_that_does_not_fit_is_refused(
    build: PlanBuilder, alternative: ExecutionPlan, violation: str
) -> None:
    with pytest.raises(InvalidProgram, match=violation):
        verify_program(program(build, method(build), alternative))


def test_a_small_file_does_not_become_a_large_method(build: PlanBuilder) -> None:
    long = fallback()
    (chain,) = long.chains
    long = replace(long, chains=(replace(chain, instructions=chain.instructions * 1000),))
    verify_program(program(build, method(build), long))
    build = PlanBuilder()
    with pytest.raises(InvalidProgram, match=r"would put .* values and instructions into it, more than"):
        verify_program(program(build, method(build, calls=1000), long))
