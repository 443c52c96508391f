"""The operators in graphs that lowering writes -> `delegraph_cpu/graphs/operators.py`, from the engine's own schemas.

names in the sources of the converters, and those that onnxruntime's optimisations add
    x schemas of onnxruntime, of the opsets that are written
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from delegraph_cpu.graphs import operators
from delegraph_cpu.graphs.checks import OPSETS

__all__ = ["FILE", "renewed"]

_START: Final = '_TABLE: Final = """\\\n'
ROOT: Final = Path(__file__).parents[1]
FILE: Final = Path(operators.__file__)
SOURCES: Final = ("onnx/delegraph_onnx", "backends/cpu/delegraph_cpu/aot")

OPTIMIZED: Final = """
    Attention BiasGelu BiasSoftmax ConstantOfShape DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv
    FusedGemm FusedMatMul Gelu MatMulIntegerToFloat QuickGelu SimplifiedLayerNormalization
    SkipSimplifiedLayerNormalization SpaceToDepth
"""
"""What onnxruntime writes in the place of other operators, up to its level EXTENDED (1.31, `core/optimizer`)."""

_OTHER_NAMES: Final = {
    "": "Affine Constant Dropout Flatten GlobalLpPool Mean Optional Scale Scatter Sum",
    "com.microsoft": "EPContext GatherND GridSample Pad Range ReduceSumInteger Trilu",
}
NEVER: Final = {(domain, name) for domain, names in _OTHER_NAMES.items() for name in names.split()}
"""What the sources name in another sense, or of the other domain."""

UNBOUNDED: Final = 2**31 - 1


def renewed() -> str:
    """The module's text, with a table made anew."""
    start, end = FILE.read_text("utf-8").split(_START, 1)
    return start + _START + "".join(f"{line}\n" for line in _lines()) + end[end.index('"""') :]


def _lines() -> Iterator[str]:
    pattern = re.compile("|".join(sorted(_patterns())))
    merged: dict[tuple[str, str], list[Any]] = {}
    for schema in get_all_operator_schema():
        key = schema.domain, schema.name
        if schema.domain in ("", "com.microsoft") and not schema.deprecated and key not in NEVER:
            merged.setdefault(key, []).append(schema)
    for (domain, name), schemas in sorted(merged.items()):
        inside = _of_opsets(schemas) if not domain else schemas
        if inside and pattern.fullmatch(name):
            yield _line(f"{domain}.{name}" if domain else name, inside)


def _of_opsets(schemas: list[Any]) -> list[Any]:
    """The schemas that graphs of our opsets may mean."""
    newest_of_oldest = max((s.since_version for s in schemas if s.since_version <= OPSETS.start), default=0)
    return [s for s in schemas if newest_of_oldest <= s.since_version < OPSETS.stop]


def _line(name: str, schemas: list[Any]) -> str:
    attributes = {
        attribute: str(info.type).removeprefix("AttrType.").lower()
        for schema in schemas
        for attribute, info in schema.attributes.items()
    }
    required = [a for a in attributes if all(a in s.attributes and s.attributes[a].required for s in schemas)]
    told = [f"{a}{'!' if a in required else ''}:{kind}" for a, kind in sorted(attributes.items())]
    line = " ".join([name, _range(schemas, "input"), _range(schemas, "output"), *told])
    return textwrap.fill(line, 120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _range(schemas: list[Any], side: str) -> str:
    least = min(getattr(schema, f"min_{side}") for schema in schemas)
    most = max(getattr(schema, f"max_{side}") for schema in schemas)
    return f"{least}-{'' if most >= UNBOUNDED else most}"


def _patterns() -> set[str]:
    """Regular expressions of the names in the sources: strings, and those with holes (`f"Reduce{kind}"`). Words beside
    one another, as torch writes functions of one value, are ONNX's names but for the first letter."""
    patterns = set(OPTIMIZED.split())
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else "[A-Za-z0-9]+" for part in node.values]
                    patterns.add("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words = node.value.split(" ")
                    patterns |= {*words, *(word.capitalize() for word in words if len(words) > 2)}
    return {pattern for pattern in patterns if re.match("[A-Z][A-Za-z0-9]+(\\[A-Za-z0-9\\]\\+)?[A-Za-z0-9]*$", pattern)}
