"""These tests are collected where the oracles are: `make test-oracles` installs them into build/oracles."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tosa_reference_model") else ["*"]
