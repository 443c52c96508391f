"""Claims: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegraph_testkit.checks import checks_of, refuse_strange_failures
from delegraph_testkit.claims import DTYPES, Claims, ClaimsError, database
from delegraph_testkit.outcomes import Level
from delegraph_testkit.subject import Kind, Subject


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "conformance.toml"
    file.write_text(
        'models = ["mine:model"]\n[features]\ndynamic_shapes = true\ncontrol_flow = false\n'
        '[operators]\nadd = ["float32", "int32"]\n[tolerances]\nfloat32 = [1e-3, 1e-4]\n'
        '[options]\nprecision = "float64"\n'
    )
    claims = Claims.read(file)
    assert claims == Claims(
        operators={"add": ("float32", "int32")},
        features=("dynamic_shapes",),
        models=("mine:model",),
        tolerances={"float32": (1e-3, 1e-4)},
        options={"precision": "float64"},
    )
    assert Claims.from_mapping(claims.to_mapping()) == claims
    assert claims.has("add", "int32") and not claims.has("add", "int8") and not claims.has("mul", "float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[operators]\nadd = ['float33']", "the kit knows no dtype 'float33'; did you mean float32"),
        ("[operators]\nacos = ['int4']", "the kit knows no dtype 'int4'"),
        ("[operators]\naddmm = ['bool']", "the kit knows no dtype of addmm 'bool'"),
        ("[operators]\n'nn.functional.rellu' = ['float32']", "did you mean nn.functional.relu"),
        ("[features]\ndynamic_shape = true", "the kit knows no feature 'dynamic_shape'; did you mean dynamic_shapes?"),
        ("[feature]\n", "the kit knows no table 'feature'; did you mean features?"),
        (
            "[expected_failures]\n'loads/loads_with_torch' = ' '",
            "the expected failure of loads/loads_with_torch has no reason",
        ),
        ("[operators", "conformance.toml: Expected ']'"),
        ("operators = " + "[" * 3000, "conformance.toml: maximum recursion depth"),
    ],
)
def test_what_says_nothing_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "conformance.toml"
    file.write_text(text)
    with pytest.raises(ClaimsError) as raised:
        Claims.read(file)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_failure_of_no_check_is_refused() -> None:
    claims = Claims(expected_failures={"operators/add/float23": "it rounds"})
    with pytest.raises(ClaimsError, match="'operators/add/float23', and no check is called that"):
        refuse_strange_failures(Subject(Kind.BACKEND, "cpu", claims))


@pytest.mark.parametrize("kind", Kind)
def test_every_check_says_what_it_wants(kind: Kind) -> None:
    """By its name, once; and how many there are depends on nothing that a plug-in claims."""
    checks = checks_of(Subject(kind, "any"))
    assert len({check.id for check in checks}) == len(checks)
    assert {check.level for check in checks} >= {Level.LOADS, Level.MODELS}
    assert all(check.wants for check in checks if check.level is not Level.OPERATORS)
    every = dict(database())
    assert [c.id for c in checks_of(Subject(kind, "any", Claims(operators=every)))] == [check.id for check in checks]


def test_the_table_of_operators() -> None:
    table = database()
    assert len(table) > 500
    assert {dtype for dtypes in table.values() for dtype in dtypes} == set(DTYPES)
    assert all(list(dtypes) == [dtype for dtype in DTYPES if dtype in dtypes] for dtypes in table.values())
