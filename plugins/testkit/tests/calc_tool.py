"""calc's tool: it counts what is compiled, loaded and run."""

from collections import Counter

from delegraph.plugins import hookimpl


class CalcTool:
    """Behind `calc` in `delegraph.plugins`."""

    def __init__(self):
        self.counts = Counter()

    @hookimpl(wrapper=True)
    def preprocess(self, plugin):
        result = yield
        self.counts["preprocess", plugin.name] += 1
        return result

    @hookimpl(wrapper=True)
    def init(self, plugin):
        handle = yield
        self.counts["init", plugin.name] += 1
        return handle

    @hookimpl(wrapper=True)
    def execute(self, plugin, args):
        result = yield
        self.counts["execute", plugin.name] += 1
        return result

    @hookimpl
    def lowering_stage_done(self, stage):
        self.counts["lowered", stage] += 1

    @hookimpl
    def method_loaded(self, method):
        self.counts["loaded"] += 1
