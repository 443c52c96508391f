"""`delegraph view`: a page or Model Explorer's files of a program, with delegates' insides; what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from delegraph.cli import main
from delegraph.devtools import load_model, view
from delegraph.devtools.program_view import page as pages
from delegraph.devtools.program_view.graph import GraphView, view_graphs
from delegraph.errors import InvalidArgument, NotSupported
from delegraph.interfaces import DelegateDescription, DelegateNode
from delegraph.program import deserialize_program, write_program
from delegraph.program.debug_data import DEBUG_DATA_KEY, write_debug_data
from delegraph.program.schema import (
    BackendDelegate,
    DelegateCall,
    ExecutionPlan,
    KernelCall,
    MoveCall,
    NamedData,
    Program,
)
from delegraph.runtime import Runtime

from .conftest import plan, program, tensor
from .test_contents import DESCRIBED, ORIGINS, Telling, use

Refused = Callable[..., str]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without netron: the page is not drawn in these tests."""
    monkeypatch.setattr(pages, "_layout", lambda: "export const layout = () => {};")


@pytest.fixture
def told_of(tmp_path: Path) -> str:
    """The program with debug data, in which a reason stands."""
    origins = replace(ORIGINS, left={1: "Negator: cannot add"})
    named = {**program().named_data, DEBUG_DATA_KEY: NamedData(write_debug_data({"forward": origins}))}
    path = tmp_path / "told.pte"
    write_program(replace(program(), named_data=MappingProxyType(named)), path)
    return str(path)


def graph_of(own: ExecutionPlan) -> GraphView:
    whole = Program((own,), constants=(b"", bytes(16)), delegate_data=(b"blob",))
    (graph,) = view_graphs(whole, load_model(whole))
    return graph


def edges(graph: GraphView) -> dict[str, tuple[str, ...]]:
    return {node.id: node.inputs for node in graph.nodes}


def test_a_graph_goes_through_delegates(told_of: str) -> None:
    with use(Telling(lambda: DESCRIBED)):
        model, read = load_model(told_of), deserialize_program(Path(told_of).read_bytes())
        graph = next(graph for graph in view_graphs(read, model) if graph.method == "forward")
    assert graph.partitions == ("inputs and outputs", "kernels", "delegate 0: Negator")
    nodes = {node.id: node for node in graph.nodes}
    assert list(nodes) == ["input 0", "input 1", "input 2", "0", "1/load", "1/neg", "output 0", "output 1"]
    assert edges(graph)["1/neg"] == ("1/load",) and edges(graph)["output 0"] == ("1/neg",)
    add, neg = nodes["0"], nodes["1/neg"]
    assert (add.label, add.module, add.partition, add.reason) == ("add", "head", 1, "Negator: cannot add")
    assert (add.results, add.memory) == (("float32 [4]",), ("planned memory 1, bytes 64 to 80",))
    assert (add.lines, add.weight_nbytes, add.inputs) == (("net.py:3, in forward",), 16, ("input 0",))
    assert add.weights == ("head.bias: float32 4, 16 bytes in constants",)
    assert (neg.module, neg.partition, neg.reason, neg.weight_nbytes) == ("tail.0", 2, "", 4)


def test_nodes_that_name_no_values_are_linked_in_their_order() -> None:
    """A device's commands, of which only the weights are known that they read."""
    described = DelegateDescription((DelegateNode("load", "Load", ("table",)), DelegateNode("neg", "Negate")))
    with use(Telling(lambda: described)):
        values, call = [tensor(4, at=0), tensor(4, at=16)], DelegateCall(0, (0, 1))
        graph = graph_of(plan("f", values, [0], [1], [call], (), [BackendDelegate("Negator", 0, ())]))
    assert edges(graph) == {"input 0": (), "0/load": ("input 0",), "0/neg": ("0/load",), "output 0": ("0/neg",)}


def test_a_delegate_that_tells_nothing_is_one_node_each_time() -> None:
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32)]
    twice = [DelegateCall(0, (0, 1)), DelegateCall(0, (1, 2))]
    graph = graph_of(plan("f", values, [0], [2], twice, (), [BackendDelegate("Negator", 0, ())]))
    assert edges(graph) == {"input 0": (), "0": ("input 0",), "1": ("0",), "output 0": ("1",)}


def test_edges_go_through_memory_and_moves() -> None:
    """Two parts are written where the third value lies, which nobody writes; then it is moved."""
    values = [tensor(2, at=64), tensor(2, at=0), tensor(2, at=8), tensor(4, at=0), tensor(4, at=16)]
    calls = [KernelCall(0, (0, 1, 1)), KernelCall(0, (0, 2, 2)), MoveCall(3, 4)]
    graph = graph_of(plan("f", values, [0], [3, 4], calls, ["aten::neg.out"]))
    assert edges(graph)["output 0"] == edges(graph)["output 1"] == ("0", "1")


def test_a_weight_that_two_nodes_read_counts_once() -> None:
    weight = replace(tensor(4, at=0, planned=False), data_buffer_idx=1)
    values = [weight, tensor(4, at=0), tensor(4, at=16)]
    graph = graph_of(plan("f", values, [], [1, 2], [KernelCall(0, (0, i, i)) for i in (1, 2)], ["aten::neg.out"]))
    assert [node.weight_nbytes for node in graph.nodes] == [16, 0, 0, 0]


def test_sources_and_names(told_of: str, drawn: None) -> None:
    loaded = Runtime.get().load_program(told_of)
    content = Path(told_of).read_bytes()
    manager = SimpleNamespace(buffer=content)
    shown = view(told_of, content, loaded, deserialize_program(content), manager, SimpleNamespace(program=loaded))
    assert [own.name for own in shown.programs] == ["told.pte", *(f"program {n}" for n in range(2, 7))]
    assert all(own.graphs == shown.programs[0].graphs for own in shown.programs)
    assert repr(view(content, names=["before"])) == "ProgramView(before: 22 nodes)"
    html = shown._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts"') and "<script" not in html


