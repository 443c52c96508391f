"""Source text -> its import statements: which run when it is imported, which later or perhaps, which never."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

__all__ = ["Import", "When", "bound_names", "imports_of"]


class When(Enum):
    """When an import statement runs."""

    ALWAYS = "when the module is imported"
    PERHAPS = "in a function, or where a failure is caught"
    NEVER = "for type checkers only"


@dataclass(frozen=True, slots=True)
class Import:
    """`import module`, or `from module import name as bound`."""

    module: str
    name: str | None
    bound: str
    when: When


def imports_of(tree: ast.Module, module: str, is_package: bool) -> tuple[Import, ...]:
    """Every import in the source of `module`; `import_module("a.b")` with a literal counts as one."""
    visitor = _Visitor(module if is_package else module.rpartition(".")[0])
    visitor.visit(tree)
    return tuple(visitor.found)


def bound_names(tree: ast.Module, imports: Iterable[Import]) -> frozenset[str]:
    """The names that a module has once it is imported: by import, definition or assignment."""
    imported = {entry.bound for entry in imports if entry.when is When.ALWAYS}
    return frozenset({*imported, *(name for statement in tree.body for name in _defined(statement))})


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        yield from (node.id for node in ast.walk(statement) if _is_stored(node) and isinstance(node, ast.Name))


def _is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


class _Visitor(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self.package = package
        self.found: list[Import] = []
        self._when = When.ALWAYS

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, None, alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.package.split(".")[: 1 - node.level or None] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            self._add(module, alias.name, alias.asname or alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name in ("import_module", "__import__") and isinstance(literal, str) and not literal.startswith("."):
            self._add(literal, None, "")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        is_typing = getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING"
        with self._at(When.NEVER if is_typing else self._when):
            self._visit_all(node.body)
        self._visit_all([node.test, *node.orelse])

    def visit_Try(self, node: ast.Try) -> None:
        with self._at(When.PERHAPS if any(map(_catches_imports, node.handlers)) else self._when):
            self._visit_all(node.body)
        self._visit_all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_With(self, node: ast.With) -> None:
        calls = [item.context_expr.func for item in node.items if isinstance(item.context_expr, ast.Call)]
        suppresses = any(getattr(call, "attr", getattr(call, "id", "")) == "suppress" for call in calls)
        with self._at(When.PERHAPS if suppresses else self._when):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._later(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._later(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._later(node)

    def _later(self, node: ast.AST) -> None:
        with self._at(When.PERHAPS):
            self.generic_visit(node)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    @contextmanager
    def _at(self, when: When) -> Iterator[None]:
        before = self._when
        self._when = when if before is When.ALWAYS else before
        try:
            yield
        finally:
            self._when = before

    def _add(self, module: str, name: str | None, bound: str) -> None:
        self.found.append(Import(module, name, bound, self._when))


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    caught = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    names = {getattr(kind, "attr", getattr(kind, "id", None)) for kind in caught}
    return bool(names & {None, "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
