"""Run by ExecuTorch's Python: `write FOLDER` makes its files of a model, `read FOLDER` says what it finds in ours.

Both print one line of JSON: of each saved program its nodes, with debug handles and origins, and its delegates.
"""

import json
import operator
import sys

import torch
from executorch import exir
from executorch.devtools import Inspector
from executorch.exir.backend.test.op_partitioner_demo import AddMulPartitionerDemo
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn

EDGE = "edge_dialect_exported_program"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(4, 8)

    def forward(self, x):
        low, high = torch.split(self.up(x).relu(), 4, dim=1)
        return torch.cat([high, low], 1) * x.sum(), torch.nn.functional.layer_norm(low, [4])


class Products(nn.Module):
    def forward(self, a, x, b):
        return torch.mm(torch.mm(a, x) + b - a, x) + b


def nodes(program):
    return [
        [node.name, node.meta.get("debug_handle"), [source.to_dict() for source in node.meta.get("from_node") or ()]]
        for node in program.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    ]


def delegates(program):
    held = [one for one in program.graph_module.children() if isinstance(one, LoweredBackendModule)]
    return [
        [one.backend_id, one.processed_bytes.decode("latin1"), len(one.original_module.graph.nodes)] for one in held
    ]


def gaps(folder):
    shown = Inspector(
        etdump_path=folder + "/run.etdp", etrecord=folder + "/etrecord.bin", debug_buffer_path=folder + "/run.bin"
    )
    table = shown.calculate_numeric_gap("MSE", reference_graph=EDGE)
    columns = (table[column] for column in ("aot_debug_handle", "aot_ops", "runtime_ops"))
    return [[list(handle), ops, runtime] for handle, ops, runtime in zip(*columns, strict=True)]


def write(folder):
    x = torch.randn(3, 4)
    finished = exir.to_edge(torch.export.export(Model(), (x,)), generate_etrecord=True).to_executorch()
    record = finished.get_etrecord()
    record.update_representative_inputs([x])
    record.save(folder + "/etrecord.bin")
    finished.save(folder + "/model.pte")
    torch.save(x, folder + "/x.pt")
    square = torch.randn(2, 2)
    edge = exir.to_edge(torch.export.export(Products(), (square, square, square)))
    delegated = edge.to_backend(AddMulPartitionerDemo())
    saved = {"edge": record.edge_dialect_program, "delegated": delegated.exported_program()}
    for name, program in saved.items():
        exir.save(program, f"{folder}/{name}.pt2", extra_files={"note": name})
    return {name: [nodes(program), delegates(program)] for name, program in saved.items()}


def read(folder):
    saved = {name: exir.load(f"{folder}/{name}.pt2") for name in ("edge", "delegated")}
    return {name: [nodes(program), delegates(program)] for name, program in saved.items()}


if __name__ == "__main__":
    action, folder = sys.argv[1:]
    print(json.dumps({"write": write, "read": read, "gaps": gaps}[action](folder)))
