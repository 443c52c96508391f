"""ExecuTorch's `executorch.devtools.bundled_program.version`."""

BUNDLED_PROGRAM_SCHEMA_VERSION = 2
