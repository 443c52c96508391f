"""A kind of plug-in -> its checks: a table that is the same whatever a plug-in does, so that shares mean something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from delegraph_testkit.claims import Claims, ClaimsError, database
from delegraph_testkit.outcomes import Level
from delegraph_testkit.subject import Kind, Subject

__all__ = ["Check", "checks_of", "is_claimed", "refuse_strange_failures"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is checked: `function` of the kit's `module`, with `arguments`.

    It gets a bench, and for each of `programs` of which the plug-in took something, that one as stored. With
    `torch_free` it runs where torch cannot be imported, on programs that another process has lowered.
    """

    level: Level
    name: str
    module: str
    function: str = ""
    torch_free: bool = False
    programs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """`contract/outputs_are_written`."""
        return f"{self.level}/{self.name}"

    def resolve(self) -> Any:
        """The function."""
        return getattr(import_module(f"delegraph_testkit.{self.module}"), self.function or self.name)

    @property
    def wants(self) -> str:
        """The check's requirement, in a sentence."""
        return (self.resolve().__doc__ or "").partition("\n\n")[0].strip()


_CONTRACT: Final = ("arithmetic", "perceptron", "image", "several_results", "constants", "zero_dims")
"""The models that the contract is tried on, so far as the plug-in takes a part of them."""
_GRAPHS: Final = ("diamond", "ladder", "results_on_the_way")
"""The further models that partitions are tried on."""
_COMPOSED: Final = ("image", "residual", "diamond")
_FEATURE_OF: Final = {
    "attention": "",
    "residual": "",
    "recurrent": "",
    "embedding": "",
    "dynamic_batch": "dynamic_shapes",
    "dynamic_arithmetic": "dynamic_shapes",
    "running_total": "mutable_buffers",
    "branches": "control_flow",
    "two_methods": "shared_weights",
    "external": "external_weights",
}
"""Models, each with the feature that it is there for."""
_OF_A_RUN: Final = (
    "outputs_are_written",
    "inputs_are_left_alone",
    "prepared_calls_are_the_same",
    "submitted_runs_are_the_same",
    "runs_while_traced",
    "delegates_are_independent",
    "sessions_are_independent",
    "threads_are_independent",
    "torch_is_not_needed",
)
_OF_A_PASS: Final = (
    "numbers_are_kept",
    "values_are_described",
    "origins_are_kept",
    "the_model_is_left_alone",
    "transforming_is_repeatable",
    "changes_are_told",
    "running_it_again_ends",
)
_OF_PLANS: Final = (
    "plans_are_sound",
    "plans_are_repeatable",
    "plans_are_no_larger_than_naive",
    "lower_bounds_are_true",
    "lifetimes_are_left_alone",
)
_OF_BLOBS: Final = (
    "unknown_options_at_load_are_refused",
    "newer_blobs_are_refused",
    "damaged_blobs_are_refused",
    "mutated_blobs_end_in_errors",
    "engine_files_are_of_sound_blobs",
    "descriptions_are_of_sound_blobs",
    "kept_code_is_the_same",
    "every_blob_of_a_delegate_is_right",
)


def _backend_checks(claims: Claims) -> Iterator[Check]:
    yield Check(Level.LOADS, "both_halves_are_installed", "load_checks", torch_free=True)
    yield from _factory_checks(claims)
    yield Check(Level.LOADS, "loads_without_torch", "load_checks", torch_free=True)
    yield Check(Level.LOADS, "answers_whether_it_is_available", "load_checks", torch_free=True)
    yield Check(Level.LOADS, "device_memory_keeps_what_it_is_given", "device_checks", torch_free=True)
    for name in (*_OF_A_RUN, *_OF_BLOBS):
        yield Check(Level.CONTRACT, name, "contract_checks", torch_free=True, programs=(*_CONTRACT, *claims.models))
    yield from _partition_checks(claims)
    yield from _operator_checks()
    yield from _model_checks(claims)


def _factory_checks(claims: Claims) -> Iterator[Check]:
    yield Check(Level.LOADS, "loads_with_torch", "load_checks")
    yield Check(Level.LOADS, "unknown_options_are_refused", "load_checks")


def _partition_checks(claims: Claims) -> Iterator[Check]:
    programs = (*_CONTRACT, *_GRAPHS, *claims.models)
    yield Check(Level.PARTITIONS, "nothing_but_tags_is_changed", "partition_checks", programs=programs)
    yield Check(Level.PARTITIONS, "lowering_is_repeatable", "partition_checks", programs=programs)
    yield Check(Level.PARTITIONS, "weights_are_left_alone", "partition_checks", programs=programs)
    yield Check(Level.PARTITIONS, "what_is_left_has_a_reason", "partition_checks", programs=programs)
    yield Check(Level.PARTITIONS, "what_is_taken_is_compiled", "partition_checks", programs=programs)
    for name in _GRAPHS:
        yield Check(Level.PARTITIONS, f"{name}_is_cut", "model_checks", "model_is_right", True, (name,))
    for name in _COMPOSED:
        for place in ("first", "last"):
            yield Check(Level.PARTITIONS, f"{name}_{place}", "model_checks", "composes", True, (f"{name}@{place}",))


def _operator_checks() -> Iterator[Check]:
    for entry, dtypes in database().items():
        for dtype in dtypes:
            name = f"{entry}/{dtype}"
            yield Check(Level.OPERATORS, name, "operator_checks", "operator_is_right", arguments=(entry, dtype))


