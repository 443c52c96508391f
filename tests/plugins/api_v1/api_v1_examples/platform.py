"""A platform: its log is a list."""

from delegraph.interfaces import Platform

LOGGED = []


def quiet_platform():
    """Nothing is printed."""
    return Platform(log=lambda level, message: LOGGED.append((level, message)))
