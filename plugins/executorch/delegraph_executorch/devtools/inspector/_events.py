"""An ETDump -> event blocks: events that all runs of one kind have, each with its times and what it wrote.

    run "Execute"  native_call_add.out 0..3   ┐      block "Execute"
    run "Execute"  native_call_add.out 9..11  ┴──>      event "native_call_add.out", raw [3, 2]

Two runs are of one kind if their names, their methods and the signatures of all their events are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeAlias, TypedDict

import numpy as np

from delegraph.program import etdump as flatcc
from delegraph.program.etdump import DebugEvent, ProfileEvent
from delegraph.program.etdump import ETDump as ETDumpFlatCC
from delegraph_executorch.devtools.inspector._methods import DELEGATE_CALL, KERNEL_CALL, RUN_EVENTS, recorded_method
from delegraph_executorch.devtools.inspector._values import (
    ProgramOutput,
    TimeScale,
    calculate_time_scale_factor,
    find_populated_event,
    inflate_runtime_output,
    is_debug_output,
    is_inference_output_equal,
    pandas,
    verify_debug_data_equivalence,
)
from delegraph_executorch.devtools.operator_graph import OperatorNode

__all__ = [
    "RESERVED_FRAMEWORK_EVENT_NAMES",
    "DebugEventSignature",
    "DelegateMetadata",
    "Event",
    "EventBlock",
    "EventSignature",
    "InstructionEvent",
    "InstructionEventSignature",
    "PerfData",
    "ProfileEventSignature",
    "RunSignature",
]

RESERVED_FRAMEWORK_EVENT_NAMES = ["Method::init", "Program::load_method", "Method::execute"]
"""Events that belong to no node."""

MetadataParser: TypeAlias = Callable[[list[Any]], Any]
TimeScaleConverter: TypeAlias = Callable[[Any, Any], Any]

MAX_WRAPPED = 2**32 - 1
"""A clock that begins anew does so here: it has 32 bits."""
SHOWN_OP_TYPES = 5


class DelegateMetadata(TypedDict):
    """A delegate's backend, and the debug handles of each of its own ids."""

    name: str
    delegate_map: Mapping[Any, Any]


# ---- what makes two events the same ----------------------------------------------------------------


@dataclass(frozen=True, order=True)
class InstructionEventSignature:
    """The instruction, and what of a delegate in it."""

    instruction_id: int
    chain_index: int
    delegate_id: int | None = None
    delegate_id_str: str | None = None


@dataclass
class InstructionEvent:
    """What one run recorded of one instruction."""

    signature: InstructionEventSignature
    profile_events: list[ProfileEvent] | None = None
    debug_events: list[DebugEvent] | None = None

    @staticmethod
    def gen_from_events(run_events: Sequence[flatcc.Event]) -> list[InstructionEvent]:
        """A run's events by instruction, in order of their first; outputs of the program are left out."""
        found: dict[InstructionEventSignature, InstructionEvent] = {}
        for event in map(find_populated_event, run_events):
            signature = InstructionEventSignature(
                event.instruction_id, event.chain_index, event.delegate_debug_id_int, event.delegate_debug_id_str
            )
            own = found.setdefault(signature, InstructionEvent(signature))
            if isinstance(event, ProfileEvent):
                own.profile_events = [*(own.profile_events or ()), event]
            elif not is_debug_output(event.debug_entry):
                own.debug_events = [*(own.debug_events or ()), event]
        return list(found.values())


@dataclass(frozen=True, order=True)
class _Signature:
    """A name, the instruction, and what of a delegate in it; None for what is not given."""

    name: str = ""
    instruction_id: int | None = -1
    delegate_id: int | None = None
    delegate_id_str: str | None = None

    @classmethod
    def _gen_from_event(cls, event: ProfileEvent | DebugEvent) -> Self:
        instruction, number = event.instruction_id, event.delegate_debug_id_int
        return cls(
            event.name or "",
            None if instruction == -1 else instruction,
            None if number == -1 else number,
            event.delegate_debug_id_str or None,
        )