def _model_checks(claims: Claims, names: Iterable[str] = tuple(_FEATURE_OF)) -> Iterator[Check]:
    for name in names:
        yield Check(Level.MODELS, name, "model_checks", "model_is_right", True, (name,), (_FEATURE_OF[name],))
    for name in claims.models:
        yield Check(Level.MODELS, name, "model_checks", "own_model_is_right", True, (name,))
    yield Check(Level.MODELS, "speed_is_told", "model_checks", torch_free=True, programs=("residual",))


def _partitioner_checks(claims: Claims) -> Iterator[Check]:
    yield from _factory_checks(claims)
    yield from _partition_checks(claims)
    yield from _model_checks(claims)


def _kernels_checks(claims: Claims) -> Iterator[Check]:
    yield Check(Level.LOADS, "loads_with_torch", "load_checks")
    yield Check(Level.LOADS, "loads_without_torch", "load_checks", torch_free=True)
    yield Check(Level.LOADS, "kernels_fit_their_operators", "load_checks")
    for name in _OF_A_RUN:
        yield Check(Level.CONTRACT, name, "contract_checks", torch_free=True, programs=(*_CONTRACT, *claims.models))
    yield from _operator_checks()
    yield from _model_checks(
        claims, [name for name, feature in _FEATURE_OF.items() if feature in ("", "dynamic_shapes")]
    )


def _quantizer_checks(claims: Claims) -> Iterator[Check]:
    yield from _factory_checks(claims)
    of_a_model = ("annotates_and_keeps_results", "quantizing_is_repeatable", "what_is_quantized_runs")
    for level, models in ((Level.CONTRACT, ("perceptron", "image")), (Level.MODELS, ("residual", "attention"))):
        for model in models:
            for name in of_a_model:
                yield Check(level, f"{name}/{model}", "quantizer_checks", name, arguments=(model,))


def _pass_checks(claims: Claims) -> Iterator[Check]:
    yield from _factory_checks(claims)
    yield Check(Level.LOADS, "a_pass_is_made", "pass_checks")
    for name in _OF_A_PASS:
        yield Check(Level.CONTRACT, name, "pass_checks", programs=(*_CONTRACT, *claims.models))
    yield from _model_checks(claims)


def _planner_checks(claims: Claims) -> Iterator[Check]:
    yield Check(Level.LOADS, "loads_with_torch", "load_checks")
    yield Check(Level.LOADS, "loads_without_torch", "load_checks", torch_free=True)
    programs = tuple(f"{model}@greedy" for model in (*_CONTRACT, *claims.models))  # their lifetimes are asked about
    for name in _OF_PLANS:
        yield Check(Level.CONTRACT, name, "planner_checks", torch_free=True, programs=programs)
    for name in ("several_memories_are_planned", "small_memories_are_refused"):
        yield Check(Level.CONTRACT, name, "memory_checks", arguments=("image",))
    yield from _model_checks(claims)
    yield Check(Level.MODELS, "plans_are_told", "planner_checks", torch_free=True, programs=("residual",))


def _tool_checks(claims: Claims) -> Iterator[Check]:
    programs = ("perceptron", "image", *claims.models)
    yield Check(Level.LOADS, "loads_with_torch", "load_checks")
    yield Check(Level.LOADS, "loads_without_torch", "load_checks", torch_free=True)
    yield Check(Level.LOADS, "hooks_are_marked", "tool_checks", torch_free=True)
    for name in ("programs_are_the_same", "errors_of_lowering_are_passed_on", "lowering_is_watched_without_a_warning"):
        yield Check(Level.CONTRACT, name, "tool_lowering_checks", programs=programs)
    for name in ("results_are_the_same", "errors_are_passed_on", "loading_is_watched_without_a_warning"):
        yield Check(Level.CONTRACT, name, "tool_checks", torch_free=True, programs=programs)
    for name in ("sessions_are_independent", "threads_are_independent", "torch_is_not_needed"):
        yield Check(Level.CONTRACT, name, "contract_checks", torch_free=True, programs=programs)
    yield from _model_checks(claims)
    yield Check(Level.MODELS, "cost_is_told", "tool_checks", torch_free=True, programs=("residual",))


_TABLES: Final[Mapping[Kind, Callable[[Claims], Iterator[Check]]]] = {
    Kind.BACKEND: _backend_checks,
    Kind.KERNELS: _kernels_checks,
    Kind.PARTITIONER: _partitioner_checks,
    Kind.QUANTIZER: _quantizer_checks,
    Kind.PASS: _pass_checks,
    Kind.PLANNER: _planner_checks,
    Kind.TOOL: _tool_checks,
}


def checks_of(subject: Subject) -> list[Check]:
    """Every check of a subject, level by level."""
    return sorted(_TABLES[subject.kind](subject.claims), key=lambda check: check.level)


def is_claimed(check: Check, claims: Claims) -> bool:
    """Whether a check is due: all are but those of operators that nobody claims, which may be tried or not."""
    return check.level is not Level.OPERATORS or claims.has(*check.arguments[:2])


def refuse_strange_failures(subject: Subject) -> None:
    """Raise `ClaimsError` for an expected failure of a check that does not exist: of none of the kinds of plug-ins, for
    those of one distribution share their claims."""
    known = {check.id for table in _TABLES.values() for check in table(subject.claims)}
    for name in subject.claims.expected_failures:
        if name not in known:
            raise ClaimsError(f"an expected failure names {name!r}, and no check is called that")
