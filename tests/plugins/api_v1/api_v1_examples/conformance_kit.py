"""A conformance kit that believes whatever it is told."""


def prove(name, arguments):
    """Print what was asked for."""
    print(f"{name}: proven, with {' '.join(arguments) or 'nothing said'}")
    return 0
