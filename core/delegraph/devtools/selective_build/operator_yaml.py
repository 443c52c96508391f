"""Needs -> the text of ExecuTorch's `selected_operators.yaml`, which its build takes the kernels to compile from.

Written as `executorch/codegen/tools/gen_oplist.py` writes it, for several programs at once. An operator's entry under
`et_kernel_metadata` has a kernel key for each combination of dtypes and dim orders in use: `v1/6;0,1|6;0,1|6;0,1`; a
call without tensors counts as `default`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from delegraph.devtools.selective_build.needs import OperatorCall, ProgramNeeds
from delegraph.interfaces.kernel import kernel_key_text

__all__ = ["operator_yaml"]

_PLAIN = re.compile(r"[A-Za-z_]\w*::\w+(\.\w+)*|v1/[\d;,|]+|default", re.ASCII)
"""Texts that need no quotes: operator names and kernel keys, none of which YAML would take for something else."""


def operator_yaml(programs: Iterable[ProgramNeeds]) -> str:
    """The YAML for a build that runs all `programs`."""
    used_by: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    for needs in programs:
        for operator in needs.operators:
            used_by.setdefault(operator, set()).add(needs.path)
        for call in needs.calls:
            keys.setdefault(call.operator, set()).add(_key(call))
    return "\n".join(
        [
            "build_features: []",
            "custom_classes: []",
            *_mapping("et_kernel_metadata", keys),
            "include_all_non_op_selectives: false",
            "include_all_operators: false",
            "kernel_metadata: {}",
            *_operators(used_by),
            "",
        ]
    )


def _key(call: OperatorCall) -> str:
    return kernel_key_text(call.values) if call.values else "default"


def _mapping(name: str, items: dict[str, set[str]]) -> Iterator[str]:
    yield f"{name}:" if items else f"{name}: {{}}"
    for key, values in sorted(items.items()):
        yield f"  {_scalar(key)}:"
        yield from _sequence(sorted(values), "  ")


def _operators(used_by: dict[str, set[str]]) -> Iterator[str]:
    yield "operators:" if used_by else "operators: {}"
    for operator, paths in sorted(used_by.items()):
        yield f"  {_scalar(operator)}:"
        yield "    debug_info:"
        yield from _sequence(sorted(paths), "    ")
        yield "    include_all_overloads: false"
        yield "    is_root_operator: true"
        yield "    is_used_for_training: true"


def _sequence(values: Sequence[str], indent: str) -> Iterator[str]:
    return (f"{indent}- {_scalar(value)}" for value in values)


def _scalar(text: str) -> str:
    """`text` as YAML reads it back: plain where that is safe, else as JSON, of which YAML is a superset."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
