"""The pieces of Python in ExecuTorch's documentation run, imports changed: all but those that are listed, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins.executorch.tests.upstream.documentation import EXPECTED_ERRORS, PAGES, pieces, read_page, run_page
from plugins.executorch.tests.upstream.results import read_reasons

NUMBER_OF_PIECES = 74
LISTED = Path(__file__).parent / "upstream" / "cannot_pass" / "documentation.toml"


@pytest.fixture(scope="module")
def ran() -> dict[str, bool]:
    """Piece -> whether it ran, of the pages that were run so far."""
    return {}


@pytest.mark.executorch
@pytest.mark.usefixtures("executorch_package")
@pytest.mark.parametrize("page", PAGES)
def test_pieces_run(page: str, tmp_path: Path, ran: dict[str, bool]) -> None:
    try:
        text = read_page(page)
    except OSError:  # urllib's errors and those of sockets
        pytest.skip("no network; DELEGRAPH_EXECUTORCH_SOURCE may name a clone of ExecuTorch")
    listed = read_reasons([LISTED])
    raised = run_page(page, text, tmp_path)
    failing = {piece: error for piece, error in raised.items() if error.split(":")[0] != EXPECTED_ERRORS.get(piece, "")}
    ran.update({piece: piece not in failing for piece in raised})
    assert failing.keys() == {piece for piece in listed if piece.split("#")[0] == page}, failing


@pytest.mark.executorch
def test_how_many_pieces_run(ran: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    """40 of 43, the measure set for a part of the pages, is 93 of 100 of those that run on ExecuTorch itself."""
    if len(ran) < NUMBER_OF_PIECES:
        pytest.skip(f"{len(ran)} of {NUMBER_OF_PIECES} pieces were run in this session")
    listed = read_reasons([LISTED])
    there = [piece for piece in ran if piece not in listed or listed[piece].kind != "bug of ExecuTorch's own"]
    here = [piece for piece in there if ran[piece]]
    with capsys.disabled():
        print(f"\nExecuTorch's documentation: {len(here)} of the {len(there)} pieces that run on ExecuTorch run here")
    assert len(here) >= 0.93 * len(there)


def test_few_pieces_are_listed_that_run_on_executorch() -> None:
    """The same of the list, without running them."""
    listed = read_reasons([LISTED]).values()
    own = [reason for reason in listed if reason.kind == "bug of ExecuTorch's own"]
    assert len(listed) - len(own) <= 0.07 * (NUMBER_OF_PIECES - len(own))


def test_a_page_is_read_as_a_reader_would() -> None:
    page = (
        "Text.\n```python\nfrom executorch.exir import to_edge\nto_edge(1)\n```\n"
        "```python\ndef shown(a: int) -> int:\n```\n```cpp\nint a;\n```\n```py\nx = 1\n```\n"
    )
    assert list(pieces("page.md", page)) == [
        ("page.md#1", "from delegraph_executorch.exir import to_edge\nto_edge(1)\n"),
        ("page.md#3", "x = 1\n"),
    ]


def test_the_comments_of_a_tutorial_are_read_too() -> None:
    tutorial = (
        "# Text\n#\n# .. code-block:: python\n#\n#    from executorch import exir\n#    exir.x()\n#\n# More.\ny = 2\n"
    )
    assert [name for name, _ in pieces("a/tutorial.py", tutorial)] == ["a/tutorial.py#1", "a/tutorial.py#2"]
    assert next(pieces("a/tutorial.py", tutorial))[1].strip() == "from delegraph_executorch import exir\nexir.x()"
