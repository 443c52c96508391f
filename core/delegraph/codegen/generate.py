"""Registrations -> the text of a module that makes the kernel library they are of. The module imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from delegraph.codegen.check import Registration

__all__ = ["generated_module"]

_HEADER: Final = '''\
"""The kernel library '{library}': what {source} lists.

`delegraph codegen` generated this module; to change it, change that file and generate it again.
"""

# isort: skip_file
from __future__ import annotations

from delegraph.interfaces import KernelLibrary

{imports}

library = KernelLibrary("{library}")

'''
_RESERVED: Final = frozenset({"KernelLibrary", "annotations", "library"})
_WIDTH: Final = 88
"""Wider lists are written one item a line: what formatters with this line length or more leave alone."""


def generated_module(registrations: Sequence[Registration], library: str, source: str) -> str:
    """The module's text: it depends on the arguments alone. `source` is how the header calls the YAML file."""
    kernels = list(dict.fromkeys(registration.kernel for registration in registrations))
    names = _names(kernels)
    calls = "".join(_call(registration, names[registration.kernel]) for registration in registrations)
    return _HEADER.format(library=_quoted(library), source=_quoted(source), imports="\n".join(_imports(names))) + calls


def _quoted(text: str) -> str:
    """`text` as it stands within double quotes in Python."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped)


def _names(kernels: Iterable[str]) -> dict[str, str]:
    """The name of each kernel in the module: that of its function, unless it is taken."""
    taken = set(_RESERVED)
    names = {}
    for kernel in kernels:
        module, _, name = kernel.partition(":")
        while name in taken:
            name = f"{module.replace('.', '_')}_{name}"
        taken.add(name)
        names[kernel] = name
    return names


def _imports(names: Mapping[str, str]) -> Iterator[str]:
    by_module: dict[str, list[str]] = {}
    for kernel, name in sorted(names.items()):
        module, _, function = kernel.partition(":")
        by_module.setdefault(module, []).append(function if name == function else f"{function} as {name}")
    for module, functions in by_module.items():
        one_a_line = "".join(f"    {function},\n" for function in functions)
        yield f"from {module} import " + (functions[0] if len(functions) == 1 else f"(\n{one_a_line})")


def _call(registration: Registration, name: str) -> str:
    if registration.key is None:
        return f'library.kernel("{registration.operator}")({name})\n'
    dtypes = [f'"{dtype}"' for dtype, _ in registration.key]
    orders = [str(order) for _, order in registration.key]
    arguments = [f'"{registration.operator}"', _list("dtypes", dtypes), _list("dim_orders", orders)]
    return "library.kernel(\n" + "".join(f"    {argument},\n" for argument in arguments) + f")({name})\n"


def _list(name: str, items: Sequence[str]) -> str:
    line = f"{name}=[{', '.join(items)}]"
    if len(line) + 5 <= _WIDTH:
        return line
    return f"{name}=[\n" + "".join(f"        {item},\n" for item in items) + "    ]"
