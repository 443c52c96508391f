"""Level `contract`: checks of a program that is loaded and run, without torch.

Each function gets a bench and one program that the plug-in took something of.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import delegraph
from delegraph.errors import DelegraphError, Internal, InvalidArgument
from delegraph.interfaces import (
    BackendInterface,
    BlobStamp,
    Compatibility,
    CompilationCache,
    DelegateDescription,
    Verdict,
    read_stamp,
)
from delegraph.program import (
    alternatives_of,
    debug_data_of,
    deserialize_program,
    methods_of,
    schema,
    write_program,
)
from delegraph.runtime import Program
from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.doubled import doubled
from delegraph_testkit.mutations import mutated
from delegraph_testkit.no_torch import asked_for_torch
from delegraph_testkit.outcomes import Unclaimed
from delegraph_testkit.running import Results, backend_called, check_call, check_results, load, run

__all__ = [
    "damaged_blobs_are_refused",
    "delegates_are_independent",
    "descriptions_are_of_sound_blobs",
    "engine_files_are_of_sound_blobs",
    "every_blob_of_a_delegate_is_right",
    "inputs_are_left_alone",
    "kept_code_is_the_same",
    "mutated_blobs_end_in_errors",
    "newer_blobs_are_refused",
    "outputs_are_written",
    "prepared_calls_are_the_same",
    "runs_while_traced",
    "sessions_are_independent",
    "submitted_runs_are_the_same",
    "threads_are_independent",
    "torch_is_not_needed",
    "unknown_options_at_load_are_refused",
]

_NO_OPTION: Final = "no_option_is_called_this"


def outputs_are_written(bench: Bench, stored: Stored) -> None:
    """A call fills all of its outputs: the runtime's check mode finds nothing, and results are torch's."""
    check_results(bench, stored, run(stored, check=True))


def inputs_are_left_alone(bench: Bench, stored: Stored) -> None:
    """No call changes an input: the caller's arrays keep their content, borrowed or not."""
    for inputs in ("copy", "borrow"):
        before = [[array.copy() for array in call.inputs] for call in stored.calls]
        run(stored, check=True, inputs=inputs)
        for call, kept in zip(stored.calls, before, strict=True):
            same = all(a.tobytes() == b.tobytes() for a, b in zip(call.inputs, kept, strict=True))
            assert same, f"{stored.name}: a caller's input was changed"


def prepared_calls_are_the_same(bench: Bench, stored: Stored) -> None:
    """A call prepared at load (`bind`) reads its inputs anew in each run, and does what `execute` does."""
    check_results(bench, stored, run(stored))


def submitted_runs_are_the_same(bench: Bench, stored: Stored) -> None:
    """Delegates that are submitted, and are at work together, do what `execute` does."""
    loaded = load(stored, doubled(_records(stored)))
    submitted = False
    for number, call in enumerate(stored.calls):
        results = loaded(replace(call, inputs=call.inputs * 2))
        half = len(results) // 2
        for part, which in ((results[:half], "the first"), (results[half:], "the second")):
            check_call(bench, call, part, f"{stored.name} twice at a time, call {number}, {which}")
        submitted |= any(step.kind.value == "submit" for step in loaded.module[call.method].method.schedule)
    if not submitted:
        raise Unclaimed("it submits nothing: calls are executed one after the other")


def runs_while_traced(bench: Bench, stored: Stored) -> None:
    """Whoever watches the events of a run gets the same results."""
    check_results(bench, stored, run(stored, event_tracer=delegraph.EventTracer()))


def delegates_are_independent(bench: Bench, stored: Stored) -> None:
    """A program loaded twice is two; closing one leaves the other as it is."""
    first, second = load(stored), load(stored)
    results = [first(call) if number % 2 else second(call) for number, call in enumerate(stored.calls)]
    check_results(bench, stored, results)
    second.close()
    check_results(bench, stored, [first(call) for call in stored.calls])
    first.close()
    check_results(bench, stored, run(stored))


def sessions_are_independent(bench: Bench, stored: Stored) -> None:
    """A session of a loaded program (`fork` or `init`) gives the same results, also when the first one is gone."""
    first = load(stored)
    check_results(bench, stored, [first(call) for call in stored.calls])
    second = replace(first, module=first.module.session())
    check_results(bench, stored, [second(call) for call in stored.calls])
    first.close()
    check_results(bench, stored, [second(call) for call in stored.calls])


