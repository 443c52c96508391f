"""Programs of any dialect <-> files (ExecuTorch `exir/serde/serialize.py`), a zip that either package reads:

    version                             of the JSON
    serialized_exported_program.json    the graph, with metadata, debug handles, and delegates as JSON in it
    serialized_state_dict.pt, …_constants.pt, …_example_inputs.pt
    extra_files/<name>                  the caller's own texts

A finished program (`to_executorch().exported_program()`) is saved as the edge program that it was made of.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import asdict
from itertools import chain
from os import PathLike
from typing import Any, BinaryIO, Final, TypeAlias
from zipfile import ZipFile

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot import (
    LoweredBackendModule,
    PreprocessResult,
    SerializedExportedProgram,
    deserialize_exported_program,
    get_lowered_module,
    graph_modules,
    is_delegate_call,
    read_zip_members,
    serialize_exported_program,
)
from delegraph.aot import SerializedExportedProgram as SerializedArtifact
from delegraph.errors import DelegraphError, ETRecordError, LoweringError
from delegraph.interfaces import read_stamp
from delegraph.program.schema import CompileSpec
from delegraph_executorch.exir._execution import source_of
from delegraph_executorch.exir._serialize.data import NamedDataStore, NamedDataStoreOutput
from delegraph_executorch.exir._serialize.records import _json_to_dataclass

_VERSION: Final = "5.4"
"""Of ExecuTorch's `exir/serde/schema.py`, which its reader compares."""
_FILES: Final = (
    "serialized_exported_program.json",
    "serialized_state_dict.pt",
    "serialized_constants.pt",
    "serialized_example_inputs.pt",
)
_EXTRA: Final = "extra_files/"


def save(
    ep_save: ExportedProgram,
    f: str | PathLike[str] | BinaryIO,
    *,
    extra_files: Mapping[str, str] | None = None,
    opset_version: Mapping[str, int] | None = None,
) -> None:
    """Write a program, and texts of the caller's. Raises `LoweringError` for `opset_version`."""
    artifact = serialize(ep_save, opset_version)
    with ZipFile(f, "w") as file:
        for name, data in zip(_FILES, artifact, strict=True):
            file.writestr(name, data)
        file.writestr("version", _VERSION)
        for name, text in (extra_files or {}).items():
            file.writestr(_EXTRA + name, text)


def load(f: str | PathLike[str] | BinaryIO, *, extra_files: dict[str, str] | None = None) -> ExportedProgram:
    """Read what `save` wrote, here or there; the caller's texts go into `extra_files`.

    Raises `LoweringError` for another file, and as `deserialize`.
    """
    try:
        held = read_zip_members(f, f"{f} is not a program that exir.save wrote")
        texts = {name.removeprefix(_EXTRA): data.decode() for name, data in held.items() if name.startswith(_EXTRA)}
    except (ETRecordError, UnicodeDecodeError) as error:
        raise LoweringError(f"{error}; save the program again") from error
    missing = [name for name in _FILES if name not in held]
    if missing:
        raise LoweringError(
            f"{f} is not a program that exir.save wrote: it has no {missing[0]}; torch.export.load reads what"
            " torch.export.save wrote"
        )
    if extra_files is not None:
        extra_files.update(texts)
    return deserialize(SerializedArtifact(*(held[name] for name in _FILES)))


def serialize(exported_program: ExportedProgram, opset_version: Mapping[str, int] | None = None) -> SerializedArtifact:
    """The files of a program, in memory. Raises `LoweringError` for `opset_version`."""
    if opset_version:
        raise LoweringError("opset_version: torch writes the versions of its own operators; leave the argument out")
    return serialize_exported_program(with_delegates_as_text(source_of(exported_program), serialize))


def deserialize(artifact: SerializedArtifact) -> ExportedProgram:
    """The program in such files. Raises `ETRecordError` if they hold none; nothing in them is evaluated."""
    program = deserialize_exported_program(artifact)
    with_text_as_delegates(program, deserialize)
    return program


#
#     %m = get_attr lowered_module_0              %c = call_delegate(lowered_module_0='{"backend_id": …}',
#     %c = call_delegate(%m, %x, %y)        <->                      delegate_arg_0=%x, delegate_arg_1=%y)
#
# The JSON is that of ExecuTorch (`exir/serde/schema.py`, `LoweredBackendModule`), bytes in base64. Its stamp is the
# last of the compile specs, as in a `.pte`. What ExecuTorch does not write, the debug handles of the backend's own
# instructions, is kept in the call's metadata, where its reader does not look; what only the backend's tools want
# (`PreprocessResult._delegate_info_meta`) is not written, as there.


Write: TypeAlias = Callable[[ExportedProgram], SerializedExportedProgram]
Read: TypeAlias = Callable[[SerializedExportedProgram], ExportedProgram]

_HANDLES: Final = "delegraph.debug_handle_map"
"""The key in a call's `meta["custom"]`, which torch writes as JSON."""


