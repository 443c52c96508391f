"""A runtime half that reads blobs of version 2 alone."""

from delegraph.interfaces import BackendInterface, Compatibility, Verdict


class Backend(BackendInterface):
    """Judges by the stamp."""

    def check(self, stamp):
        if stamp is None:
            return Compatibility(Verdict.REFUSE, "it has no stamp")
        if stamp.blob_version < 2:
            return Compatibility(Verdict.RECOMPILE, f"version {stamp.blob_version} blobs are no longer read")
        return Compatibility(Verdict.OK)

    def init(self, context, processed, compile_specs):
        raise AssertionError("check refuses every blob before this")

    def execute(self, context, handle, args):
        raise AssertionError("check refuses every blob before this")
