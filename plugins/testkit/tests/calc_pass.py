"""calc's pass: relu is clamp, for a device that has no relu."""

from delegraph.aot import ExportedProgramPassBase, ExportedProgramPassResult, exir_ops

aten = exir_ops.edge.aten


class ReluIsClamp(ExportedProgramPassBase):
    """Puts a call of clamp in the place of each call of relu."""

    def __init__(self, least):
        self.least = least

    def call(self, exported_program):
        graph = exported_program.graph
        calls = graph.find_nodes(op="call_function", target=aten.relu.default)
        for node in calls:
            with graph.inserting_before(node):
                clamp = graph.call_function(aten.clamp.default, (node.args[0], self.least))
            clamp.meta.update(node.meta)
            node.replace_all_uses_with(clamp)
            graph.erase_node(node)
        return ExportedProgramPassResult(exported_program, bool(calls))


def calc_pass(*, least: float = 0.0):
    """Makes it."""
    return ReluIsClamp(least)
