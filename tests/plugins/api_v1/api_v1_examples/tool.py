"""A tool: it wraps two hooks and watches every event; of their parameters it takes those that it needs."""

from delegraph.plugins import hookimpl

SEEN = []


@hookimpl(wrapper=True)
def preprocess(plugin, compile_specs):
    result = yield
    SEEN.append(("preprocess", plugin.name, len(result.processed_bytes) > 0))
    return result


@hookimpl(wrapper=True)
def execute(args, handle, plugin):
    result = yield
    SEEN.append(("execute", plugin.name, len(args)))
    return result


@hookimpl
def lowering_stage_done(seconds, stage):
    SEEN.append(("stage", stage, seconds >= 0))


@hookimpl
def partition_done(report):
    SEEN.append(("partition", type(report).__name__, True))


@hookimpl
def program_loaded(program):
    SEEN.append(("program", sorted(program.method_names), True))


@hookimpl
def method_loaded(method):
    SEEN.append(("method", type(method).__name__, True))
