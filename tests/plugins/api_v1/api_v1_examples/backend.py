"""The half that runs, with every hook that plug-in API 1.0 has."""

import json

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import Availability, BackendInterface, Compatibility, Verdict

COMPUTE = {
    "+": np.add,
    "*": np.multiply,
    "t": np.tanh,
    "h": lambda x: x * np.clip(x + np.float32(3), 0, 6) / np.float32(6),
}


class ApiV1Backend(BackendInterface):
    """Behind the backend id `ApiV1`."""

    delegraph_api = (1, 0)
    keeps_processed = False
    binds_again = False

    def __init__(self):
        self.alive = 0
        self.options = {"loud": False}

    def is_available(self):
        return Availability(True)

    def check(self, stamp):
        if stamp is None or stamp.blob_version != 3:
            return Compatibility(Verdict.RECOMPILE, "it reads blobs of version 3")
        return Compatibility(Verdict.OK)

    def init(self, context, processed, compile_specs):
        try:
            names, steps, outputs = json.loads(bytes(processed))
        except ValueError as error:
            raise DelegateInvalidCompatibility(f"not a blob of ApiV1: {error}") from error
        scale = float(next(bytes(spec.value) for spec in compile_specs if spec.key == "scale"))
        self.alive += 1
        return names, steps, outputs, np.float32(scale * context.runtime_specs.get("times", 1))

    def fork(self, context, handle):
        return None

    def num_outputs(self, handle):
        return len(handle[2])

    def execute(self, context, handle, args):
        names, steps, outputs, scale = handle
        values = dict(zip(names, args, strict=False))
        for symbol, reads, writes in steps:
            values[writes] = COMPUTE[symbol](*(values[name] for name in reads)) * scale
        for name, out in zip(outputs, args[len(names) :], strict=True):
            context.resize(out, values[name].shape)[...] = values[name]

    def bind(self, context, handle, args):
        return lambda: self.execute(context, handle, args)

    def device_allocator(self, device):
        return None

    def cancel(self, handle, requested):
        pass

    def destroy(self, handle):
        self.alive -= 1

    def set_option(self, options):
        if options.keys() - self.options.keys():
            raise InvalidArgument("ApiV1 has the option loud")
        self.options.update(options)

    def get_option(self, keys):
        return {key: self.options[key] for key in keys}
