"""`delegraph inspect m.pte`: what a program takes, gives, calls and needs, whoever wrote it. Runs nothing of it, and
loads it only for `--schedule`.

Of a `.ptd` it tells the weights (`weights.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from delegraph.cli import data_files, kernel_order

if TYPE_CHECKING:
    from delegraph.devtools import BundledProgram
    from delegraph.devtools.summary import (
        AlternativeSummary,
        DelegateSummary,
        KernelUse,
        MethodSummary,
        ProgramSummary,
        ValueSummary,
    )
    from delegraph.interfaces.data_loader import DataLoader
    from delegraph.runtime.resolution.kernels import KernelRegistry
    from delegraph.tables import Table

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `inspect` to the command line."""
    parser = subparsers.add_parser(
        "inspect", help="show what is in a program, and what of it could run here; or what weights are in a .ptd"
    )
    parser.add_argument("program", metavar="m.pte|m.bpte|m.ptd", help="the file; ExecuTorch's are read as well")
    kernel_order.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--text", action="store_true", help="print every value and instruction")
    parser.add_argument(
        "--sizes",
        action="store_true",
        help="show where the bytes are: by part, by module and by weight, in delegates too; what is stored more than"
        " once, and how well each part compresses",
    )
    parser.add_argument(
        "--nodes",
        action="store_true",
        help="show every step, in delegates too, with the module and the line of the model that it comes from",
    )
    parser.add_argument(
        "--memory", action="store_true", help="show which tensor lies where in planned memory, and from when to when"
    )
    parser.add_argument(
        "--schedule",
        action="store_true",
        help="load the program, and show the order in which it runs here, and which delegates are at work together",
    )
    parser.add_argument("-o", "--output", metavar="plan.svg", help="with --memory: draw it into this file")
    parser.add_argument(
        "--delegates",
        metavar="DIR",
        help="write each delegate into this folder as its engine's own file, where it has one: .onnx, .xml, …",
    )
    data_files.add_argument(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.cli.bundled import print_cases, suites_json
    from delegraph.cli.integrity import summarize_seal, text
    from delegraph.cli.weights import is_weights, print_weights
    from delegraph.program.files.deserialize import deserialize_program
    from delegraph.runtime.data_loader import open_data_loader

    view = _view(args)
    if is_weights(args.program):
        if view:
            raise argparse.ArgumentError(None, f"--{view} has no use with {args.program}: {_VIEWS[view]}")
        print_weights(args.program, args.json)
        return 0
    bundled = _bundled(args.program)
    if args.schedule:
        from delegraph.cli.schedule import show_schedule

        program_file = args.program if bundled is None else bytes(bundled.buffer)
        show_schedule(program_file, args.data or (), kernel_order.kernel_order(args.kernels), args.json)
        return 0
    source = open_data_loader(args.program if bundled is None else bundled.buffer)
    program = deserialize_program(source)
    if args.text:
        from delegraph.program.text.to_text import to_text

        print(to_text(program), end="")
        return 0
    if args.delegates is not None:
        from delegraph.cli.engine_files import write_delegates

        write_delegates(program, args.delegates, args.data or (), args.json)
        return 0
    if args.memory:
        from delegraph.cli.memory import show_memory

        show_memory(program, args.json, args.output)
        return 0
    if args.nodes:
        from delegraph.cli.contents import show_nodes

        show_nodes(program, args.data or (), args.json)
        return 0

    from delegraph.cli.contents import show_modules
    from delegraph.devtools.summary import file_sizes, summarize

    sizes = file_sizes(_head(source), source.size())
    if args.sizes:
        from delegraph.cli.contents import show_sizes

        show_sizes(program, args.data or (), sizes, args.json)
        return 0

    from delegraph.plugins.registry import default_registry
    from delegraph.runtime.resolution.kernels import KernelRegistry

    registry = default_registry()
    kernels = KernelRegistry.of(kernel_order.kernel_order(args.kernels), registry)
    summary = summarize(
        program,
        sizes=sizes,
        kernels=kernels,
        backends=registry.names("backends"),
    )
    seal = summarize_seal(source)
    if args.json:
        cases = {} if bundled is None else {"test_suites": suites_json(bundled)}
        print(json.dumps({**summary.to_json(), "integrity": seal and asdict(seal), **cases}, indent=2))
        return 0
    _print(args.program if bundled is None else f"{args.program}, a bundled program", summary, kernels)
    show_modules(program)
    print(text(seal))
    if bundled is not None:
        print_cases(bundled)
    return 0


_VIEWS: Final = {
    "text": "it has no instructions",
    "memory": "nothing is planned in it",
    "schedule": "it has no instructions",
    "delegates": "it has none",
    "sizes": "without it the sizes of its weights are told",
    "nodes": "it has no instructions",
}
"""The options that show something else than the summary, and why they have no use with a `.ptd`."""


def _view(args: argparse.Namespace) -> str:
    """The one of `_VIEWS` that was asked for, "" for the summary. Raises `argparse.ArgumentError`."""
    asked = [name for name in _VIEWS if getattr(args, name) not in (None, False)]
    if len(asked) > 1:
        raise argparse.ArgumentError(None, f"--{asked[1]} does not go with --{asked[0]}: one view at a time")
    view = asked[0] if asked else ""
    if args.output and view != "memory":
        raise argparse.ArgumentError(None, "-o plan.svg goes with --memory")
    if args.data and view not in ("delegates", "schedule", "sizes", "nodes"):
        raise argparse.ArgumentError(
            None, "--data goes with --delegates, --schedule, --sizes and --nodes: the weights of the program"
        )
    if args.json and view == "text":
        raise argparse.ArgumentError(None, "--text does not go with --json")
    return view


def _bundled(path: str) -> BundledProgram | None:
    """The bundled program, if it is one."""
    from delegraph.cli.bundled import is_bundled

    if not is_bundled(path):
        return None
    from delegraph.devtools import load_bundled_program

    return load_bundled_program(path)


def _head(source: DataLoader) -> bytes:
    from delegraph.program.files.header import HEAD_SIZE

    return bytes(source.load(0, min(HEAD_SIZE, source.size())))


# ---- tables ----------------------------------------------------------------------------------------


def _print(path: str, summary: ProgramSummary, kernels: KernelRegistry) -> None:
    from delegraph.errors import printable
    from delegraph.tables import print_table

    print(f"{path}: {', '.join(printable(method.name) for method in summary.methods)}\n")
    for table in _tables(summary):
        print_table(table)
    for name in summary.external_constants:
        print(f"needs a .ptd with {name!r}")
    for error in kernels.broken:
        print(f"a kernel library could not be asked: {error}")


def _tables(summary: ProgramSummary) -> Iterator[Table]:
    yield _metadata_table(summary)
    yield _size_table(summary)
    for method in summary.methods:
        yield from _method_tables(method)


def _metadata_table(summary: ProgramSummary) -> Table:
    from delegraph.program.user_metadata import metadata_text
    from delegraph.tables import Table

    rows = [(name, metadata_text(value)) for name, value in summary.metadata.items()]
    return Table("what the author says", ("", ""), rows)


def _on(device: str | None) -> str:
    return "" if device is None else f" on {device}"


def _size_table(summary: ProgramSummary) -> Table:
    from delegraph.tables import Table, count

    assert summary.sizes is not None
    rows = [
        ("file", summary.sizes.file),
        ("flatbuffer", summary.sizes.flatbuffer),
        ("segments", summary.sizes.segments),
        (f"{summary.constants} constants", summary.constant_nbytes),
        ("initial state", summary.mutable_nbytes),
        ("delegate blobs", summary.delegate_nbytes),
        *((f"named data {key}", size) for key, size in summary.named_data.items()),
        *(
            (f"planned memory {memory_id} of {method.name}{_on(method.devices.get(memory_id))}", size)
            for method in summary.methods
            for memory_id, size in method.memory.items()
        ),
    ]
    shown = [(name, count(size)) for name, size in rows if size]
    return Table("sizes", ("what", "bytes"), shown, frozenset({"bytes"}))


def _method_tables(method: MethodSummary) -> Iterator[Table]:
    from delegraph.tables import Table, count

    values = [*_values("input", method.inputs), *_values("output", method.outputs)]
    counted = ", ".join(f"{number} {kind}" for kind, number in method.instructions.items())
    yield Table(
        f"{method.name}: {method.values} values, instructions: {counted or 'none'}",
        ("", "dtype", "shape", "memory", "bytes"),
        values,
        frozenset({"bytes"}),
    )
    assumed = [(text, "checked in every call") for text in method.relations]
    assumed += [(text, "not checked") for text in method.unchecked]
    yield Table(f"{method.name}: what the inputs' sizes have to be", ("relation", ""), assumed)
    delegates = [
        (
            str(index),
            d.backend,
            _installed(d),
            count(d.calls),
            count(d.blob_nbytes),
            _stamp(d),
            ", ".join(d.compile_specs),
        )
        for index, d in enumerate(method.delegates)
    ]
    columns = ("", "backend", "installed", "calls", "blob bytes", "made by", "compile specs")
    yield Table(f"{method.name}: delegates", columns, delegates, frozenset({"calls", "blob bytes"}))
    yield _alternatives_table(method)
    operators = [
        (
            op.name,
            count(op.calls),
            ", ".join([*op.libraries, *([f"none for {op.missing} calls"] if op.missing else [])]),
        )
        for op in method.operators
    ]
    yield Table(f"{method.name}: operators", ("operator", "calls", "kernels"), operators, frozenset({"calls"}))
    uses = [(_places(use), use.operator, use.key, use.library or "none", use.reason) for use in method.kernels]
    yield Table(f"{method.name}: kernels", ("instructions", "operator", "kernel key", "library", "why"), uses)


def _places(use: KernelUse) -> str:
    """`0, 2-5`; with the chain in front where it is not the first one."""
    runs: list[list[tuple[int, int]]] = []
    for chain, index in use.instructions:
        if runs and runs[-1][-1] == (chain, index - 1):
            runs[-1].append((chain, index))
        else:
            runs.append([(chain, index)])
    return ", ".join(
        (f"chain {run[0][0]}: " if run[0][0] else "")
        + (f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]))
        for run in runs
    )


