"""Lowered program -> nothing, or an error: what can be refused before a backend's compiler runs."""