class ProfileEventSignature(_Signature):
    """Of a span of time."""


class DebugEventSignature(_Signature):
    """Of a value."""


@dataclass(frozen=True, order=True)
class EventSignature:
    """What makes events of several runs the same: their times' signature and their values'."""

    instruction_id: int
    profile_event_signature: ProfileEventSignature | None = None
    debug_event_signature: DebugEventSignature | None = None

    @staticmethod
    def gen_from_instruction_event(
        instruction_event: InstructionEvent,
    ) -> list[tuple[EventSignature, InstructionEvent]]:
        """One for each span of time of the instruction, with that alone; or one for its values."""
        number = instruction_event.signature.instruction_id
        values = instruction_event.debug_events
        debug = DebugEventSignature._gen_from_event(values[0]) if values else None
        if instruction_event.profile_events is None:
            return [(EventSignature(number, debug_event_signature=debug), instruction_event)]
        return [
            (
                EventSignature(number, ProfileEventSignature._gen_from_event(span), debug),
                dataclasses.replace(instruction_event, profile_events=[span]),
            )
            for span in instruction_event.profile_events
        ]


@dataclass(frozen=True, order=True)
class RunSignature:
    """What makes two runs the same."""

    name: str
    events: tuple[EventSignature, ...] | None = None
    bundled_input_index: int | None = None
    method_name: str | None = None


# ---- events ----------------------------------------------------------------------------------------


def _percentile(percent: int) -> property:
    return property(lambda data: float(np.percentile(data.raw, percent)))


@dataclass
class PerfData:
    """How long something took, once for each run, in the unit that was asked for."""

    raw: list[float]

    p10, p50, p90 = map(_percentile, (10, 50, 90))
    """A tenth, half and nine tenths of the runs took no longer."""

    @property
    def avg(self) -> float:
        """The mean."""
        return float(np.mean(self.raw))

    @property
    def min(self) -> float:
        """The fastest run's."""
        return min(self.raw)

    @property
    def max(self) -> float:
        """The slowest run's."""
        return max(self.raw)