def threads_are_independent(bench: Bench, stored: Stored) -> None:
    """Threads with a delegate of their own each do not disturb one another."""

    def work(_: int) -> list[Results]:
        loaded = load(stored)
        return [[loaded(call) for call in stored.calls] for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for rounds in pool.map(work, range(4)):
            for results in rounds:
                check_results(bench, stored, results)


def torch_is_not_needed(bench: Bench, stored: Stored) -> None:
    """Loading and running ask for no torch, also within `init`, `bind`, `execute` and `destroy`."""
    if bench.subject.claims.needs_torch:
        raise Unclaimed("its kernels are torch's own, as its claims say")
    before = len(asked_for_torch())
    loaded = load(stored)
    for call in stored.calls:
        loaded(call)
    loaded.close()
    asked = asked_for_torch()[before:]
    assert not asked, f"{stored.name}: torch is asked for, in {', '.join(dict.fromkeys(asked))}"


def unknown_options_at_load_are_refused(bench: Bench, stored: Stored) -> None:
    """An option at load that the backend does not have is an error."""
    for backend in stored.facts.backends:
        try:
            load(stored, backend_options={backend: {_NO_OPTION: True}})
        except InvalidArgument:
            continue
        raise AssertionError(
            f"{backend} takes the option {_NO_OPTION!r} at load without a word: look options up by name"
        )


# ---- files that come from elsewhere --------------------------------------------------------------------


def newer_blobs_are_refused(bench: Bench, stored: Stored) -> None:
    """`check` admits its own blobs, answers for any stamp, and refuses those of a version to come."""
    records = _records(stored)
    for plan in records.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            backend, stamp = backend_called(delegate.id), read_stamp(delegate.compile_specs)
            assert stamp is not None
            if stamp.variant and plan in methods_of(records):
                _admits_one(records, plan, index)
            strangers = [None, replace(stamp, blob_version=0), replace(stamp, distribution="another", version="9")]
            for each in (stamp, *strangers):
                answer: object = backend.check(each)
                assert isinstance(answer, Compatibility), f"check({each!r}) gives {answer!r}, not a Compatibility"
                said = answer.verdict is Verdict.OK or answer.reason
                assert said, f"check({each!r}) gives {answer.verdict.name} without a reason"
            assert stamp.variant or backend.check(stamp).verdict is Verdict.OK, (
                f"check refuses its own blob: {backend.check(stamp).reason}"
            )
            _refuses(backend.check, replace(stamp, blob_version=stamp.blob_version + 1))


def _admits_one(records: schema.Program, plan: schema.ExecutionPlan, index: int) -> None:
    """Of a delegate with several blobs, one is for the device that is here."""
    others = alternatives_of(records).get(plan.name, {}).get(index, ())
    blobs = [plan.delegates[index], *(record for other in others for record in other.delegates)]
    stamps = [stamp for blob in blobs if (stamp := read_stamp(blob.compile_specs)) is not None]
    answers = [backend_called(stamp.backend).check(stamp) for stamp in stamps]
    refusals = [f"{stamp.variant!r}: {answer.reason}" for stamp, answer in zip(stamps, answers, strict=True)]
    assert any(answer.verdict is Verdict.OK for answer in answers), (
        f"check refuses all {len(blobs)} blobs of a delegate: {'; '.join(refusals)}"
    )


def every_blob_of_a_delegate_is_right(bench: Bench, stored: Stored) -> None:
    """Of a delegate with several blobs each that `check` admits here gives the right results, and none is loaded that
    it does not admit."""
    records = _records(stored)
    check_results(bench, stored, run(stored))
    for method, index, preferred in _in_other_orders(records):
        loaded = load(stored, preferred)
        check_results(bench, stored, [loaded(call) for call in stored.calls])
        (choice,) = [each for each in loaded.module[method].method.delegate_choices if each.delegate == index]
        blob = next(plan for plan in methods_of(preferred) if plan.name == method).delegates[index]
        admitted = backend_called(blob.id).check(read_stamp(blob.compile_specs)).verdict is Verdict.OK
        assert not admitted or choice.place == 0, f"check admits a blob that does not load: {choice.reasons[0]}"
        loaded.close()


def _in_other_orders(records: schema.Program) -> Iterator[tuple[str, int, schema.Program]]:
    """By method and delegate, the program with another one of the delegate's blobs as its first, in turn."""
    for method, of_delegates in alternatives_of(records).items():
        for index, others in of_delegates.items():
            for other in others:
                plan = next(plan for plan in records.execution_plan if plan.name == method)
                if len(other.delegates) != 1 or other.delegates[0].id != plan.delegates[index].id:
                    continue
                delegates = list(plan.delegates)
                delegates[index], mine = other.delegates[0], delegates[index]
                swapped = {
                    method: replace(plan, delegates=tuple(delegates)),
                    other.name: replace(other, delegates=(mine,)),
                }
                plans = tuple(swapped.get(plan.name, plan) for plan in records.execution_plan)
                yield method, index, replace(records, execution_plan=plans)


def _refuses(check: object, newer: BlobStamp) -> None:
    answer = check(newer)  # type: ignore[operator]
    assert answer.verdict is not Verdict.OK, (
        f"check admits blob version {newer.blob_version}, which nobody has written yet: refuse what is newer than yours"
    )


def damaged_blobs_are_refused(bench: Bench, stored: Stored) -> None:
    """`init` refuses a blob that is empty, foreign or cut, with an error of its own; no damage kills the process."""
    records = _records(stored)
    for how, damaged in _certainly_damaged(records):
        try:
            loaded = load(stored, damaged)
        except Internal as fault:
            told = f"{stored.name}, a blob that is {how}: {fault}; raise DelegateInvalidCompatibility"
            raise AssertionError(told) from fault
        except DelegraphError:
            continue
        assert how == "a byte short", f"{stored.name}: a blob that is {how} is taken without a word"
        check_results(bench, stored, [loaded(call) for call in stored.calls])  # the byte was one that nobody needs
    for damaged in _flipped(records):
        with suppress(DelegraphError):  # a byte of a weight may be any: nothing else is to come out
            loaded = load(stored, damaged)
            loaded(stored.calls[0])
            loaded.close()


def mutated_blobs_end_in_errors(bench: Bench, stored: Stored) -> None:
    """Blobs in which anything is changed, with checksums made right, run or end in an error of Delegraph's; none ends
    the process. The last one is kept beside the program, as `NAME.mutated.pte`."""
    records, draw = _records(stored), random.Random(0)
    file = stored.file.with_suffix(".mutated.pte")
    for number in range(_MUTATIONS):
        blobs = tuple(mutated(bytes(blob), draw) for blob in records.delegate_data)
        write_program(replace(records, delegate_data=blobs), file)
        print(f"mutation {number} of {stored.name}, which is {file}", file=sys.stderr, flush=True)  # told if it dies
        with suppress(DelegraphError):
            loaded = load(stored, file, limits=delegraph.Limits(seconds=_SECONDS))
            loaded(stored.calls[0])
            loaded.close()
    print(f"mutations of {stored.name} are done", file=sys.stderr, flush=True)


_MUTATIONS: Final = 40
_SECONDS: Final = 10.0


def engine_files_are_of_sound_blobs(bench: Bench, stored: Stored) -> None:
    """A backend that makes files of its blobs names them as it is asked to, makes the same ones again, and none of a
    blob that is empty, foreign or cut."""
    program = Program.load(stored.file, data_path=stored.external or None)
    records = program.records
    for backend_id, processed in _blobs(records):
        backend = backend_called(backend_id)
        files = _engine_files(backend, processed, program.named_data)
        for name in files:
            named = name.startswith(f"{_FILE}.") and not {"/", "\\"} & set(name)
            assert named, f"engine_files({_FILE!r}, …) has a file {name!r}: add an ending to the name"
        again = _engine_files(backend, processed, program.named_data)
        assert files == again, f"{stored.name}: engine_files makes other files each time"
    for how, damaged in _certainly_damaged(records):
        for backend_id, processed in _blobs(damaged):
            try:
                files = _engine_files(backend_called(backend_id), processed, program.named_data)
            except Internal:
                raise
            except DelegraphError:
                continue
            assert how == "a byte short" or not files, f"{stored.name}: engine_files takes a blob that is {how}"


_FILE: Final = "forward_delegate_0"


def descriptions_are_of_sound_blobs(bench: Bench, stored: Stored) -> None:
    """A backend that describes its blobs says what can be true of them, the same each time, calls steps as its
    `debug_handle_map` does, and describes none of a blob that is empty, foreign or cut."""
    program = Program.load(stored.file, data_path=stored.external or None)
    for plan in methods_of(program.records):
        origins = debug_data_of(program.records)[plan.name]
        for record, steps in zip(plan.delegates, origins.delegates, strict=True):
            blob = program.records.delegate_data[record.processed]
            said = _described(record, blob, program.named_data)
            _check_description(said, blob, program.named_data)
            assert said == _described(record, blob, program.named_data), f"{stored.name}: describe differs each time"
            ids = {node.debug_id for node in said.nodes}
            assert not steps or ids & steps.keys(), (
                f"{stored.name}: none of the steps that describe tells is in its debug_handle_map: it has"
                f" {sorted(map(repr, steps))[:3]}, the nodes {sorted(map(repr, ids))[:3]}"
            )
    for how, damaged in _certainly_damaged(program.records):
        for plan in methods_of(damaged):
            for record in plan.delegates:
                _refuses_to_describe(how, record, damaged.delegate_data[record.processed], program.named_data)


def _described(
    record: schema.BackendDelegate, blob: schema.Buffer, named_data: Mapping[str, Any]
) -> DelegateDescription:
    said: object = backend_called(record.id).describe(blob, record.compile_specs, named_data)
    if said is None:
        raise Unclaimed("it does not describe its blobs: to every tool a delegate is one piece")
    assert isinstance(said, DelegateDescription), f"describe gives {said!r:.80}, not a DelegateDescription"
    return said


def _check_description(said: DelegateDescription, blob: schema.Buffer, named_data: Mapping[str, Any]) -> None:
    sizes = {key: memoryview(data).nbytes for key, data in named_data.items()}
    faults = said.faults(memoryview(blob).nbytes, sizes)
    assert not faults, f"describe contradicts its blob: {'; '.join(faults)}"
    assert said.nodes, "describe tells of no node: a blob runs something"


def _refuses_to_describe(how: str, record: schema.BackendDelegate, blob: Any, named_data: Mapping[str, Any]) -> None:
    try:
        said = _described(record, blob, named_data)
        _check_description(said, blob, named_data)
    except Internal:
        raise
    except DelegraphError:
        return
    assert how == "a byte short", f"describe takes a blob that is {how}"


def kept_code_is_the_same(bench: Bench, stored: Stored) -> None:
    """Code that the backend keeps for later loads gives the same results; it is the same each time, and made anew where
    it is damaged."""
    with TemporaryDirectory() as folder:
        cache = CompilationCache(Path(folder) / "cache")
        check_results(bench, stored, run(stored, cache=cache))
        before = _kept(cache)
        check_results(bench, stored, run(stored, cache=cache))
        assert _kept(cache) == before, (
            f"{stored.name}: a second load of the same program keeps other code than the first: its key changes, or it"
            " writes into what was kept"
        )
        for file in before:
            _damage(cache.folder / file)
        check_results(bench, stored, run(stored, cache=cache))


def _kept(cache: CompilationCache) -> dict[str, bytes]:
    """Every file of the cache, by its path there."""
    files = [path for entry in cache.entries() for path in entry.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(cache.folder)): path.read_bytes() for path in files}


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    file.unlink()  # who has it mapped keeps it as it was
    file.write_bytes(content)


