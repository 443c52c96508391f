"""A sound backend passes every check, and each check catches the faults that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delegraph.devtools import WorkerProcess
from delegraph_testkit.checks import checks_of
from delegraph_testkit.outcomes import Level, Outcome
from delegraph_testkit.session import Session, environment_of
from delegraph_testkit.subject import Kind, Subject
from delegraph_testkit.worker import InThisProcess

Install = Callable[..., Any]
CONTRACT = [check.id for check in checks_of(Subject(Kind.BACKEND, "calc")) if check.level is Level.CONTRACT]
PARTITIONS = [check.id for check in checks_of(Subject(Kind.BACKEND, "calc")) if check.level is Level.PARTITIONS]

WRITES = "context.resize(out, values[name].shape)[...] = values[name]"
COMPUTES = "        values = {"


def _with_files(body: str) -> tuple[str, str]:
    """calc's half that runs, with files of its engine."""
    method = f"    def engine_files(self, name, processed, named_data):\n        {body}\n\n"
    return "    def num_outputs", f"{method}    def num_outputs"


def _describing(*nodes: str, more: str = "") -> tuple[str, str]:
    """calc's half that runs, which describes any blob as these nodes and `more`."""
    described = f"i.DelegateDescription(({''.join(map('{},'.format, nodes))}), {more})"
    body = f"import delegraph.interfaces as i\n        return {described}"
    method = f"    def describe(self, processed, compile_specs, named_data):\n        {body}\n\n"
    return "    def num_outputs", f"{method}    def num_outputs"


def _with_cache(key: str, code: str) -> tuple[str, str]:
    """calc's half that runs, which keeps `code` by `key`, and reads that in place of its blob."""
    kept = f"context.cache.kept(lambda f: (f / 'code').write_bytes({code}), {key})"
    read = f"        f = {kept}\n        processed = processed if f is None else (f / 'code').read_bytes()\n"
    return "        try:\n            names, weights", f"{read}        try:\n            names, weights"


def _with_memory(code: str) -> tuple[str, str]:
    """calc's half that runs, with memory of a device, of which `code` are further methods."""
    memory = (
        "class Memory(DeviceAllocator):\n"
        "    def allocate(self, nbytes):\n        return np.zeros(nbytes, np.uint8)\n\n"
        "    def copy_host_to_device(self, memory, offset, source):\n"
        "        memory[offset : offset + source.nbytes] = source\n\n"
        "    def copy_device_to_host(self, target, memory, offset):\n"
        "        target[:] = memory[offset : offset + target.nbytes]\n\n"
        "    def pointer(self, memory):\n        return memory.ctypes.data\n\n"
        f"{code}\n\nMEMORY = Memory()\n\n\n"
    )
    offers = "    def device_allocator(self, device):\n        return MEMORY if str(device) == 'cuda:0' else None\n\n"
    imports = "import ctypes\n\nfrom delegraph.interfaces import DeviceAllocator\n\n"
    return "class Calc(BackendInterface):\n", f"{imports}{memory}class Calc(BackendInterface):\n{offers}"


COPIES_WITHIN = (
    "    def copy_device_to_device(self, target, target_offset, source, source_offset, nbytes):\n"
    "        target = target[target_offset : target_offset + nbytes]\n"
    "        self.copy_device_to_host(target, source, source_offset)\n\n"
)
IMPORTS = (
    "    def import_memory(self, source):\n"
    "        return (np.frombuffer((ctypes.c_uint8 * source.nbytes).from_address(source.pointer), np.uint8))\n"
)

