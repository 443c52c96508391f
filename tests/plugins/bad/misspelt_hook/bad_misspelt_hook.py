"""`distroy` for `destroy`, `metod_loaded` for `method_loaded`."""

from delegraph.interfaces import BackendInterface
from delegraph.plugins import hookimpl


class Backend(BackendInterface):
    """Would leak every handle: its `destroy` is the inherited one, which does nothing."""

    def init(self, context, processed, compile_specs):
        return None

    def execute(self, context, handle, args):
        pass

    def distroy(self, handle):
        pass


class Tool:
    """Would never hear of a method."""

    @hookimpl
    def metod_loaded(self, method):
        pass