def _blobs(records: schema.Program) -> set[tuple[str, bytes]]:
    """Each with the backend that it is of."""
    delegates = [delegate for plan in records.execution_plan for delegate in plan.delegates]
    return {(delegate.id, bytes(records.delegate_data[delegate.processed])) for delegate in delegates}


def _engine_files(backend: BackendInterface, processed: bytes, named_data: Mapping[str, Any]) -> dict[str, bytes]:
    files = backend.engine_files(_FILE, processed, named_data)
    return {name: b"".join(map(bytes, pieces)) for name, pieces in files.items()}


def _records(stored: Stored) -> schema.Program:
    return deserialize_program(stored.file.read_bytes())


def _certainly_damaged(records: schema.Program) -> Iterator[tuple[str, schema.Program]]:
    blobs = [bytes(blob) for blob in records.delegate_data]
    for how, damaged in (
        ("empty", [b"" for _ in blobs]),
        ("cut in half", [blob[: len(blob) // 2] for blob in blobs]),
        ("a byte short", [blob[:-1] for blob in blobs]),
        ("zeros", [bytes(len(blob)) for blob in blobs]),
        ("somebody else's", [b"PK\x03\x04" + bytes(range(256)) for _ in blobs]),
    ):
        yield how, replace(records, delegate_data=tuple(damaged))


def _flipped(records: schema.Program) -> Iterator[schema.Program]:
    """With one bit of each blob turned, half of them near its beginning, where heads are."""
    draw = random.Random(0)
    for turn in range(24):
        damaged = []
        for blob in map(bytearray, records.delegate_data):
            if blob:
                blob[draw.randrange(min(64, len(blob)) if turn % 2 else len(blob))] ^= 1 << draw.randrange(8)
            damaged.append(bytes(blob))
        yield replace(records, delegate_data=tuple(damaged))
