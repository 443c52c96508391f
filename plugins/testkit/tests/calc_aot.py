"""calc's half that compiles: float32 arithmetic, as steps in JSON."""

import json

import torch

from delegraph.aot import BackendDetails, PreprocessResult
from delegraph.errors import UnsupportedOperator
from delegraph_partitioners import CapabilityBasedPartitioner

aten = torch.ops.aten
SYMBOLS = {aten.add.Tensor: "+", aten.sub.Tensor: "-", aten.mul.Tensor: "*", aten.relu.default: "r"}


def support(node):
    """None if calc can do it, else the reason."""
    if node.target not in SYMBOLS:
        return f"calc has no {node.target}"
    if any(n.meta["val"].dtype != torch.float32 for n in [node, *node.all_input_nodes]):
        return "calc computes in float32"
    if len(node.args) != len(node.all_input_nodes) or node.kwargs:
        return "calc takes tensors alone"
    return None


def calc_partitioner(*, minimum_nodes: int = 1):
    """Makes the partitioner."""
    return CapabilityBasedPartitioner("Calc", support, minimum_nodes=minimum_nodes)


class CalcLowering(BackendDetails):
    """Behind the backend id `Calc`."""

    blob_version = 1

    @classmethod
    def submits(cls, compile_specs):
        return True

    @staticmethod
    def preprocess(edge_program, compile_specs):
        signature, weights = edge_program.graph_signature, {}
        attributes = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        names, steps = [], []
        for node in edge_program.graph.nodes:
            if node.name in attributes:
                weights[node.name] = edge_program.state_dict[attributes[node.name]].tolist()
            elif node.op == "placeholder":
                names.append(node.name)
            elif node.op == "call_function":
                if node.target not in SYMBOLS:
                    raise UnsupportedOperator(f"calc has no {node.target}", node=node.name)
                steps.append([SYMBOLS[node.target], *(a.name for a in node.args), node.name])
        outputs = [node.name for node in edge_program.graph.output_node().args[0]]
        return PreprocessResult(json.dumps([names, weights, steps, outputs]).encode())
