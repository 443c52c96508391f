"""A partition's edge program -> the NPU's bytecode."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from acme_npu.bytecode import BLOB_VERSION, Bytecode, Instruction, Opcode
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult

aten = torch.ops.aten
OPCODES = {aten.add.Tensor: Opcode.ADD, aten.mul.Tensor: Opcode.MUL, aten.relu.default: Opcode.RELU}


class AcmeLowering(BackendDetails):
    """The AOT half behind the backend id `AcmeNpu`."""

    blob_version = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        nodes = list(edge_program.graph.nodes)
        registers = {node: number for number, node in enumerate(n for n in nodes if n.op == "placeholder")}
        inputs = len(registers)
        instructions = []
        for node in nodes:
            if node.op != "call_function":
                continue
            if node.target not in OPCODES:
                raise UnsupportedOperator(f"the NPU has no {node.target}", node=node.name)
            read = [registers[argument] for argument in node.args]
            instructions.append(Instruction(OPCODES[node.target], read[0], read[-1]))
            registers[node] = len(registers)
        outputs = tuple(registers[result] for result in edge_program.graph.output_node().args[0])
        return PreprocessResult(Bytecode(inputs, tuple(instructions), outputs).encode())