def with_delegates_as_text(program: ExportedProgram, write: Write) -> ExportedProgram:
    """`program`, its delegates as JSON; itself if it has none. `write` gives the files of a delegate's program."""
    if not any(True for _ in _calls(program.graph_module)):
        return program
    new = copy(program)
    new._graph_module = deepcopy(program.graph_module)  # the graphs; weights are the program's
    for node, other in zip(new.graph.nodes, program.graph.nodes, strict=True):
        node.name = other.name  # the signature refers to it; a copy of a graph renames `input`, a Python builtin
    for module, call in _calls(new.graph_module):
        reference, *inputs = call.args
        assert isinstance(reference, Node)
        lowered = get_lowered_module(module, call)
        handles = [[identifier, list(own)] for identifier, own in lowered.debug_handle_map.items()]
        call.meta["custom"] = {**call.meta.get("custom", {}), _HANDLES: handles}
        call.args = ()
        call.kwargs = {
            str(reference.target): _text(lowered, write),
            **{f"delegate_arg_{position}": value for position, value in enumerate(inputs)},
        }
        if not reference.users:
            module.graph.erase_node(reference)
    return new


def with_text_as_delegates(program: ExportedProgram, read: Read) -> None:
    """Give `program`, whose delegates are JSON, lowered modules to call, in place. `read` is `write`'s inverse.

    Raises `ETRecordError` for JSON of anything else.
    """
    for module, call in _calls(program.graph_module):
        try:
            _read_call(module, call, read)
        except DelegraphError:
            raise
        except Exception as error:  # of whatever stands in the file where a delegate should
            reason = f"{type(error).__name__}: {error}"
            raise ETRecordError(
                f"{call.name}: the delegate cannot be read: {reason:.500}; save the program again"
            ) from error


def _read_call(module: GraphModule, call: Node, read: Read) -> None:
    (name, text), *inputs = call.kwargs.items()
    handles = _take_handles(call)
    if not hasattr(module, name):
        setattr(module, name, _lowered(json.loads(str(text)), handles, read))
    if not isinstance(getattr(module, name), LoweredBackendModule):
        raise ValueError(f"{name!r} is something else")
    with module.graph.inserting_before(call):
        reference = module.graph.get_attr(name)
    call.args, call.kwargs = (reference, *(value for _, value in inputs)), {}
    module.recompile()


def _calls(root: GraphModule) -> Iterator[tuple[GraphModule, Node]]:
    for _, module in graph_modules(root):
        yield from ((module, node) for node in list(module.graph.nodes) if is_delegate_call(node))


def _take_handles(call: Node) -> list[Any]:
    handles: list[Any] = call.meta["custom"][_HANDLES] if _HANDLES in call.meta.get("custom", {}) else []
    for node in (call, *call.users):  # torch's reader gives a call's metadata to what takes its results too
        custom = {key: value for key, value in node.meta.pop("custom", {}).items() if key != _HANDLES}
        if custom:
            node.meta["custom"] = custom
    return handles


# ---- one delegate ----------------------------------------------------------------------------------


def _text(lowered: LoweredBackendModule, write: Write) -> str:
    files = write(lowered.original_module)
    store = lowered.named_data_store_output
    document = {
        "backend_id": lowered.backend_id,
        "processed_bytes": _ascii(lowered.processed_bytes),
        "compile_specs": [{"key": one.key, "value": _ascii(one.value)} for one in lowered.stamped_compile_specs],
        "original_module": json.loads(files.exported_program),
        "original_state_dict": _ascii(files.state_dict),
        "original_constants": _ascii(files.constants),
        "named_data_store": None if store is None else json.dumps(_named_data(store)),
    }
    return json.dumps(document)


def _lowered(document: dict[str, Any], handles: list[Any], read: Read) -> LoweredBackendModule:
    files = SerializedExportedProgram(
        json.dumps(document["original_module"]).encode(),
        b64decode(document["original_state_dict"]),
        b64decode(document["original_constants"]),
        b"",
    )
    specs = [CompileSpec(one["key"], b64decode(one["value"])) for one in document["compile_specs"]]
    stamp = read_stamp(specs)
    if stamp is not None:
        specs.remove(stamp.to_compile_spec())
    text = document.get("named_data_store")  # ExecuTorch leaves it out where there is none
    store: Any = text and _named_data_store(json.loads(text))
    blob = b64decode(document["processed_bytes"])
    lowered = LoweredBackendModule(read(files), document["backend_id"], blob, specs, store)
    lowered.meta["debug_handle_map"] = {identifier: tuple(own) for identifier, own in handles}
    return (
        lowered if stamp is None else lowered.compiled(PreprocessResult(blob, lowered.debug_handle_map, store), stamp)
    )


def _named_data(stored: Any) -> dict[str, Any]:
    """The records of a finished store, Delegraph's or one in ExecuTorch's form, as ExecuTorch writes them."""
    store = NamedDataStore()
    for tag, entries in chain([(None, stored.pte_data)], stored.external_data.items()):
        for key, entry in entries.items():
            layout = getattr(entry, "tensor_layout", None)
            store.add_named_data(key, bytes(entry.data), entry.alignment, tag, layout)
    found = asdict(store.get_named_data_store_output())
    return {**found, "buffers": [_ascii(buffer) for buffer in found["buffers"]]}


def _named_data_store(found: dict[str, Any]) -> NamedDataStoreOutput:
    stored: NamedDataStoreOutput = _json_to_dataclass(
        {**found, "buffers": [b64decode(buffer) for buffer in found["buffers"]]}, NamedDataStoreOutput
    )
    return stored


def _ascii(data: Any) -> str:
    return b64encode(data).decode("ascii")
