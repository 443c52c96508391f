"""Which nodes the backend takes: a class of its own, made by a factory with keyword parameters."""

import torch

from delegraph.interfaces import CompileSpec, DelegationSpec, Partitioner, PartitionResult

aten = torch.ops.aten
SYMBOLS = {aten.add.Tensor: "+", aten.mul.Tensor: "*", aten.tanh.default: "t", aten.hardswish.default: "h"}


class ApiV1Partitioner(Partitioner):
    """Each node becomes a partition of its own."""

    def __init__(self, specs):
        super().__init__({"specs": specs})
        self.delegation_spec = DelegationSpec("ApiV1", specs)

    def ops_to_not_decompose(self, ep):
        return [aten.hardswish.default], None

    def partition(self, exported_program):
        tags, declined = {}, {}
        for node in exported_program.graph.nodes:
            if node.op != "call_function":
                continue
            tensors = [argument.meta["val"] for argument in node.all_input_nodes] + [node.meta["val"]]
            if node.target not in SYMBOLS or node.kwargs:
                declined[node.name] = f"it has no {node.target}"
            elif any(not isinstance(t, torch.Tensor) or t.dtype != torch.float32 for t in tensors):
                declined[node.name] = "it computes in float32"
            elif not all(isinstance(argument, torch.fx.Node) for argument in node.args):
                declined[node.name] = "it takes tensors alone"
            else:
                tag = f"api_v1_{len(tags)}"
                node.meta["delegation_tag"] = tag
                tags[tag] = self.delegation_spec
        return PartitionResult(exported_program, tags, declined)


def api_v1_partitioner(*, scale: float = 1.0):
    """The factory; `scale` is an option, which goes to both halves as a compile spec."""
    return ApiV1Partitioner([CompileSpec("scale", str(scale).encode())])