def _values(role: str, values: Iterable[ValueSummary]) -> Iterator[tuple[str, ...]]:
    from delegraph.errors import printable
    from delegraph.tables import count

    for index, value in enumerate(values):
        called = f"{role} {index} {printable(value.name)}".rstrip()
        if value.shape is None:
            yield called, value.kind, value.value, "", ""
            continue
        place = "planned" if value.planned else "the caller's"
        yield called, value.kind, _shape(value), place, count(value.nbytes or 0)


def _shape(value: ValueSummary) -> str:
    """`[batch in 1..16, 8]`; `up to [16, 8]` where the program has no more than upper bounds."""
    if value.dims:
        return f"[{', '.join(value.dims)}]"
    return f"{'up to ' if value.dynamic else ''}{list(value.shape or ())}"


def _alternatives_table(method: MethodSummary) -> Table:
    from delegraph.tables import Table, count

    rows = [
        (
            str(index),
            _alternative(other),
            count(other.nbytes),
            count(other.instructions),
            ", ".join(other.missing or ()),
        )
        for index, delegate in enumerate(method.delegates)
        for other in delegate.alternatives
    ]
    title = f"{method.name}: what runs where a delegate cannot, the first that can"
    columns = ("delegate", "in its place", "bytes", "instructions", "operators without a kernel")
    return Table(title, columns, rows, frozenset({"bytes", "instructions"}))


def _alternative(other: AlternativeSummary) -> str:
    if other.fallback is None:
        return f"its blob {other.variant!r}" if other.variant else "another blob"
    return f"its graph, on {' and '.join([*other.fallback, 'kernels'])}"


def _installed(delegate: DelegateSummary) -> str:
    return "yes" if delegate.installed else "no"


def _stamp(delegate: DelegateSummary) -> str:
    stamp = delegate.stamp
    return f"{stamp.distribution} {stamp.version}, blob version {stamp.blob_version}" if stamp else "not said"
