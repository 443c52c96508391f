"""The texts that users write for a plug-in: its name, its options, and where a text is malformed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from delegraph.errors import PluginError, PluginLoadError, UnknownOption
from delegraph.plugins import PluginRegistry
from delegraph.plugins.plugin_spec import PluginSpec, parse_plugin, parse_plugins, plugin_spec


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("npu", "npu", {}),
        (" npu ", "npu", {}),
        ("npu{}", "npu", {}),
        ("acme-npu.v2{optimize=3}", "acme-npu.v2", {"optimize": 3}),
        ("npu{optimize=3,mode=fast}", "npu", {"optimize": 3, "mode": "fast"}),
        ("npu { optimize = -3 , mode = very fast }", "npu", {"optimize": -3, "mode": "very fast"}),
        ("npu{a=true,b=False,c=TRUE}", "npu", {"a": True, "b": False, "c": "TRUE"}),
        ("npu{a=1.5,b=1e-3,c=.5,d=-2.,e=1e}", "npu", {"a": 1.5, "b": 1e-3, "c": 0.5, "d": -2.0, "e": "1e"}),
        ("npu{a='3',b=\"x, }\",c='it\\'s'}", "npu", {"a": "3", "b": "x, }", "c": "it's"}),
        ("npu{path=/dev/npu0,flag=a=b}", "npu", {"path": "/dev/npu0", "flag": "a=b"}),
        ("npu{empty=''}", "npu", {"empty": ""}),
        ("npu{a=1 b=2}", "npu", {"a": "1 b=2"}),
    ],
)
def test_text(text: str, name: str, options: Mapping[str, Any]) -> None:
    assert parse_plugin(text) == PluginSpec(name, options)
    assert {key: type(value) for key, value in parse_plugin(text).options.items()} == {
        key: type(value) for key, value in options.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"a": 1, "b": -2.5, "c": True, "d": False},
        {"a": "fast", "b": "very fast", "c": "", "d": "true", "e": "3", "f": "1e5", "g": " spaced "},
        {"a": "x, }", "b": "it's", "c": 'the "one"', "d": "C:\\models\\", "e": "two\nlines"},
    ],
)
def test_text_made_of_a_plugin_is_read_as_it(options: Mapping[str, Any]) -> None:
    spec = PluginSpec("npu", options)
    assert parse_plugin(str(spec)) == spec
    assert list(map(type, parse_plugin(str(spec)).options.values())) == list(map(type, options.values()))


def test_text_of_several() -> None:
    assert parse_plugins("npu{a=1,b='x,y'}, cpu ,dsp{}") == [
        PluginSpec("npu", {"a": 1, "b": "x,y"}),
        PluginSpec("cpu"),
        PluginSpec("dsp"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1 is the end; expected a plug-in's name"),
        ("{a=1}", "character 1 is '{'; expected a plug-in's name"),
        ("npu{optimize=3", "character 15 is the end; expected ',' or '}'\n  npu{optimize=3\n                ^"),
        ("npu{optimize}", "character 13 is '}'; expected '=' and a value for the option 'optimize'"),
        ("npu{optimize=}", "character 14 is '}'; expected a value"),
        ("npu{a=1,}", "character 9 is '}'; expected an option's name"),
        ("npu{,}", "character 5 is ','; expected an option's name or '}'"),
        ("npu{a='x}", 'character 7 is "\'"; expected a value'),
        ("npu{a=1}x", "character 9 is 'x'; expected the end: one plug-in is meant here"),
        ("npu,cpu", "character 4 is ','; expected the end: one plug-in is meant here"),
        ("npu{a=1,a=2}", "the option 'a' of 'npu' is given twice"),
    ],
)
def test_text_that_is_malformed(text: str, message: str) -> None:
    with pytest.raises(PluginError) as caught:
        parse_plugin(text)
    assert str(caught.value).startswith(message)


def test_a_list_that_is_malformed() -> None:
    with pytest.raises(PluginError, match=r"character 5 is the end; expected a plug-in's name"):
        parse_plugins("npu,")
    with pytest.raises(PluginError, match=r"character 9 is 'x'; expected ',' or the end"):
        parse_plugins("npu{a=1}x")


@pytest.mark.parametrize("text", ["", " "])
def test_blank_text_names_none(text: str) -> None:
    assert parse_plugins(text) == []


def test_text_a_pair_and_an_object_mean_the_same() -> None:
    assert plugin_spec("npu{optimize=3}") == plugin_spec(("npu", {"optimize": 3})) == PluginSpec("npu", {"optimize": 3})
    plugin = object()
    assert plugin_spec(plugin) is plugin
    spec = PluginSpec("npu", {"optimize": 3})
    assert plugin_spec(spec) is spec


@pytest.mark.parametrize("pair", [("npu",), ("npu", 3), (3, {}), ("npu", {}, {}), ("npu", {1: 2})])
def test_a_pair_that_is_malformed(pair: Any) -> None:
    with pytest.raises(PluginError, match="a plug-in with options is a name and a mapping"):
        plugin_spec(pair)


def test_options_in_two_places() -> None:
    with pytest.raises(PluginError, match="has options in its name and beside it"):
        plugin_spec(("npu{a=1}", {"b": 2}))


# ---- options that a plug-in does not have --------------------------------------------------------------


class Strategy:
    """The product of the factories below: a pass."""

    def __init__(self, *, optimize: int = 1, mode: str = "safe") -> None:
        self.optimize, self.mode = optimize, mode

    def __call__(self, graph_module: Any) -> None: ...


def of_mapping(options: Mapping[str, Any]) -> Strategy:
    """Looks up what it knows."""
    return Strategy(optimize=options.get("optimize", 1), mode=options.get("mode", "safe"))


def create(factory: Any, options: Mapping[str, Any]) -> Any:
    registry = PluginRegistry()
    registry.register("passes", "tidy", factory)
    return registry.create("passes", "tidy", options)


@pytest.mark.parametrize("factory", [Strategy, of_mapping, lambda options: Strategy(**options)])
def test_options_arrive(factory: Any) -> None:
    result = create(factory, {"optimize": 3})
    assert (result.optimize, result.mode) == (3, "safe")


@pytest.mark.parametrize("factory", [Strategy, of_mapping])
def test_an_option_that_the_plugin_does_not_have(factory: Any) -> None:
    with pytest.raises(UnknownOption) as caught:
        create(factory, {"optimise": 3})
    assert str(caught.value) == (
        "pass 'tidy' has no option 'optimise'; it has optimize, mode; did you mean 'optimize'?"
    )


def test_a_plugin_without_options() -> None:
    def plain() -> Strategy:
        return Strategy()

    assert isinstance(create(plain, {}), Strategy)
    with pytest.raises(UnknownOption, match="pass 'tidy' has no option 'a', 'b'; it has none"):
        create(plain, {"a": 1, "b": 2})


def test_a_factory_that_takes_any_option() -> None:
    with pytest.raises(PluginLoadError, match="its factory raised ValueError: no a"):
        create(_refusing, {"a": 1})


def _refusing(**options: Any) -> Strategy:
    raise ValueError(f"no {', '.join(options)}")
