"""The half that runs of a backend whose author derives from nothing; parameters have names of their own."""

import numpy as np

from delegraph.interfaces import Compatibility, Verdict


class BareBackend:
    """Behind the backend id `ApiV1Bare`."""

    def is_available(self):
        return True

    def check(self, stamp):
        return Compatibility(Verdict.OK)

    def init(self, init_context, blob, specs):
        return bytes(blob)

    def fork(self, init_context, delegate):
        return None

    def execute(self, context, delegate, arguments):
        x, out = arguments
        np.negative(x, out=context.resize(out, x.shape))

    def bind(self, context, delegate, arguments):
        return None

    def device_allocator(self, device):
        return None

    def num_outputs(self, delegate):
        return 1

    def cancel(self, delegate, requested):
        pass

    def destroy(self, delegate):
        pass

    def set_option(self, options):
        pass

    def get_option(self, keys):
        return {}
