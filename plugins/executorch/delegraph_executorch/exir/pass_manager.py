"""ExecuTorch's `executorch.exir.pass_manager`, passes in order as one pass, and its registry of passes by name.

A list of passes serves wherever passes are accepted, and passes that a lowering names are plug-ins of the group
`delegraph.passes`; these are for code that has a manager or a registry.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, TypeAlias

import torch
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra import pass_manager as fx
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils import _pytree as pytree

from delegraph.aot import ExportedProgramPassBase, ExportedProgramPassResult, program_with_graph
from delegraph.errors import LoweringError
from delegraph_executorch.bridge.passes import adapted_pass
from delegraph_executorch.exir.error import ExportError, ExportErrorType

PassType: TypeAlias = ExportedProgramPassBase | Callable[[GraphModule], PassResult | None]


class PassManager(fx.PassManager):
    """Passes on a graph module, those of nested lists in turn."""

    def __init__(
        self,
        passes: Sequence[PassType] | Sequence[Sequence[PassType]] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        flat = [fx.pass_result_wrapper(one) for one in pytree.tree_leaves(list(passes or ()))]
        super().__init__(
            flat,
            run_checks_after_each_pass=run_checks_after_each_pass,
            suppress_check_failures=suppress_check_failures,
            steps=steps,
        )

    def check(self, module: torch.nn.Module) -> None:
        """Raise `ExportError` for a graph that passes cannot work on."""
        assert isinstance(module, GraphModule)
        _check_graph(module)


class ExportedProgramPassManager(fx.PassManager, ExportedProgramPassBase):
    """Passes on a program: of graphs, or of programs; the program that is given stays as it is."""

    def __init__(
        self,
        passes: Sequence[PassType] | Sequence[Sequence[PassType]] | None = None,
        constraints: list[Callable[[Callable[..., Any], Callable[..., Any]], bool]] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        flat = [_with_result(one) for one in pytree.tree_leaves(list(passes or ()))]
        super().__init__(
            flat,
            constraints=constraints,
            run_checks_after_each_pass=run_checks_after_each_pass,
            suppress_check_failures=suppress_check_failures,
            steps=steps,
        )

    def check(self, exported_program: ExportedProgram) -> None:  # type: ignore[override]  # as ExecuTorch has it
        """Raise `ExportError` for a graph that passes cannot work on, and torch's error for an inconsistent program."""
        _check_graph(exported_program.graph_module)
        exported_program.validate()

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run the passes, at most `steps` times, until none changes anything."""
        return self(exported_program)

    def __call__(  # type: ignore[override]  # as ExecuTorch has it
        self, exported_program: ExportedProgram, override_verifiers: list[type[Verifier]] | None = None
    ) -> ExportedProgramPassResult:
        if not self._validated:
            self.solve_constraints()
        program, modified = copy(exported_program), False
        if override_verifiers:
            program._verifiers = override_verifiers
        self.check(program)
        for _ in range(self.steps):
            program, changed = self._step(program)
            modified |= changed
            if not changed:
                break
        self.check(program)
        return ExportedProgramPassResult(program, modified)

    def _step(self, program: ExportedProgram) -> tuple[ExportedProgram, bool]:
        """Each pass once."""
        modified = False
        for number, one in enumerate(self.passes):
            try:
                program, changed = _run(program, one)
                modified |= changed
                if self.run_checks_after_each_pass:
                    self.check(program)
            except Exception as cause:
                before = ", ".join(_name(earlier) for earlier in self.passes[:number]) or "none"
                raise LoweringError(f"pass {_name(one)} failed (passes before it: {before}): {cause}") from cause
        return program, modified


def _with_result(graph_pass: Any) -> Any:
    adapted = adapted_pass(graph_pass)
    return adapted if isinstance(adapted, ExportedProgramPassBase) else fx.pass_result_wrapper(adapted)


def _run(program: ExportedProgram, graph_pass: Any) -> tuple[ExportedProgram, bool]:
    takes_programs = isinstance(graph_pass, ExportedProgramPassBase)
    result = graph_pass(program) if takes_programs else graph_pass(program.graph_module)
    if isinstance(result, ExportedProgramPassResult):
        result.exported_program.graph_module.recompile()
        return result.exported_program, result.modified
    if result is None:
        raise TypeError(f"{_name(graph_pass)} returned None; it returns a PassResult")
    if not result.modified:
        return program, False
    _check_graph(result.graph_module)
    return program_with_graph(program, result.graph_module), True


def _check_graph(module: GraphModule) -> None:
    module.recompile()
    module.graph.lint()
    for node in module.graph.find_nodes(op="call_method"):
        raise ExportError(ExportErrorType.NOT_SUPPORTED, f"call_method `{node}`: a program calls operators")


def _name(graph_pass: Any) -> str:
    return graph_pass.__name__ if inspect.isfunction(graph_pass) else type(graph_pass).__name__


class PassRegistry:
    """Lists of passes by name, for the whole process."""

    registry: ClassVar[dict[str, list[PassType]]] = {}

    @classmethod
    def register(cls, pass_name: str | None = None) -> Callable[[PassType], PassType]:
        """A decorator that registers a pass under `pass_name`, or under its own name in snake case."""

        def registered(one_pass: Any) -> Any:
            cls.register_list(pass_name or re.sub(r"(?<!^)(?=[A-Z])", "_", one_pass.__name__).lower(), [one_pass])
            return one_pass

        return registered

    @classmethod
    def register_list(cls, pass_name: str, pass_list: list[PassType]) -> None:
        """Register several passes under one name; the first to take a name keeps it."""
        if pass_name in cls.registry:
            warnings.warn(f"a pass {pass_name} is registered already; this one is ignored", stacklevel=2)
            return
        cls.registry[pass_name] = pass_list

    @classmethod
    def get(cls, key: str) -> list[PassType]:
        """The passes of a name. Raises `ExportError` for one that nobody registered."""
        if key not in cls.registry:
            raise ExportError(ExportErrorType.MISSING_PROPERTY, f"no pass {key!r} is registered")
        return cls.registry[key]