AT_RUN_TIME = [
    ("contract/outputs_are_written", (WRITES, "out = values[name]"), "it did not write its argument"),
    ("contract/outputs_are_written", (WRITES, f"if out is args[-1]: {WRITES}"), "it did not write its argument"),
    ("contract/outputs_are_written", (WRITES, "out.reshape(-1)[1:] = values[name].reshape(-1)[1:]"), "it left 1 of"),
    ("contract/inputs_are_left_alone", (COMPUTES, "        args[0][...] = 0\n" + COMPUTES), "read-only"),
    (
        "contract/inputs_are_left_alone",
        (COMPUTES, "        args[0].flags.writeable = True\n        args[0][...] = 0\n" + COMPUTES),
        "which is an input",
    ),
    (
        "contract/prepared_calls_are_the_same",
        (
            "    def execute(",
            "    def bind(self, context, handle, args):\n        return lambda: None\n\n    def execute(",
        ),
        "elements are wrong",
    ),
    (
        "contract/prepared_calls_are_the_same",  # what was read when the method was loaded
        (
            "    def execute(",
            "    def bind(self, context, handle, args):\n        old = [a.copy() for a in args[: len(handle[0])]]\n"
            "        return lambda: self.execute(context, handle, [*old, *args[len(handle[0]) :]])\n\n    def execute(",
        ),
        "elements are wrong",
    ),
    (
        "contract/submitted_runs_are_the_same",  # an event that comes before the end
        (
            "        return self.queue.submit(partial(self.execute, context, handle, args))",
            "        self.queue.submit(lambda: __import__('time').sleep(0.2) or self.execute(context, handle, args))\n"
            "        return self.queue.submit(lambda: None)",
        ),
        "elements are wrong",
    ),
    (
        "contract/runs_while_traced",
        (COMPUTES, "        if context.event_tracer:\n            return\n" + COMPUTES),
        "elements are wrong",
    ),
    (
        "contract/delegates_are_independent",
        ("    def num_outputs", "    def destroy(self, handle):\n        COMPUTE.clear()\n\n    def num_outputs"),
        "KeyError",
    ),
    (
        "contract/sessions_are_independent",  # a fork that forgets what it is of
        (
            "    def num_outputs",
            "    def fork(self, context, handle):\n        return handle[0], handle[1], handle[2], handle[3][::-1]\n\n"
            "    def num_outputs",
        ),
        "elements are wrong",
    ),
    (
        "contract/threads_are_independent",  # what belongs to a call is kept in the module
        (
            "            values[result] = COMPUTE[symbol](*(values[name] for name in arguments))\n",
            "            SHARED[result] = COMPUTE[symbol](*(values[name] for name in arguments))\n"
            "            __import__('time').sleep(1e-4)\n            values[result] = SHARED[result]\n",
        ),
        "elements are wrong",
    ),
    (
        "contract/unknown_options_at_load_are_refused",
        ("        try:\n            names", "        dict(context.runtime_specs)\n        try:\n            names"),
        "takes the option 'no_option_is_called_this' at load without a word",
    ),
    (
        "contract/newer_blobs_are_refused",
        ("stamp is None or stamp.blob_version != 1", "stamp is None or stamp.blob_version < 1"),
        "check admits blob version 2",
    ),
    (
        "contract/newer_blobs_are_refused",
        ('Compatibility(Verdict.REFUSE, "calc reads blobs of version 1")', "Compatibility(Verdict.REFUSE)"),
        "without a reason",
    ),
    (
        "contract/newer_blobs_are_refused",
        ('Compatibility(Verdict.REFUSE, "calc reads blobs of version 1")', "False"),
        "gives False, not a Compatibility",
    ),
    (
        "contract/damaged_blobs_are_refused",
        ("except (ValueError, TypeError, AttributeError)", "except ZeroDivisionError"),
        "JSONDecodeError",
    ),
    (
        "contract/damaged_blobs_are_refused",
        (
            "raise DelegateInvalidCompatibility(f",
            "return [], {}, [], []\n            raise DelegateInvalidCompatibility(f",
        ),
        "a blob that is empty is taken without a word",
    ),
    (
        "contract/engine_files_are_of_sound_blobs",
        _with_files("return {'model.json': [processed]}"),
        "has a file 'model.json': add an ending to the name",
    ),
    (
        "contract/engine_files_are_of_sound_blobs",
        _with_files("SHARED[0] = SHARED.get(0, 0) + 1\n        return {name + '.json': [b'%d' % SHARED[0]]}"),
        "engine_files makes other files each time",
    ),
    (
        "contract/engine_files_are_of_sound_blobs",
        _with_files("return {name + '.json': [processed]}"),
        "engine_files takes a blob that is empty",
    ),
    (
        "contract/engine_files_are_of_sound_blobs",
        _with_files("return {name + '.json': [json.dumps(json.loads(bytes(processed))).encode()]}"),
        "JSONDecodeError",
    ),
    (
        "contract/descriptions_are_of_sound_blobs",
        _describing("i.DelegateNode('n', 'add')", "i.DelegateNode('n', 'add')"),
        "it has several nodes 'n'",
    ),
    (
        "contract/descriptions_are_of_sound_blobs",
        _describing("i.DelegateNode('n', 'add')", more="(i.DelegateWeight('w', 'float32', (9999,), 39996),) * 2"),
        "it has several weights 'w'; its weights and parts have 79992 bytes, and the blob",
    ),
    (
        "contract/descriptions_are_of_sound_blobs",
        _describing("i.DelegateNode('n', 'add')", more="(i.DelegateWeight('w', 'float32', (1,), 4, key='k'),)"),
        "its weight 'w' has 4 bytes, the named data 'k' is not there",
    ),
    ("contract/descriptions_are_of_sound_blobs", _describing(), "describe tells of no node"),
    (
        "contract/descriptions_are_of_sound_blobs",
        _describing("i.DelegateNode('n', 'add')"),
        "describe takes a blob that is empty",
    ),
    (
        "contract/kept_code_is_the_same",
        _with_cache("driver=str(SHARED.setdefault(0, SHARED.pop(0, 0) + 1)), blob=[processed]", "processed"),
        "a second load of the same program keeps other code than the first",
    ),
    (
        "contract/kept_code_is_the_same",
        _with_cache("driver='1', blob=[processed]", "b'[[], {}, [], []]'"),
        "Error",
    ),
]

