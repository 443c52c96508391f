"""A user's text, `"npu"`, `"npu{optimize=size}"` or `("npu", {"optimize": "size"})` -> a plug-in and its options.

text    = plug-in { "," plug-in }
plug-in = name [ "{" [ option { "," option } ] "}" ]
option  = key "=" value
value   = an integer, a float, true, false (also True, False), 'quoted' or "quoted" text (with a backslash before the
          quote or a backslash), or bare text up to the next comma or brace
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeVar

from delegraph.errors import PluginError
from delegraph.lazy_dataclass import dataclass, field

__all__ = ["PluginName", "PluginSpec", "parse_plugin", "parse_plugins", "plugin_spec"]

OptionValue: TypeAlias = bool | int | float | str

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A plug-in by its name, with the options written beside it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The text that `parse_plugin` makes it from."""
        options = ", ".join(f"{key}={_text(value)}" for key, value in self.options.items())
        return f"{self.name}{{{options}}}" if options else self.name


PluginName: TypeAlias = "str | tuple[str, Mapping[str, Any]] | PluginSpec"
"""An installed plug-in: `"name"`, `"name{option=1}"`, `("name", {"option": 1})`, or one of these as it was read."""


def plugin_spec(plugin: PluginName | _T) -> PluginSpec | _T:
    """A plug-in as it was named, or the object that was given in place of a name.

    `"npu{optimize=size}"` and `("npu", {"optimize": "size"})` mean the same. Raises `PluginError` for text or a pair
    that is malformed.
    """
    if isinstance(plugin, str):
        return parse_plugin(plugin)
    if not isinstance(plugin, tuple):
        return plugin
    if len(plugin) != 2 or not isinstance(plugin[0], str) or not _are_options(plugin[1]):
        raise PluginError(
            f'a plug-in with options is a name and a mapping of names, ("npu", {{"optimize": "size"}}), not {plugin!r}'
        )
    name, options = plugin
    if "{" in name:
        raise PluginError(f"{plugin!r} has options in its name and beside it; write them in one place")
    return PluginSpec(name, dict(options))


def _are_options(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def parse_plugin(text: str) -> PluginSpec:
    """One plug-in. Raises `PluginError` that shows where the text is malformed."""
    scanner = _Scanner(text)
    spec = _plugin(scanner)
    if not scanner.ended:
        raise scanner.malformed("the end: one plug-in is meant here")
    return spec


def parse_plugins(text: str) -> list[PluginSpec]:
    """Plug-ins with commas between them, as on the command line; none of blank text. Raises as `parse_plugin`."""
    if not text.strip():
        return []
    scanner = _Scanner(text)
    specs = [_plugin(scanner)]
    while not scanner.ended:
        scanner.take(_COMMA, "',' or the end")
        specs.append(_plugin(scanner))
    return specs


_NAME: Final = re.compile(r"\s*([^\s{},=\"']+)\s*")
_OPEN, _CLOSE = re.compile(r"\{\s*"), re.compile(r"\}\s*")
_COMMA, _EQUALS = re.compile(r",\s*"), re.compile(r"=\s*")
_QUOTED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*""", re.DOTALL)
_BARE: Final = re.compile(r"([^,{}\"'\s](?:[^,{}\"']*[^,{}\"'\s])?)\s*")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_WORDS: Final = {"true": True, "True": True, "false": False, "False": False}


def _text(value: object) -> str:
    """Quoted where it would not be read as it is."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if _BARE.fullmatch(value) and value.strip() == value and _read(value) == value:
        return value
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"'


class _Scanner:
    """A place in a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._text)

    def find(self, pattern: re.Pattern[str]) -> str | None:
        """Match `pattern` here, and go behind it; None if it does not match."""
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[match.lastindex or 0]

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        """As `find`. Raises `PluginError` if it is not here."""
        text = self.find(pattern)
        if text is None:
            raise self.malformed(expected)
        return text

    def malformed(self, expected: str) -> PluginError:
        """The error that shows the text with a mark under this place, and the text expected there."""
        there = repr(self._text[self._at]) if not self.ended else "the end"
        return PluginError(
            f"character {self._at + 1} is {there}; expected {expected}\n  {self._text}\n  {' ' * self._at}^"
        )


def _plugin(scanner: _Scanner) -> PluginSpec:
    name = scanner.take(_NAME, "a plug-in's name")
    options: dict[str, OptionValue] = {}
    if scanner.find(_OPEN) is None:
        return PluginSpec(name)
    while scanner.find(_CLOSE) is None:
        if options:
            scanner.take(_COMMA, "',' or '}'")
        key = scanner.take(_NAME, "an option's name" if options else "an option's name or '}'")
        if key in options:
            raise PluginError(f"the option {key!r} of {name!r} is given twice")
        scanner.take(_EQUALS, f"'=' and a value for the option {key!r}")
        options[key] = _value(scanner)
    return PluginSpec(name, options)


def _value(scanner: _Scanner) -> OptionValue:
    quoted = scanner.find(_QUOTED)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)
    return _read(scanner.take(_BARE, "a value"))


def _read(bare: str) -> OptionValue:
    if bare in _WORDS:
        return _WORDS[bare]
    if _INTEGER.fullmatch(bare):
        return int(bare)
    return float(bare) if _FLOAT.fullmatch(bare) else bare
