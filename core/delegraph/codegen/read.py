"""YAML in the style of ExecuTorch's `functions.yaml` and `custom_ops.yaml` -> its entries, each word with its line.

- op: add.out                       # aten, or namespace::name.overload
  type_alias: {T0: [Float, Double]}
  dim_order_alias: {D0: [0, 1]}
  kernels:
    - arg_meta: {self: [T0, D0], other: [T0, D0], out: [T0, D0]}
      kernel_name: my_package.kernels:add_contiguous
    - arg_meta: null
      kernel_name: my_package.kernels:add
- func: mylib::scaled.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)
  kernels: …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from delegraph.errors import CodegenError

if TYPE_CHECKING:
    from yaml.nodes import Node

__all__ = ["ArgMeta", "KernelEntry", "OperatorEntry", "Violation", "Word", "read_entries"]


@dataclass(frozen=True, slots=True)
class Word:
    """A scalar of the file."""

    text: str
    line: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A mistake in the file, and its line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ArgMeta:
    """The aliases that stand for an argument's dtypes and its dim order."""

    argument: Word
    type_alias: Word
    dim_order_alias: Word


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One kernel. `arg_meta` None: it is the fallback."""

    line: int
    kernel_name: Word
    arg_meta: tuple[ArgMeta, ...] | None


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """One operator: its name (`op`) or its schema (`func`), and its kernels."""

    operator: Word
    is_schema: bool
    type_alias: Mapping[str, tuple[Word, ...]]
    dim_order_alias: Mapping[str, tuple[Word, ...]]
    kernels: tuple[KernelEntry, ...]


def read_entries(text: str | bytes) -> tuple[list[OperatorEntry], list[Violation]]:
    """The entries of a file that could be read, and the mistakes in the rest.

    Raises `CodegenError` if PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as cause:
        raise CodegenError("reading YAML needs PyYAML: pip install 'pyyaml>=6'") from cause
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return [], [Violation(mark.line + 1 if mark else 1, f"this is no YAML: {error.problem or error.context}")]
    except RecursionError:
        return [], [Violation(1, "the file is nested too deeply")]
    except yaml.YAMLError as error:
        return [], [Violation(1, f"this is no YAML: {' '.join(str(error).split())}")]
    if root is None:
        return [], [Violation(1, "the file is empty")]
    reader = _Reader()
    try:
        entries = reader.list_of(root, "the file", reader.entry)
        return (entries if reader.left >= 0 else []), reader.violations
    except _Wrong:
        return [], reader.violations


_T = TypeVar("_T")

_ENTRY_KEYS: Final = ("op", "func", "type_alias", "dim_order_alias", "kernels")
_KERNEL_KEYS: Final = ("arg_meta", "kernel_name")


MAX_NODES: Final = 50_000
"""The most nodes that are read: ExecuTorch's list of portable kernels has 2,102. Aliases make any number of a few."""


class _Wrong(Exception):
    """A node is not what has to stand there; its violation has been noted."""


class _Reader:
    """Reads YAML nodes; notes violations and goes on with the next entry."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.left = MAX_NODES

    def count(self, node: Node) -> None:
        """Count the nodes in `node`. From the limit on nothing is read any more, and one violation says so."""
        if self.left < 0:
            raise _Wrong
        self.left -= len(node.value)
        if self.left < 0:
            raise self.wrong(node, f"the file has more than {MAX_NODES:,} words and lists, aliases counted each time")

    def entry(self, node: Node) -> OperatorEntry:
        fields = self.fields(node, "an entry", _ENTRY_KEYS)
        named = [key for key in ("op", "func") if key in fields]
        if len(named) != 1:
            raise self.wrong(node, "an entry has either op (a name) or func (a schema)")
        if "kernels" not in fields:
            raise self.wrong(node, "the entry has no kernels")
        return OperatorEntry(
            self.word(fields[named[0]], named[0]),
            named[0] == "func",
            self.aliases(fields, "type_alias"),
            self.aliases(fields, "dim_order_alias"),
            tuple(self.list_of(fields["kernels"], "kernels", self.kernel)),
        )

    def kernel(self, node: Node) -> KernelEntry:
        fields = self.fields(node, "a kernel", _KERNEL_KEYS)
        for key in _KERNEL_KEYS:
            if key not in fields:
                raise self.wrong(node, f"the kernel has no {key}")
        meta = fields["arg_meta"]
        return KernelEntry(
            _line(node),
            self.word(fields["kernel_name"], "kernel_name"),
            None if meta.tag == _NULL else tuple(self.arg_meta(meta)),
        )

    def arg_meta(self, node: Node) -> Iterator[ArgMeta]:
        for argument, value in self.pairs(node, "arg_meta"):
            words = self.words(value, f"arg_meta of {argument}")
            if len(words) != 2:
                raise self.wrong(value, f"arg_meta of {argument} is [a type alias, a dim order alias]")
            yield ArgMeta(argument, *words)

    def aliases(self, fields: Mapping[str, Node], key: str) -> dict[str, tuple[Word, ...]]:
        if key not in fields:
            return {}
        return {name.text: self.words(value, f"{key} {name}") for name, value in self.pairs(fields[key], key)}

    # ---- kinds of nodes --------------------------------------------------------------------------------

    def fields(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        fields = {}
        for key, value in self.pairs(node, what):
            fields[key.text] = value
            if key.text not in known:
                self.violations.append(Violation(key.line, f"unknown key {key}; {what} has {', '.join(known)}"))
        return fields

    def pairs(self, node: Node, what: str) -> list[tuple[Word, Node]]:
        if node.id != "mapping":
            raise self.wrong(node, f"{what} is a mapping, not {_kind(node)}")
        self.count(node)
        seen: dict[str, Word] = {}
        pairs = [(self.word(key, f"a key of {what}"), value) for key, value in node.value]
        for key, _ in pairs:
            if key.text in seen:
                self.violations.append(
                    Violation(key.line, f"{key} is given twice, first in line {seen[key.text].line}")
                )
            seen.setdefault(key.text, key)
        return pairs

    def list_of(self, node: Node, what: str, read: Callable[[Node], _T]) -> list[_T]:
        """The items that could be read."""
        items = []
        for item in self.items(node, what):
            try:
                items.append(read(item))
            except _Wrong:
                continue
        return items

    def items(self, node: Node, what: str) -> list[Node]:
        if node.id != "sequence":
            raise self.wrong(node, f"{what} is a list, not {_kind(node)}")
        self.count(node)
        return list(node.value)

    def words(self, node: Node, what: str) -> tuple[Word, ...]:
        return tuple(self.word(item, f"an item of {what}") for item in self.items(node, what))

    def word(self, node: Node, what: str) -> Word:
        if node.id != "scalar" or node.tag == _NULL:
            raise self.wrong(node, f"{what} is a word, not {_kind(node)}")
        return Word(str(node.value), _line(node))

    def wrong(self, node: Node, text: str) -> _Wrong:
        self.violations.append(Violation(_line(node), text))
        return _Wrong()


_NULL: Final = "tag:yaml.org,2002:null"


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: Node) -> str:
    return "nothing" if node.tag == _NULL else {"mapping": "a mapping", "sequence": "a list"}.get(node.id, "a word")