MAKES = 'def calc_partitioner(*, minimum_nodes: int = 1):\n    """Makes the partitioner."""\n'
STRANGE = """
from delegraph.interfaces import DelegationSpec, Partitioner, PartitionResult


class Strange(Partitioner):
    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.target in SYMBOLS:
                DOES
        return PartitionResult(exported_program, {"all": DelegationSpec("Calc")})


def calc_partitioner():
    return Strange()


def unused(minimum_nodes):
"""
"""A partitioner that does to each node what none may."""


def strange(does: str) -> dict[str, tuple[str, str]]:
    return {"aot": (MAKES, STRANGE.replace("DOES", does))}


STATIC = "    if any(not isinstance(n, int) for n in node.meta['val'].shape):\n        return 'static shapes'\n"

LATE = {
    "aot": (
        "if node.target not in SYMBOLS:\n                    raise",
        "if node.target == aten.mul.Tensor:\n                    raise",
    )
}
"""Refuses to compile what the partitioner takes."""

AHEAD = [
    (
        "loads/both_halves_are_installed",
        {"entry_points": ("Calc = calc_runtime:Calc", "Clac = calc_runtime:Calc")},
        "the id 'Calc' is in delegraph.lowerings and not in delegraph.backends",
    ),
    (
        "loads/loads_with_torch",
        {"aot": ("import torch\n", "import torch\n\nraise RuntimeError('no licence')\n")},
        "no licence",
    ),
    (
        "loads/unknown_options_are_refused",
        {"aot": (MAKES, "def calc_partitioner(options):\n    minimum_nodes = len(list(options)) or 1\n")},
        "is taken without a word",
    ),
    (
        "loads/answers_whether_it_is_available",
        {"runtime": ("    def check(", "    def is_available(self):\n        return False\n\n    def check(")},
        "is not available and gives no reason",
    ),
    (
        "loads/device_memory_keeps_what_it_is_given",
        {"runtime": _with_memory(COPIES_WITHIN.replace("source, source_offset)", "source, 0)"))},
        "cuda:0: copy_device_to_device gives something else",
    ),
    (
        "loads/device_memory_keeps_what_it_is_given",
        {"runtime": _with_memory(COPIES_WITHIN + IMPORTS.replace("return", "return np.copy") + "\n")},
        "cuda:0: import_memory copies",
    ),
    ("partitions/nothing_but_tags_is_changed", strange('node.name += "_mine"'), "it changed the graph"),
    ("partitions/nothing_but_tags_is_changed", strange('node.meta["delegation_tag"] = "?"'), "InvalidPartition"),
    (
        "partitions/lowering_is_repeatable",
        {"aot": ("json.dumps([", "json.dumps([__import__('uuid').uuid4().hex, ")},
        "is two different files",
    ),
    (
        "partitions/weights_are_left_alone",
        {"aot": ("attributes[node.name]].tolist()", "attributes[node.name]].data.mul_(2).tolist()")},
        "a weight of the user's model, which is spoilt now",
    ),
    ("partitions/what_is_left_has_a_reason", {"aot": ('return f"calc has no {node.target}"', 'return ""')}, "reason"),
    ("partitions/what_is_taken_is_compiled", LATE, "decline what its backend refuses: aten_mul_tensor"),
    pytest.param("operators/mul/float32", LATE, "decline what its backend refuses", marks=pytest.mark.database),
    (
        "partitions/diamond_is_cut",
        strange('node.meta["delegation_tag"] = "all"'),
        "diamond cannot be lowered: InvalidPartition",
    ),
    pytest.param(
        "operators/nn.functional.relu/float32",
        {"runtime": ("np.maximum(a, np.float32(0))", "np.abs(a)")},
        "elements are wrong",
        marks=pytest.mark.database,
    ),
    pytest.param(
        "operators/nn.functional.relu/float32",
        {"aot": (', aten.relu.default: "r"', "")},
        "is claimed for float32, and not taken whole",
        marks=pytest.mark.database,
    ),
    (
        "models/dynamic_arithmetic",
        {
            "aot": (
                "    if node.target not in SYMBOLS:\n        return",
                STATIC + "    if node.target not in SYMBOLS:\n        return",
            )
        },
        "dynamic_shapes is claimed",
    ),
]