def test_the_page_is_written_and_the_largest_named(told_of: str, drawn: None, tmp_path: Path, capsys: Any) -> None:
    numbers = tmp_path / "t.json"
    numbers.write_text('{"net.py:3": 0.5, "tail.0": 0.25}')
    out = tmp_path / "view.html"
    with use(Telling(lambda: DESCRIBED)):
        assert main(["view", told_of, told_of, "--overlay", f"time={numbers}", "-o", str(out)]) == 0
    said = capsys.readouterr().out.split()
    assert said[:2] == ["written:", str(out)] and "head" in said and "net.py:3," in said
    data = json.loads(out.read_text("utf-8").partition('id="data">')[2].partition("</script>")[0])
    assert data["start"] == "time" and sorted(data["overlays"]) == ["bytes", "time"]
    assert [len(own["methods"]) for own in data["programs"]] == [3, 3]
    forward = next(method for method in data["programs"][1]["methods"] if method["name"] == "forward")
    assert forward["values"]["time"] == [None, None, None, 0.5, 0.125, 0.125, None, None]


@pytest.mark.parametrize("display", ["", ":0"])
def test_without_a_file_the_browser_opens_it(
    told_of: str, drawn: None, monkeypatch: pytest.MonkeyPatch, capsys: Any, display: str
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["view", told_of]) == 0
    path = Path(capsys.readouterr().out.split()[1])
    assert path.is_file() and opened == ([path.as_uri()] if display else [])


def test_files_for_model_explorer(told_of: str, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "explorer"
    with use(Telling(lambda: DESCRIBED)):
        assert main(["view", told_of, "--explorer", "-o", str(folder)]) == 0
    assert capsys.readouterr().out.count("written: ") == 2
    content = json.loads((folder / "told.json").read_text("utf-8"))
    graph = next(graph for graph in content["graphs"] if graph["id"] == "forward")
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert nodes["1/neg"]["namespace"] == "tail/0"
    assert nodes["1/neg"]["incomingEdges"] == [
        {"sourceNodeId": "1/load", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}
    ]
    assert {"key": "left because", "value": "Negator: cannot add"} in nodes["0"]["attrs"]
    assert nodes["0"]["outputsMetadata"] == [{"id": "0", "attrs": [{"key": "shape", "value": "float32[4]"}]}]
    numbers = json.loads((folder / "told.bytes.json").read_text("utf-8"))["forward"]
    assert numbers["results"]["0"] == {"value": 16.0}


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A package in Model Explorer's place, which writes down how it was called."""
    package = tmp_path / "site" / "model_explorer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        f"import sys\nopen({str(tmp_path / 'called')!r}, 'w').write(chr(10).join(sys.argv[1:]))"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    yield tmp_path / "called"
    sys.modules.pop("model_explorer", None)


def test_model_explorer_is_started_with_graphs_and_numbers(told_of: str, explorer: Path) -> None:
    assert main(["view", told_of, "--explorer"]) == 0
    graphs, option, numbers = explorer.read_text().split("\n")
    assert option == "--node_data_paths" and graphs.endswith("told.json") and numbers.endswith("told.bytes.json")
    assert Path(graphs).is_file() and Path(numbers).is_file()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--overlay", "heat=x.json"], 2, "it is one of time, bytes, error"),
        (["--overlay", "time"], 2, "name the file with the numbers, time=FILE.json"),
        (["--overlay", "time=a", "--overlay", "time=b"], 2, "--overlay time is named 2 times, for 1 program"),
        (["--overlay", "time=no.json"], 1, "no.json"),
    ],
)
def test_what_cannot_be_shown(pte: str, refused: Refused, words: list[str], code: int, said: str) -> None:
    assert said in refused("view", pte, *words, code=code)


def test_numbers_that_are_no_json(pte: str, tmp_path: Path, refused: Refused) -> None:
    broken = tmp_path / "t.json"
    broken.write_text("{")
    assert "is no JSON" in refused("view", pte, "--overlay", f"time={broken}", code=1)


def test_without_model_explorer(pte: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.cli.view.find_spec", lambda name: None)
    assert "Model Explorer is not installed here" in refused("view", pte, "--explorer", code=1)


def test_without_netron(pte: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(NotSupported, match=r"drawing a graph needs netron: pip install 'delegraph\[view\]'"):
        view(pte).to_html()


@pytest.mark.parametrize(
    ("sources", "options", "said"),
    [
        (0, {}, "there is nothing to view"),
        (1, {"names": ["a", "b"]}, "there are 1 programs, and 2 names"),
        (1, {"start": "time"}, "there is nothing measured for 'time'; there are numbers for bytes"),
        (1, {"overlays": {"time": [{}, {}]}}, "2 overlays 'time' for 1 programs"),
    ],
)
def test_what_view_refuses(pte: str, sources: int, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        view(*[pte] * sources, **options)
    assert said in str(refusal.value)


def test_no_program_and_no_such_overlay(pte: str) -> None:
    with pytest.raises(InvalidArgument, match="a int is no program"):
        view(3)
    with pytest.raises(InvalidArgument, match="there is no overlay 'time' here; there are bytes"):
        view(pte).largest("time")


def test_texts_of_a_file_are_no_markup(drawn: None) -> None:
    """A name that would end the script and begin another; only the page's own two scripts are there."""
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    whole = Program((plan(evil, [tensor(4, at=0)], [0], [0], []),))
    html = view(whole, names=[evil]).to_html()
    assert html.count("</script>") == 2 and "<img" not in html
    policy = html.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
