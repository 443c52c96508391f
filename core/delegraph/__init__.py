"""Delegraph: pip-installable backends for PyTorch on edge devices."""
