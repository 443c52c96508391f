"""Needs a plug-in API that does not exist yet."""

from delegraph.interfaces import BackendInterface


class Backend(BackendInterface):
    """A backend from the future."""

    delegraph_api = (2, 0)

    def init(self, context, processed, compile_specs):
        return None

    def execute(self, context, handle, args):
        pass