@dataclass
class Event:
    """What an instruction, or a part of a delegate, did in all runs of a block; the rest comes from the ETRecord.

    `op_types`, `stack_traces` and `module_hierarchy` are those of the nodes with its `debug_handles`; the last two are
    by the node's name. `debug_data` has what it wrote; `num_outputs` how many results the delegate has that it calls.
    """

    name: str
    perf_data: PerfData | None = None
    op_types: list[str] = field(default_factory=list)
    delegate_debug_identifier: int | str | None = None
    debug_handles: int | Sequence[int] | None = None
    num_outputs: int = 1
    stack_traces: dict[str, Any] = field(default_factory=dict)
    module_hierarchy: dict[str, Any] = field(default_factory=dict)
    is_delegated_op: bool | None = None
    delegate_backend_name: str | None = None
    _delegate_debug_metadatas: list[Any] = field(default_factory=list)
    debug_data: ProgramOutput = field(default_factory=list)
    _instruction_id: int | None = None
    _delegate_metadata_parser: MetadataParser | None = None
    _delegate_time_scale_converter: TimeScaleConverter | None = None
    _start_time: list[int | float] | None = None

    @cached_property
    def delegate_debug_metadatas(self) -> Any:
        """What the backend said of each run: as the parser makes it of that, if there is one."""
        if not self.is_delegated_op or self._delegate_metadata_parser is None:
            return self._delegate_debug_metadatas
        return self._delegate_metadata_parser(self._delegate_debug_metadatas)

    @property
    def raw_delegate_debug_metadatas(self) -> list[Any]:
        """What the backend said of each run, as it said it."""
        return self._delegate_debug_metadatas

    @property
    def start_time(self) -> list[int | float] | None:
        """When each run began, by the runtime's clock."""
        return self._start_time

    def asdict(self, _units: str = "") -> dict[str, Any]:
        """A row of the table; cells that are lists are in lists of one."""
        times = {key: getattr(self.perf_data, key, None) for key in ("p10", "p50", "p90", "avg", "min", "max")}
        return {
            "event_name": self.name,
            "raw": [None if self.perf_data is None else self.perf_data.raw],
            **{key + _units: value for key, value in times.items()},
            "op_types": [_shortened(self.op_types)],
            "delegate_debug_identifier": self.delegate_debug_identifier,
            "stack_traces": [self.stack_traces],
            "module_hierarchy": [self.module_hierarchy],
            "is_delegated_op": self.is_delegated_op,
            "delegate_backend_name": self.delegate_backend_name,
            "debug_data": [self.debug_data],
            "start_time": [self._start_time],
        }

    def to_dataframe(self, _units: str = "") -> Any:
        """The row as a pandas DataFrame."""
        return pandas().DataFrame(self.asdict(_units))

    # ---- from an ETDump ----

    @staticmethod
    def _gen_from_inference_events(
        signature: EventSignature,
        events: Sequence[InstructionEvent],
        scale_factor: float = 1.0,
        output_buffer: bytes | None = None,
        delegate_metadata_parser: MetadataParser | None = None,
        delegate_time_scale_converter: TimeScaleConverter | None = None,
    ) -> Event:
        event = Event(
            name="",
            _instruction_id=signature.instruction_id,
            _delegate_metadata_parser=delegate_metadata_parser,
            _delegate_time_scale_converter=delegate_time_scale_converter,
        )
        Event._populate_profiling_related_fields(event, signature.profile_event_signature, events, scale_factor)
        Event._populate_debugging_related_fields(event, signature.debug_event_signature, events, output_buffer)
        return event

    @staticmethod
    def _populate_event_signature_fields(
        ret_event: Event, event_signature: ProfileEventSignature | DebugEventSignature | None
    ) -> None:
        if event_signature is None:
            return
        number, text = event_signature.delegate_id, event_signature.delegate_id_str
        identifier = text or None if number is None else number
        ret_event.delegate_debug_identifier = identifier
        ret_event.is_delegated_op = identifier is not None
        name = event_signature.name if identifier is None else str(identifier)
        ret_event.name = name or ret_event.name

    @staticmethod
    def _populate_profiling_related_fields(
        ret_event: Event,
        profile_event_signature: ProfileEventSignature | None,
        events: Sequence[InstructionEvent],
        scale_factor: float,
    ) -> None:
        Event._populate_event_signature_fields(ret_event, profile_event_signature)
        with_times = [event for event in events if event.profile_events is not None]
        if any(len(event.profile_events or ()) != 1 for event in with_times):
            raise ValueError(
                "Expected exactly one profile event per InstructionEvent; take them apart by signature first"
            )
        spans = [span for event in with_times for span in event.profile_events or ()]
        if spans:
            ret_event.perf_data = PerfData([_duration(ret_event, span, scale_factor) for span in spans])
            ret_event._start_time = [span.start_time for span in spans]
        if ret_event.name not in RUN_EVENTS and any(span.delegate_debug_metadata for span in spans):
            ret_event._delegate_debug_metadatas = [span.delegate_debug_metadata or "" for span in spans]

    @staticmethod
    def _populate_debugging_related_fields(
        ret_event: Event,
        debug_event_signature: DebugEventSignature | None,
        events: Sequence[InstructionEvent],
        output_buffer: bytes | None = None,
    ) -> None:
        Event._populate_event_signature_fields(ret_event, debug_event_signature)
        runs = [
            [inflate_runtime_output(value.debug_entry, output_buffer) for value in event.debug_events]
            for event in events
            if event.debug_events is not None
        ]
        for run in runs[1:]:
            for one, other in zip(runs[0], run, strict=False):
                assert is_inference_output_equal(one, other), (
                    f"{ret_event.name} wrote {one} in one run and {other} in another of the same block: were the inputs"
                    " the same? Give each input a bundled input index, or an ETDump of its own"
                )
        ret_event.debug_data = runs[0] if runs else []

    # ---- from an ETRecord ----

    def _associate_with_op_graph_nodes(self, debug_handle_to_op_node_map: Mapping[int, Sequence[OperatorNode]]) -> None:
        """Take what the nodes with the event's debug handles know."""
        if self.name in RESERVED_FRAMEWORK_EVENT_NAMES or self.debug_handles is None:
            return
        handles = [self.debug_handles] if isinstance(self.debug_handles, int) else self.debug_handles
        for node in (node for handle in handles for node in debug_handle_to_op_node_map.get(handle) or ()):
            if node is None or node.metadata is None:
                continue
            if node.name not in self.stack_traces:
                self.stack_traces[node.name] = node.metadata.get("stack_trace")
                self.module_hierarchy[node.name] = node.metadata.get("nn_module_stack")
            if node.op:
                self.op_types.append(node.op)