ONE_BLOB = "return PreprocessResult(json.dumps([names, weights, steps, outputs]).encode())"


def two_blobs(second: str) -> dict[str, tuple[str, str]]:
    """calc's delegates with a blob for each of two revisions."""
    made = ONE_BLOB.replace("return ", "result = ") + (
        f"\n        result.variant, blob = 'new', {second}\n"
        "        result.variants = [__import__('delegraph.interfaces').interfaces.BlobVariant('old', blob)]\n"
        "        return result"
    )
    return {"aot": (ONE_BLOB, made)}


@pytest.mark.parametrize(
    ("second", "check", "message"),
    [
        ("result.processed_bytes", "every_blob_of_a_delegate_is_right", ""),
        ("result.processed_bytes", "newer_blobs_are_refused", ""),
        (
            "json.dumps([names, weights, [['+', names[0], names[0], n] for n in outputs], outputs]).encode()",
            "every_blob_of_a_delegate_is_right",
            "elements are wrong",
        ),
        ("b'nothing'", "every_blob_of_a_delegate_is_right", "not a blob of calc's"),
    ],
)
def test_each_of_two_blobs_is_asked(install: Install, second: str, check: str, message: str) -> None:
    result = install(**two_blobs(second)).result(f"contract/{check}", programs=("arithmetic",))
    assert result.outcome is (Outcome.FAILED if message else Outcome.PASSED)
    assert message in result.detail


def test_a_backend_that_admits_none_of_its_blobs(install: Install) -> None:
    refuses = ("blob_version != 1", "blob_version != 1 or stamp.variant")
    installed = install(runtime=refuses, **two_blobs("result.processed_bytes"))
    result = installed.result("contract/newer_blobs_are_refused", programs=("arithmetic",))
    assert result.outcome is Outcome.FAILED
    assert "check refuses all 2 blobs of a delegate" in result.detail


@pytest.mark.parametrize("check", CONTRACT)
def test_a_sound_backend_keeps_the_contract(install: Install, check: str) -> None:
    assert install().ran(check) == (Outcome.PASSED, "")


def test_a_sound_partitioner(install: Install) -> None:
    calc = install()
    results = {name: calc.result(name, programs=("diamond",)) for name in PARTITIONS[:5]}
    assert {name: r.detail for name, r in results.items() if r.outcome is not Outcome.PASSED} == {}


@pytest.mark.parametrize(
    ("check", "change", "message"), AT_RUN_TIME, ids=[f"{fault[0].partition('/')[2]}" for fault in AT_RUN_TIME]
)
def test_a_fault_at_run_time_is_caught(install: Install, check: str, change: Any, message: str) -> None:
    old, new = change
    outcome, detail = install(runtime=(old, new)).ran(check)
    assert outcome is Outcome.FAILED
    assert message in detail


@pytest.mark.parametrize(("check", "changes", "message"), AHEAD)
def test_a_fault_ahead_of_time_is_caught(install: Install, check: str, changes: Any, message: str) -> None:
    program_of = {
        "what_is_left_has_a_reason": "perceptron",
        "weights_are_left_alone": "constants",
        "diamond_is_cut": "diamond",
    }
    programs = (program_of.get(check.partition("/")[2], "arithmetic"),) if check.startswith("partitions/") else None
    claims = {"operators": {"nn.functional.relu": ["float32"]}, "features": ["dynamic_shapes"]}
    result = install(**changes).result(check, programs=programs, **claims)
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


