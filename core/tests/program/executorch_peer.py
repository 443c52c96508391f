"""Runs where ExecuTorch is installed: writes files, reads files, runs files. The last line it prints is JSON.

write DIR            lower the modules below; DIR/<name>.pte, their contents in <name>.json, what their methods give
read FILE…           the contents of `.pte` files by ExecuTorch's own reader
run FILE…            the outputs of `forward` on the inputs that `write` uses
read_ptd FILE        the contents of a `.ptd`
bundle DIR           bundle the modules of `BUNDLED` with cases: DIR/<name>.bpte; what its reader finds in them
read_bundled FILE…   the contents of `.bpte` files by its reader
verify FILE…         the outcome of each case of `.bpte` files by its runtime: outputs, or its error
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from enum import IntEnum
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from executorch.exir import ExecutorchBackendConfig, to_edge  # noqa: E402
from executorch.exir._serialize._program import deserialize_pte_binary  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402


class Add(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.linear = nn.Linear(144, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).relu().flatten(1))


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.full((4,), 5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x)
        return self.state * 2


class Lists(nn.Module):
    """Multiple outputs, tensor lists, an optional tensor list, ints and floats."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
        values, _ = torch.topk(x, 2)
        left, right = torch.split(x, 2, dim=1)
        return torch.cat([values, left, right], 1), x[:, i], x.to(memory_format=torch.contiguous_format) * 2.5


class Cond(nn.Module):
    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x + 1, lambda x: x * 2, (x,))


def dynamic(edge_args: Any) -> Any:
    rows = Dim("n", max=7)
    return to_edge(export(Add(), edge_args, dynamic_shapes=({0: rows}, {0: rows})))


def ones(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) / 8


IMAGE = (ones(1, 3, 8, 8),)
PAIR = (ones(2, 2), ones(2, 2))
INPUTS: dict[str, Any] = {
    "add": PAIR,
    "dynamic": PAIR,
    "net": IMAGE,
    "stacktrace": IMAGE,
    "alignment": IMAGE,
    "state": (ones(4),),
    "initialised": (ones(4),),
    "lists": (ones(3, 4), torch.tensor([1, 3])),
    "cond": (torch.tensor(True), ones(3, 4)),
    "methods": PAIR,
    "xnnpack": IMAGE,
    "xnnpack_inline": IMAGE,
    "external": IMAGE,
}


def lowered() -> dict[str, Any]:
    """One program per name in INPUTS."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    def edge(module: nn.Module, name: str) -> Any:
        return to_edge(export(module.eval(), INPUTS[name]))

    def xnnpack() -> Any:
        return to_edge_transform_and_lower(export(Net().eval(), IMAGE), partitioner=[XnnpackPartitioner()])

    config = ExecutorchBackendConfig
    methods = {"forward": export(Add(), PAIR), "classify": export(Net().eval(), IMAGE)}
    return {
        "add": edge(Add(), "add").to_executorch(),
        "dynamic": dynamic(PAIR).to_executorch(),
        "net": edge(Net(), "net").to_executorch(),
        "stacktrace": edge(Net(), "net").to_executorch(config(emit_stacktrace=True)),
        "alignment": edge(Net(), "net").to_executorch(config(segment_alignment=4096, constant_tensor_alignment=64)),
        "state": edge(State(), "state").to_executorch(),
        "initialised": edge(State(), "initialised").to_executorch(
            config(passes=[InitializedMutableBufferPass(["state"])])
        ),
        "lists": edge(Lists(), "lists").to_executorch(),
        "cond": edge(Cond(), "cond").to_executorch(),
        "methods": to_edge(methods, constant_methods={"version": 3, "rate": 0.5, "name": "x"}).to_executorch(),
        "xnnpack": xnnpack().to_executorch(),
        "xnnpack_inline": xnnpack().to_executorch(config(extract_delegate_segments=False)),
        "external": edge(Net(), "external").to_executorch(config(external_constants=True)),
    }


def contents(path: Path) -> Any:
    file = deserialize_pte_binary(path.read_bytes())
    named = file.named_data
    return {
        "program": plain(file.program),
        "mutable_data": plain(file.mutable_data),
        "named_data": {k: named.buffers[e.buffer_index].hex() for k, e in named.pte_data.items()} if named else {},
    }


def plain(value: Any) -> Any:
    """Records and lists as JSON has them; a record also says what it is, bytes are in hex."""
    if dataclasses.is_dataclass(value):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return int(value) if isinstance(value, IntEnum) else value


def run(path: Path) -> Any:
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    outputs = method.execute(INPUTS[path.stem])
    return [output.tolist() for output in outputs]


def write(directory: Path) -> Any:
    for name, program in lowered().items():
        (directory / f"{name}.pte").write_bytes(program.buffer)
        if program._tensor_data:
            program.write_tensor_data_to_file(str(directory))
    return sorted(INPUTS)


def read_ptd(path: Path) -> Any:
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    payload = FlatTensorSerializer().deserialize(path.read_bytes())
    return {
        key: [payload.buffers[entry.buffer_index].hex(), plain(entry.tensor_layout)]
        for key, entry in payload.named_data.items()
    }


class Mixed(nn.Module):
    """Dtypes and layouts that differ, a 0-d tensor, an int."""

    def forward(self, image: torch.Tensor, mask: torch.Tensor, half: torch.Tensor, times: int) -> Any:
        return image + image, mask + times, half + half


class Byte(nn.Module):
    """The dtype whose code is 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


MIXED = (ones(1, 3, 2, 2).to(memory_format=torch.channels_last), torch.tensor(3), ones(4).half(), 2)
BUNDLED: dict[str, tuple[nn.Module, list[Any]]] = {
    "add": (Add(), [PAIR, (ones(2, 2) * 3, ones(2, 2))]),
    "net": (Net().eval(), [IMAGE]),
    "mixed": (Mixed(), [MIXED]),
    "byte": (Byte(), [(torch.arange(5, dtype=torch.uint8),)]),
}


def bundle(directory: Path) -> Any:
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    for name, (module, inputs) in BUNDLED.items():
        program = to_edge(export(module, inputs[0])).to_executorch()
        cases = [MethodTestCase(case, module(*case)) for case in inputs]
        bundled = BundledProgram(program, [MethodTestSuite("forward", cases)])
        (directory / f"{name}.bpte").write_bytes(serialize_from_bundled_program_to_flatbuffer(bundled))
    return {name: read_bundled(directory / f"{name}.bpte") for name in BUNDLED}


def read_bundled(path: Path) -> Any:
    from executorch.devtools.bundled_program.serialize import deserialize_from_flatbuffer_to_bundled_program

    return plain(deserialize_from_flatbuffer_to_bundled_program(path.read_bytes()))


def verify(path: Path) -> Any:
    from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer

    module = _load_bundled_program_from_buffer(path.read_bytes())
    outcomes: list[Any] = []
    for index in range(len(read_bundled(path)["method_test_suites"][0]["test_cases"])):
        try:
            outputs = module.verify_result_with_bundled_expected_output("forward", index, 1e-5, 1e-6)
        except RuntimeError as error:
            outcomes.append(str(error))
        else:
            outcomes.append([output.tolist() for output in outputs])
    return outcomes


def main(command: str, *paths: str) -> None:
    if command in ("write", "bundle"):
        result = {"write": write, "bundle": bundle}[command](Path(paths[0]))
    elif command == "read_ptd":
        result = read_ptd(Path(paths[0]))
    else:
        commands = {"read": contents, "run": run, "read_bundled": read_bundled, "verify": verify}
        result = {Path(path).stem: commands[command](Path(path)) for path in paths}
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
