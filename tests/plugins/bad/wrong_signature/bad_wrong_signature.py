"""`execute` has lost its context."""

from delegraph.runtime.backends import BackendInterface


class Backend(BackendInterface):
    """A backend."""

    def init(self, context, processed, compile_specs):
        return None

    def execute(self, handle, args):
        pass
