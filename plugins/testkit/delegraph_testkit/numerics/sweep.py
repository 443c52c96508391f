"""A plug-in, an entry of torch's operator database and a dtype -> how what the plug-in computes at the edges differs.

sweep([Subject(Kind.BACKEND, "acme")], "maximum", "int64")      {"acme": Cell(...)}
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

import delegraph
from delegraph.errors import DelegraphError, MissingKernel, MissingOutVariant, cause_of
from delegraph_testkit.arrays import Array
from delegraph_testkit.lowering import asked_for, facts_of, kernel_facts, lowered_onto, quantized, to_array
from delegraph_testkit.models import Example
from delegraph_testkit.numerics.differences import differences, same_choice
from delegraph_testkit.numerics.kinds import Difference
from delegraph_testkit.numerics.programs import EntryProgram, finite, programs
from delegraph_testkit.numerics.reference import Answers, QuantizedWays, Ways
from delegraph_testkit.numerics.undefined import OPEN, TIES, not_compared
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.operator_samples import entries
from delegraph_testkit.subject import Kind, Subject

__all__ = ["Cell", "sweep"]


@dataclass(slots=True)
class Cell:
    """The outcome for an operator in a dtype. `compared` are calls; `deviations` have the first of each kind, in words;
    `declined` are reasons, `open` is why nothing is compared."""

    compared: int = 0
    deviations: dict[str, str] = field(default_factory=dict)
    declined: list[str] = field(default_factory=list)
    open: str = ""

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.deviations:
            return "deviates"
        return "equal" if self.compared else "declined" if self.declined else "open"

    def note(self, kind: Difference, message: str) -> None:
        """Keep the first of a kind."""
        self.deviations.setdefault(kind.value, " ".join(message.split())[:400])


def sweep(subjects: Sequence[Subject], entry: str, dtype: str) -> Mapping[str, Cell]:
    """The cells of an entry and dtype by subject."""
    cells = {subject.name: Cell() for subject in subjects}
    reason = not_compared(entry) or _unsupported(entry, dtype)
    for cell in cells.values():
        cell.open = reason
    if not reason:
        with warnings.catch_warnings(action="ignore"):
            for program in programs(entry, getattr(torch, dtype)):
                _sweep_program([s for s in subjects if not s.claims.finite_only], cells, entry, program)
                for subject in (s for s in subjects if s.claims.finite_only):
                    _sweep_program([subject], cells, entry, finite(program, entry, subject.claims.computes_in))
    return cells


def _unsupported(entry: str, dtype: str) -> str:
    info = entries().get(entry)
    supported = info is not None and getattr(torch, dtype) in info.supported_dtypes("cpu")
    return "" if supported else "torch has no kernel for it"


def _sweep_program(subjects: Sequence[Subject], cells: Mapping[str, Cell], entry: str, program: EntryProgram) -> None:
    if not subjects:
        return
    exported = _exported(program)
    if isinstance(exported, str):
        for cell in cells.values():
            cell.open = cell.open or exported
        return
    ways = Ways(entry, program.module, exported)
    expected = [Answers(ways, call) for call in program.calls]
    for subject in subjects:
        if subject.claims.quantizer:
            _sweep_quantized(subject, cells[subject.name], entry, program)
        else:
            _EntryRun(subject, cells[subject.name], entry, program).check(exported, expected)


def _sweep_quantized(subject: Subject, cell: Cell, entry: str, program: EntryProgram) -> None:
    """The program as it comes to a device that computes in integers, quantized on numbers that such have place for.
    Calls with NaN, which no integer is, are left out."""
    calls = [call for call in program.calls if not any(tensor.isnan().any() for tensor in call)]
    if not calls or any(tensor.dtype != torch.float32 for tensor in calls[0]):
        cell.open = cell.open or "float32 alone is quantized"
        return
    ordinary = tuple(torch.linspace(0.25, 4, tensor.numel()).view(tensor.shape) for tensor in calls[0])
    try:
        programs = quantized(Example({"forward": program.module}, {"forward": [ordinary]}), subject.claims.quantizer)
    except Exception as error:
        cell.declined.append(f"it is not quantized: {error}")
        return
    ways = QuantizedWays(program.module, programs["forward"], ordinary)
    run = _EntryRun(subject, cell, entry, replace(program, calls=calls))
    run.check(programs["forward"], [Answers(ways, call) for call in calls])


def _exported(program: EntryProgram) -> ExportedProgram | str:
    """The program exported, or why there is nothing to lower or to compare."""
    try:
        with torch.no_grad():
            exported = torch.export.export(program.module, program.calls[0])
    except Exception as error:  # whatever torch raises
        return f"torch does not export it: {type(error).__name__}"
    for node in exported.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return "drawn at random"
    return exported


@dataclass(frozen=True, slots=True)
class _EntryRun:
    """A program of an entry on one subject."""

    subject: Subject
    cell: Cell
    entry: str
    program: EntryProgram

    def check(self, exported: ExportedProgram, expected: Sequence[Answers]) -> None:
        """Lower the program, run every call of it, and note how the results differ."""
        module = self._module(exported)
        if module is not None:
            self._compare(module, expected)

    def _module(self, exported: ExportedProgram) -> Any:
        """The program lowered and loaded; None where the subject takes none of it."""
        order = self._order()
        backends = [] if self.subject.kind is Kind.KERNELS else [asked_for(self.subject)]
        try:
            lowered = lowered_onto(self._example, backends, {"forward": exported}, kernels=order)
            if self.subject.kind is Kind.KERNELS:
                facts = kernel_facts(bytes(lowered), self.subject.name, ["forward"])
            else:
                facts = facts_of(lowered, self._example)
            if facts.taken:
                return delegraph.load(bytes(lowered), kernels=order)
            self.cell.declined.append(facts.why_left)
        except (MissingKernel, MissingOutVariant) as error:
            self.cell.declined.append(str(error))
        except Exception as error:
            if backends and self._is_lowered_without(exported, error):
                self.cell.note(Difference.FAILED, f"{self.program.name}: {cause_of(error)}")
            elif isinstance(error, DelegraphError):
                self.cell.declined.append(str(error))
            else:
                self.cell.note(Difference.FAILED, f"{self.program.name}: {cause_of(error)}")
        return None

    def _is_lowered_without(self, exported: ExportedProgram, error: Exception) -> bool:
        """Whether kernels alone take what a backend fails on."""
        try:
            lowered_onto(self._example, [], {"forward": exported}, kernels=self._order())
        except Exception as other:
            return type(other) is not type(error)
        return True

    @property
    def _example(self) -> Example:
        return Example({"forward": self.program.module}, {"forward": self.program.calls})

    def _order(self) -> tuple[Any, ...]:
        return kernel_order((self.subject.name,) if self.subject.kind is Kind.KERNELS else ())

    def _compare(self, module: Any, expected: Sequence[Answers]) -> None:
        """Run every call, and note how the results differ."""
        method = module["forward"].method
        for call, torchs in zip(self.program.calls, expected, strict=True):
            inputs = [to_array(tensor) for tensor in call]
            try:
                results = self._comparable([array.copy() for array in method.execute(inputs)], torchs.first)
            except Exception as error:
                self.cell.note(Difference.FAILED, f"{self._where(inputs)}: {cause_of(error)}")
                return
            self.cell.compared += 1
            for position, result in enumerate(results):
                if not self._is_another_tie(inputs, results, torchs, position):
                    known = {Difference(kind) for kind in self.cell.deviations} | self._open
                    for kind, place in differences(result, torchs, position, self.program.elementwise, known):
                        message = self._message(inputs, position, place, result, torchs.first[position])
                        self.cell.note(Difference.DENORMAL if self._is_beside_denormal(position) else kind, message)
        module["forward"].method.close()

    def _comparable(self, results: list[Array], expected: Sequence[Array]) -> list[Array]:
        """The results; of a subject that is held to finite numbers with torch's where torch's are none."""
        if not self.subject.claims.finite_only:
            return results
        return [
            np.where(np.isfinite(torchs), result, torchs) if _same_form(result, torchs) else result
            for result, torchs in zip(results, expected, strict=True)
        ]

    def _is_beside_denormal(self, position: int) -> bool:
        """Whether the number in the program that a result is of is denormal."""
        numbers = getattr(self.program.module, "side_by_side", None)
        number = numbers[position].number if numbers is not None else 0
        dtypes = [tensor.dtype for tensor in self.program.calls[0] if tensor.is_floating_point()]
        return any(0 < abs(number) < torch.finfo(dtype).tiny for dtype in dtypes)

    @property
    def _open(self) -> set[Difference]:
        """Kinds in which torch leaves the results of the entry open."""
        return {kind for row in OPEN if row.is_of(self.entry) for kind in row.kinds}

    def _is_another_tie(self, inputs: list[Array], results: list[Array], torchs: Answers, position: int) -> bool:
        ties = TIES.get(self.entry.partition(" ")[0])
        if ties is None or position != ties.places or len(results) != 1 + (ties.values is not None):
            return False
        return same_choice(ties, inputs, results, torchs.first)

    def _message(
        self, inputs: list[Array], position: int, place: tuple[int, ...], result: Array, expected: Array
    ) -> str:
        if not _same_form(result, expected):
            told = f"{result.dtype}{list(result.shape)}, not {expected.dtype}{list(expected.shape)}"
        else:
            told = f"{result[place]}, not {expected[place]}"
        return f"{self._where(inputs, position, place, result.shape)} is {told}"

    def _where(
        self, inputs: list[Array], position: int = 0, place: tuple[int, ...] = (), shape: tuple[int, ...] = ()
    ) -> str:
        """The program, the operands at an element where there are such, and what else it is called with."""
        shown = inputs
        if self.program.elementwise and place:
            shown = [inputs[position]] if self.program.name.startswith("numbers") else inputs
            shown = [array for array in (_at(array, place, shape) for array in shown) if array is not None]
        numbers = getattr(self.program.module, "side_by_side", None)
        beside = f" beside {numbers[position].number}" if numbers is not None else ""
        operands = ", ".join(_short(array) for array in shown)
        called = f"{self.program.name}: of {operands}{beside}{_extra(self.program.module)}"
        return f"{called}, result {position} at {list(place)}"


def _same_form(result: Array, expected: Array) -> bool:
    return result.shape == expected.shape and result.dtype == expected.dtype


def _at(array: Array, place: tuple[int, ...], shape: tuple[int, ...]) -> Array | None:
    try:
        return np.asarray(np.broadcast_to(array, shape)[place])
    except ValueError:
        return None


def _short(array: Array) -> str:
    if array.size == 1 and not array.ndim:
        return f"{array.dtype}({array[()]})"
    values = " ".join(str(value) for value in array.reshape(-1)[:6])
    return f"{array.dtype}{list(array.shape)}[{values}{' …' if array.size > 6 else ''}]"


def _extra(module: nn.Module) -> str:
    leaves = [leaf for leaf in getattr(module, "_leaves", ()) if leaf is not None]
    return f" with {', '.join(map(repr, leaves))}" if leaves else ""
