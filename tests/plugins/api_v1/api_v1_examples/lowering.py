"""The half that compiles: a line of JSON."""

import json

from api_v1_examples.partitioner import SYMBOLS
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, PreprocessResult


class ApiV1Lowering(BackendDetails):
    """Behind the backend id `ApiV1`."""

    delegraph_api = (1, 0)
    blob_version = 3

    @staticmethod
    def preprocess(edge_program, compile_specs):
        nodes = list(edge_program.graph.nodes)
        names = [node.name for node in nodes if node.op == "placeholder"]
        steps = []
        for node in nodes:
            if node.op == "call_function":
                if node.target not in SYMBOLS:
                    raise UnsupportedOperator(f"it has no {node.target}", node=node.name)
                steps.append([SYMBOLS[node.target], [argument.name for argument in node.args], node.name])
        outputs = [node.name for node in edge_program.graph.output_node().args[0]]
        return PreprocessResult(json.dumps([names, steps, outputs]).encode())
