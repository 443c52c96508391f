"""Shared by all rooms: editing a program, its resolved signature, source locations, tensor specs, operator facts."""
