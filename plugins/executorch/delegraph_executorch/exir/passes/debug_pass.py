"""GraphModule -> a log of its nodes: code, calls by kind, and on demand source lines and tensor specs."""

from __future__ import annotations

import logging
import re
from collections import Counter

from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.utils import _pytree as pytree

from delegraph_executorch.exir.common import override_logger
from delegraph_executorch.exir.print_program import _stacktrace_to_framelist

__all__ = ["DebugPass"]


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