# ---- outcomes besides ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("aten::mul.out", "aten::mull.out"), "torch has no operator aten::mull.out: no program calls it"),
        (
            ("mul_out(context, self, other, out)", "mul_out(context, self, other)"),
            "aten::mul.out is called with (context",
        ),
    ],
)
def test_a_kernel_that_fits_no_operator(install: Install, change: tuple[str, str], message: str) -> None:
    result = install(kernels=change).result("loads/kernels_fit_their_operators", Kind.KERNELS)
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.database
@pytest.mark.parametrize(
    ("check", "outcome", "detail"),
    [
        ("operators/nn.functional.relu/float32", Outcome.UNCLAIMED, "may be claimed"),
        ("operators/tanh/float32", Outcome.DECLINED, "calc has no aten.tanh.default"),
        ("operators/nn.functional.relu/float16", Outcome.DECLINED, "calc computes in float32"),
    ],
)
def test_an_operator_that_is_not_claimed(install: Install, check: str, outcome: Outcome, detail: str) -> None:
    result = install().result(check)
    assert result.outcome is outcome
    assert detail in result.detail


@pytest.mark.database
def test_what_is_not_claimed_and_wrong_is_a_fault(install: Install) -> None:
    wrong = install(runtime=("np.maximum(a, np.float32(0))", "np.abs(a)"))
    assert wrong.result("operators/nn.functional.relu/float32").outcome is Outcome.FAILED


def test_an_expected_failure(install: Install) -> None:
    claims = {"expected_failures": {"loads/loads_with_torch": "no licence here, see https://example.org/1"}}
    result = install(aot=("import torch\n", "import torch\n\nraise RuntimeError('no licence')\n")).result(
        "loads/loads_with_torch", **claims
    )
    assert (result.outcome, result.excused, result.is_fault) == (
        Outcome.FAILED,
        "no licence here, see https://example.org/1",
        False,
    )


def test_an_expected_failure_that_passes_is_refused(install: Install) -> None:
    result = install().result("loads/loads_with_torch", expected_failures={"loads/loads_with_torch": "once it failed"})
    assert result.is_fault
    assert result.detail == "it is passed, but expected to fail (once it failed): take that back"


# ---- in processes of their own -------------------------------------------------------------------------


def test_torch_within_init_is_seen_without_torch(install: Install) -> None:
    """Also where the backend makes do without it."""
    calc = install(
        runtime=(
            "    def num_outputs",
            "    try:\n        import torch\n    except ImportError:\n        pass\n\n    def num_outputs",
        )
    )
    result = calc.isolated("loads/loads_without_torch")
    assert result.outcome is Outcome.FAILED
    assert "it tries to import torch, in " in result.detail
    assert "calc_runtime.py:" in result.detail


@pytest.mark.parametrize(
    ("does", "limit", "message"),
    [
        ("__import__('os')._exit(7)", 60.0, "its process ended with code 7"),
        ("__import__('time').sleep(60)", 1.5, "within 1.5 s"),
    ],
)
def test_a_crash_and_a_hang(install: Install, does: str, limit: float, message: str) -> None:
    calc = install(runtime=("    def check(", f"    def is_available(self):\n        {does}\n\n    def check("))
    result = calc.isolated("loads/answers_whether_it_is_available", limit)
    assert result.outcome is Outcome.CRASHED
    assert message in result.detail


def test_a_blob_that_ends_the_process(install: Install) -> None:
    """The message names the file that did it."""
    calc = install(runtime=('raise ValueError("a step that calc does not have")', "__import__('os')._exit(7)"))
    result = calc.isolated("contract/mutated_blobs_end_in_errors", 60.0)
    assert result.outcome is Outcome.CRASHED
    assert "its process ended with code 7: mutation " in result.detail
    assert ".mutated.pte" in result.detail


def test_an_installed_tool_does_not_hide_the_plug_in(install: Install) -> None:
    """The kit proves what the plug-in does, not what somebody's wrapper around it does."""
    install(
        entry_points=(
            "[delegraph.quantizers]",
            "[delegraph.plugins]\nnosy = calc_runtime:Nosy\n[delegraph.quantizers]",
        ),
        runtime=("class Calc(", NOSY + "class Calc("),
    )
    subject = Subject(Kind.BACKEND, "calc")
    with Session(
        subject,
        60.0,
        (
            InThisProcess(),
            WorkerProcess("delegraph_testkit.worker", "without-torch", additions=environment_of(subject)),
        ),
    ) as session:
        (check,) = [check for check in checks_of(subject) if check.id == "contract/outputs_are_written"]
        result = session.result(replace(check, programs=("arithmetic",)))
    assert (result.outcome, result.detail) == (Outcome.PASSED, "")


NOSY = """class Nosy:
    @__import__("delegraph").plugins.hookimpl(wrapper=True)
    def execute(self):
        raise RuntimeError("a tool is here")
        yield


"""
