"""NamedTuples and dataclasses of results, by the caller's classes; and as arguments."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import delegraph
from delegraph.errors import InvalidArgument

X = torch.tensor([1.0, 2.0])


class Scores(NamedTuple):
    best: torch.Tensor
    rest: Any


@dataclass
class Boxes:
    corners: torch.Tensor
    labels: torch.Tensor | None
    scores: Scores


torch.export.register_dataclass(Boxes, serialized_type_name="delegraph_tests.Boxes")


class Detects(nn.Module):
    def forward(self, boxes: Boxes, scores: Scores) -> dict[str, Any]:
        found = Boxes(boxes.corners * 2, None, Scores(scores.best + 1, [scores.rest]))
        return {"found": found, "scores": (scores, torch.topk(scores.rest, 1))}


@pytest.fixture(scope="module")
def lowered() -> delegraph.Lowered:
    return delegraph.lower(Detects(), (Boxes(X, None, Scores(X, X)), Scores(X, X * 3)))


@pytest.mark.parametrize("isolated", [False, True])
def test_results_are_of_the_classes_that_the_caller_hands_over(lowered: Any, isolated: bool) -> None:
    run = delegraph.load(bytes(lowered), types=[Scores, Boxes], isolated=isolated)  # type: ignore[call-overload]
    args = Boxes(X, None, Scores(X, X)), Scores(X, X * 3)
    result, expected = run(*args), Detects()(*args)
    assert type(result["found"]) is Boxes and type(result["found"].scores) is Scores
    assert result["found"].labels is None
    torch.testing.assert_close(result["found"].corners, expected["found"].corners)
    torch.testing.assert_close(result["found"].scores.rest[0], X * 3)
    scores, top = result["scores"]
    assert type(scores) is Scores and type(top) is tuple
    torch.testing.assert_close(scores.rest, X * 3)


def test_every_session_has_them(lowered: Any) -> None:
    run = delegraph.load(bytes(lowered), types=[Scores])
    args = Boxes(X, None, Scores(X, X)), Scores(X, X * 3)
    for session in (run.session(), run.fork()):
        result = session(*args)
        assert type(result["scores"][0]) is Scores and type(result["found"]) is dict


def test_a_program_that_is_sent_has_them(lowered: Any, tmp_path: Any) -> None:
    lowered.save(tmp_path / "model.pte")
    run = pickle.loads(pickle.dumps(delegraph.load(tmp_path / "model.pte", types=[Boxes])))
    assert type(run(Boxes(X, None, Scores(X, X)), Scores(X, X))["found"]) is Boxes


def test_without_classes_they_are_tuples_and_dicts(lowered: Any) -> None:
    result = delegraph.load(bytes(lowered))(Boxes(X, None, Scores(X, X)), Scores(X, X))
    assert type(result["found"]) is dict and type(result["found"]["scores"]) is tuple


def test_a_class_made_in_a_function_is_told_by_its_name() -> None:
    made = namedtuple("Local", ["first", "second"])

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return made(x + 1, x)

    result = delegraph.load(bytes(delegraph.lower(Model(), (X,))), types=[made])(X)
    assert type(result) is made
    torch.testing.assert_close(result.first, X + 1)


@pytest.mark.parametrize(
    ("types", "told"),
    [
        (
            [namedtuple("Scores", ["best"])],
            r"has Scores with the fields best, and the model's Scores has 2 fields",
        ),
        ([dict], "types takes classes of NamedTuples and dataclasses, not <class 'dict'>"),
        ([Scores, namedtuple("Scores", ["a", "b"])], "two classes called Scores"),
        ([type("Boxes", (Scores,), {"_fields": ("a", "b")})], r"the model's Boxes has corners, scores"),
    ],
)
def test_classes_that_do_not_fit(lowered: Any, types: list[type], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        delegraph.load(bytes(lowered), types=types)


def test_arguments_of_another_structure_are_refused(lowered: Any) -> None:
    with pytest.raises(InvalidArgument, match="takes"):
        delegraph.load(bytes(lowered))(X, Scores(X, X))


def test_the_saved_structure_is_torchs() -> None:
    from torch.utils import _pytree as pytree

    text = delegraph.load(bytes(delegraph.lower(Detects(), (Boxes(X, None, Scores(X, X)), Scores(X, X))))).program
    spec = text.plan("forward").container_meta_type.encoded_out_str
    assert '"class": "Boxes"' in spec and "test_result_types" not in spec
    assert pytree.treespec_loads(spec).num_leaves == 7
