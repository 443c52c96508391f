"""Passes for people who debug: debug handles, and a log of a graph."""

from __future__ import annotations

import logging
import re
from collections import Counter

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph_executorch.exir.graph_module import bfs_trace_with_node_process, override_logger
from delegraph_executorch.exir.pass_base import ExportPass, PassBase, PassResult
from delegraph_executorch.exir.print_program import _stacktrace_to_framelist


class DebugHandleGeneratorPass(ExportPass):
    """Numbers calls from 1 on by where they come from, in bodies of control flow too, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Set `meta["debug_handle"]` anew."""
        handles: dict[str, int] = {}

        def number(node: Node) -> None:
            if node.op not in ("placeholder", "output"):
                node.meta["debug_handle"] = handles.setdefault(_origin(node), len(handles) + 1)

        bfs_trace_with_node_process(graph_module, number)
        return PassResult(graph_module, True)


def generate_missing_debug_handles(ep: ExportedProgram) -> None:
    """Number, in place, the nodes that have no debug handle yet, from the largest that there is on."""
    nodes: list[Node] = []
    bfs_trace_with_node_process(ep.graph_module, nodes.append)
    largest = max((node.meta.get("debug_handle") or 0 for node in nodes), default=0)
    for node in nodes:
        if not node.meta.get("debug_handle"):
            largest += 1
            node.meta["debug_handle"] = largest


def _origin(node: Node) -> str:
    """The node of the first graph that `node` comes from, or `node`."""
    if not node.meta.get("from_node"):
        return f"{id(node.graph)}.{node.name}"
    source = node.meta["from_node"][-1]
    while source.from_node:
        source = source.from_node[-1]
    return f"{source.name}.{source.graph_id}"


class DebugPass(PassBase):
    """Logs a graph between other passes, at DEBUG, to the root logger and, as `log_filename`, to a file made anew.

    `show_src` adds the last frame of user code, or `show_all_frames`; `path_filter` is a regular expression for the
    files that are of interest; `show_full_path` leaves their folders. `show_spec` adds specs and `meta["val"]`.
    """

    def __init__(
        self,
        msg: str = "",
        enable_debug_pass: bool = True,
        show_src: bool = False,
        show_full_path: bool = False,
        show_all_frames: bool = False,
        path_filter: str | None = None,
        show_spec: bool = False,
        log_filename: str | None = None,
    ) -> None:
        self.msg = msg
        self.enable_debug_pass = enable_debug_pass
        self.show_src = show_src
        self.show_full_path = show_full_path
        self.show_all_frames = show_all_frames
        self.path_filter_re = re.compile(path_filter) if path_filter else None
        self.show_spec = show_spec
        self.log_filename = log_filename

    def call(self, graph_module: GraphModule) -> PassResult:
        """Log the graph."""
        if self.enable_debug_pass:
            with override_logger(filename=self.log_filename):
                self._log(graph_module)
        return PassResult(graph_module, False)

    def _log(self, module: GraphModule) -> None:
        module.recompile()
        logging.debug("%sCode is:\n%s\nNodes:", f"{self.msg}\n" if self.msg else "", module.code)
        for number, node in enumerate(module.graph.nodes):
            logging.debug("%4d: %s", number, node.format_node())
            for line in (*self._specs(node), *self._frames(node)):
                logging.debug("      %s", line)
        nodes = list(module.graph.nodes)
        calls = (str(node.target) for node in nodes if node.op == "call_function")
        for title, counted in (("node op type", Counter(n.op for n in nodes)), ("call_function", Counter(calls))):
            logging.debug("-- %s stat --", title)
            for name, count in counted.items():
                logging.debug(" %s, cnt %d", name, count)

    def _specs(self, node: Node) -> list[str]:
        if not self.show_spec:
            return []
        return [*map(str, pytree.tree_leaves(node.meta.get("spec"))), f"val: {node.meta.get('val')}"]

    def _frames(self, node: Node) -> list[str]:
        if not self.show_src:
            return []
        frames = _stacktrace_to_framelist(node.meta.get("stack_trace", "")).items
        kept = [f for f in frames if self.path_filter_re is None or self.path_filter_re.search(f.filename)]
        shown = kept if self.show_all_frames else kept[-1:]
        paths = [f.filename if self.show_full_path else f.filename.replace("\\", "/").rpartition("/")[2] for f in shown]
        return [f"> {p}:{f.lineno} in {f.name}: {f.context}" for p, f in zip(paths, shown, strict=True)]