def _duration(event: Event, span: ProfileEvent, scale_factor: float) -> float:
    """A delegate's own times are converted by the converter, if there is one; all others by the scale."""
    convert = event._delegate_time_scale_converter
    if convert is None or not event.is_delegated_op:
        return float(_elapsed(span.start_time, span.end_time)) / scale_factor
    return float(_elapsed(convert(event.name, span.start_time), convert(event.name, span.end_time)))


def _elapsed(start: float, end: float) -> float:
    if start <= end:
        return end - start
    if max(start, end) > MAX_WRAPPED:
        raise ValueError(
            f"Expected start_time ({start}) and end_time ({end}) below 2^32, since the end is before the start"
        )
    return (MAX_WRAPPED - start) + end


def _shortened(op_types: list[str]) -> Any:
    if len(op_types) < SHOWN_OP_TYPES:
        return op_types
    return f"['{op_types[0]}', '{op_types[1]}' ... '{op_types[-1]}'] ({len(op_types)} total)"


# ---- blocks ----------------------------------------------------------------------------------------


@dataclass
class _RunGroup:
    """Runs of one kind: their events by signature, and what the program gave."""

    events: dict[EventSignature, list[InstructionEvent]] = field(default_factory=dict)
    run_output: ProgramOutput = field(default_factory=list)


