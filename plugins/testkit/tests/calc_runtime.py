"""calc's half that runs."""

import json
from functools import partial

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInterface, CallQueue, Compatibility, DelegateDescription, DelegateNode, Verdict

SHARED = {}
COMPUTE = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "r": lambda a, b=None: np.maximum(a, np.float32(0)),
}


class Calc(BackendInterface):
    """Behind the backend id `Calc`."""

    queue = CallQueue("calc", 2)

    def check(self, stamp):
        if stamp is None or stamp.blob_version != 1:
            return Compatibility(Verdict.REFUSE, "calc reads blobs of version 1")
        return Compatibility(Verdict.OK)

    def init(self, context, processed, compile_specs):
        try:
            names, weights, steps, outputs = json.loads(bytes(processed))
            weights = {name: np.array(value, np.float32) for name, value in weights.items()}
            known = {*names, *weights}
            for symbol, *arguments, result in steps:
                if symbol not in COMPUTE or not known.issuperset(arguments) or not 1 <= len(arguments) <= 2:
                    raise ValueError("a step that calc does not have")
                known.add(result)
            if not known.issuperset(outputs):
                raise ValueError("an output that nothing computes")
        except (ValueError, TypeError, AttributeError) as error:
            raise DelegateInvalidCompatibility(f"not a blob of calc's: {error}") from error
        return names, weights, steps, outputs

    def describe(self, processed, compile_specs, named_data):
        _, _, steps, _ = self.init(None, processed, compile_specs)
        return DelegateDescription(tuple(DelegateNode(step[-1], *step[:1], tuple(step[1:-1])) for step in steps))

    def num_outputs(self, handle):
        return len(handle[3])

    def submits(self, handle):
        return True

    def submit(self, context, handle, args):
        return self.queue.submit(partial(self.execute, context, handle, args))

    def execute(self, context, handle, args):
        names, weights, steps, outputs = handle
        values = {**weights, **dict(zip(names, args, strict=False))}
        for symbol, *arguments, result in steps:
            values[result] = COMPUTE[symbol](*(values[name] for name in arguments))
        for name, out in zip(outputs, args[len(names) :], strict=True):
            context.resize(out, values[name].shape)[...] = values[name]
