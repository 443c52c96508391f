"""`execute` has lost its context."""

from delegraph.interfaces import BackendInterface


class Backend(BackendInterface):
    """A backend."""

    def init(self, context, processed, compile_specs):
        return None

    def execute(self, handle, args):
        pass
