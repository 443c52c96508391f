"""An AOT half that was forgotten when the runtime half moved on: it still stamps its blobs with version 1."""

from delegraph.interfaces import BackendDetails, PreprocessResult


class Lowering(BackendDetails):
    """Compiles nothing into nothing."""

    blob_version = 1

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(b"version 1")
