"""Looking at programs and runs, without torch. The public names, each imported when it is first used.

summary.py         Program -> what is in it: inputs, outputs, operators, delegates, memory, sizes
program_model/     Program -> its steps and weights as rows, through delegates, with modules and lines
program_diff/      two programs -> how they differ
profiling/         a program -> where the time of its runs goes, by module, line and node; a flame graph, a trace
program_view/      programs -> their graphs, in a browser, a notebook or Model Explorer
bundled_program/   a program with inputs to try it on and expected outputs, in one `.bpte`
selective_build/   programs -> a wheel or zipapp with what they need and nothing else
made_inputs.py     a method's metadata -> inputs that it takes, random or zeros
worker.py          a process that is asked one thing at a time, and may crash or hang
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.devtools.bundled_program.bundle import BundledCase, BundledProgram, BundledSuite
    from delegraph.devtools.bundled_program.cases import BundledTensor, MethodTestCase, MethodTestSuite
    from delegraph.devtools.bundled_program.file import (
        load_bundled_program,
        serialize_bundled_program,
        write_bundled_program,
    )
    from delegraph.devtools.bundled_program.verify import (
        CaseResult,
        OutputComparison,
        verify_bundled_program,
        verify_case,
    )
    from delegraph.devtools.profiling.measuring import profile
    from delegraph.devtools.profiling.node_times import event_counters, node_times
    from delegraph.devtools.profiling.profile import Profile
    from delegraph.devtools.profiling.times import DelegateTime, GroupTime, NodeTime, RunTimes
    from delegraph.devtools.program_diff.changes import Change, Kind, ProgramDiff
    from delegraph.devtools.program_diff.comparing import diff_programs
    from delegraph.devtools.program_model.reading import load_model
    from delegraph.devtools.program_model.rows import DelegateRow, MethodModel, NodeRow, Origin, ProgramModel, WeightRow
    from delegraph.devtools.program_view.view import ProgramView, view
    from delegraph.devtools.worker import WorkerDied, WorkerHangs, WorkerProcess, serve

__all__ = [
    "BundledCase",
    "BundledProgram",
    "BundledSuite",
    "BundledTensor",
    "CaseResult",
    "Change",
    "DelegateRow",
    "DelegateTime",
    "GroupTime",
    "Kind",
    "MethodModel",
    "MethodTestCase",
    "MethodTestSuite",
    "NodeRow",
    "NodeTime",
    "Origin",
    "OutputComparison",
    "Profile",
    "ProgramDiff",
    "ProgramModel",
    "ProgramView",
    "RunTimes",
    "WeightRow",
    "WorkerDied",
    "WorkerHangs",
    "WorkerProcess",
    "diff_programs",
    "event_counters",
    "load_bundled_program",
    "load_model",
    "node_times",
    "profile",
    "serialize_bundled_program",
    "serve",
    "verify_bundled_program",
    "verify_case",
    "view",
    "write_bundled_program",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.devtools.bundled_program.bundle": ("BundledCase", "BundledProgram", "BundledSuite"),
        "delegraph.devtools.bundled_program.cases": ("BundledTensor", "MethodTestCase", "MethodTestSuite"),
        "delegraph.devtools.bundled_program.file": (
            "load_bundled_program",
            "serialize_bundled_program",
            "write_bundled_program",
        ),
        "delegraph.devtools.bundled_program.verify": (
            "CaseResult",
            "OutputComparison",
            "verify_bundled_program",
            "verify_case",
        ),
        "delegraph.devtools.profiling.measuring": ("profile",),
        "delegraph.devtools.profiling.node_times": ("event_counters", "node_times"),
        "delegraph.devtools.profiling.profile": ("Profile",),
        "delegraph.devtools.profiling.times": ("DelegateTime", "GroupTime", "NodeTime", "RunTimes"),
        "delegraph.devtools.program_diff.changes": ("Change", "Kind", "ProgramDiff"),
        "delegraph.devtools.program_diff.comparing": ("diff_programs",),
        "delegraph.devtools.program_model.reading": ("load_model",),
        "delegraph.devtools.program_model.rows": (
            "DelegateRow",
            "MethodModel",
            "NodeRow",
            "Origin",
            "ProgramModel",
            "WeightRow",
        ),
        "delegraph.devtools.program_view.view": ("ProgramView", "view"),
        "delegraph.devtools.worker": ("WorkerDied", "WorkerHangs", "WorkerProcess", "serve"),
    },
)