@dataclass
class EventBlock:
    """The events of all runs of one kind; `run_output` is what the program gave, `reference_output` what is right.

    `method_name` is None if the ETDump does not say it and no ETRecord tells it.
    """

    name: str
    events: list[Event] = field(default_factory=list)
    source_time_scale: TimeScale = TimeScale.NS
    target_time_scale: TimeScale = TimeScale.MS
    bundled_input_index: int | None = None
    run_output: ProgramOutput | None = None
    reference_output: ProgramOutput | None = None
    method_name: str | None = None

    def to_dataframe(self, include_units: bool = False, include_delegate_debug_data: bool = False) -> Any:
        """A pandas DataFrame with a row for each event; columns for what backends said, if asked for."""
        pd = pandas()
        units = f" ({self.target_time_scale.value})" if include_units else ""
        table = pd.concat([event.to_dataframe(units) for event in self.events], ignore_index=True)
        table.insert(0, "event_block_name", [self.name] * len(self.events), allow_duplicates=True)
        if include_delegate_debug_data:
            rows = [_metadata_columns(event.delegate_debug_metadatas) for event in self.events]
            if any(rows):
                table = pd.concat([table, pd.DataFrame(rows)], axis=1)
        return table

    @staticmethod
    def _gen_from_etdump(
        etdump: ETDumpFlatCC,
        source_time_scale: TimeScale = TimeScale.NS,
        target_time_scale: TimeScale = TimeScale.MS,
        output_buffer: bytes | None = None,
        delegate_metadata_parser: MetadataParser | None = None,
        delegate_time_scale_converter: TimeScaleConverter | None = None,
    ) -> list[EventBlock]:
        factor = calculate_time_scale_factor(source_time_scale, target_time_scale)
        return [
            EventBlock(
                signature.name,
                [
                    Event._gen_from_inference_events(
                        one, events, factor, output_buffer, delegate_metadata_parser, delegate_time_scale_converter
                    )
                    for one, events in group.events.items()
                ],
                source_time_scale,
                target_time_scale,
                signature.bundled_input_index,
                group.run_output,
                method_name=signature.method_name,
            )
            for signature, group in _grouped(etdump, output_buffer).items()
        ]

    @staticmethod
    def _collect_run_outputs(events: Sequence[flatcc.Event], output_buffer: bytes | None = None) -> ProgramOutput:
        """What the program gave in one run."""
        entries = [event.debug_event.debug_entry for event in events if event.debug_event is not None]
        if any(entry is None for entry in entries):
            raise RuntimeError("Debug entry inside debug event should not be empty!")
        return [inflate_runtime_output(entry, output_buffer) for entry in entries if is_debug_output(entry)]

    def _calls(self) -> list[tuple[str, str]]:
        """(instruction, name) of each call of a kernel or a delegate."""
        return [
            (str(event._instruction_id), event.name)
            for event in self.events
            if event.name.startswith((KERNEL_CALL, DELEGATE_CALL)) and event.delegate_debug_identifier is None
        ]

    def _gen_resolve_debug_handles(
        self,
        handle_map: Mapping[str, Any],
        delegate_map: Mapping[str, DelegateMetadata] | None = None,
        instruction_id_to_num_outs_map: Mapping[str, int] | None = None,
    ) -> None:
        """Give events the debug handles of their instructions, those in delegates by what the backend said at lowering.

        Keys of all three are instructions, as text: so JSON has them.
        """
        counts = instruction_id_to_num_outs_map or {}
        for event in self.events:
            instruction = str(event._instruction_id)
            if event._instruction_id is None or instruction not in handle_map:
                continue
            event.num_outputs = counts.get(instruction, 1)
            event.debug_handles = handle_map[instruction]
            delegate = (delegate_map or {}).get(instruction)
            identifier = event.delegate_debug_identifier
            if delegate is None or (identifier is None and event.name != DELEGATE_CALL):
                continue
            event.delegate_backend_name = delegate.get("name", "")
            if identifier is not None:
                event.debug_handles = _handles_in_delegate(delegate.get("delegate_map") or {}, identifier)


def _grouped(etdump: ETDumpFlatCC, output_buffer: bytes | None) -> dict[RunSignature, _RunGroup]:
    groups: dict[RunSignature, _RunGroup] = {}
    for run in etdump.run_data:
        if run.events is None:
            continue
        by_signature = {
            signature: event
            for found in InstructionEvent.gen_from_events(run.events)
            if found.profile_events is not None or found.debug_events is not None
            for signature, event in EventSignature.gen_from_instruction_event(found)
        }
        signature = RunSignature(run.name, tuple(by_signature), run.bundled_input_index, recorded_method(run.events))
        group = groups.setdefault(signature, _RunGroup())
        for key, event in by_signature.items():
            group.events.setdefault(key, []).append(event)
        outputs = EventBlock._collect_run_outputs(run.events, output_buffer)
        if group.run_output:
            verify_debug_data_equivalence(group.run_output, outputs)
        else:
            group.run_output.extend(outputs)
    return groups


def _handles_in_delegate(by_identifier: Mapping[Any, Any], identifier: int | str) -> Any:
    """A backend's own id, the id as JSON has it, or an id that the event's contains (`conv_3_tile_7`)."""
    exact = by_identifier.get(identifier, by_identifier.get(str(identifier)))
    contained = (handles for key, handles in by_identifier.items() if str(key) in str(identifier))
    return exact if exact is not None else next(contained, None)


def _metadata_columns(metadata: Any) -> dict[str, Any]:
    if not metadata:
        return {}
    if not isinstance(metadata, (list, dict)):
        raise ValueError(f"a delegate_metadata_parser gives a list or a dict, not {type(metadata).__name__}")
    return metadata if isinstance(metadata, dict) else {"delegate_debug_metadata": metadata}
