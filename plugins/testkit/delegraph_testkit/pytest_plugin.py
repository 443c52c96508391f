"""Test classes derived from the kit's -> a test for each check. Loaded by pytest wherever the kit is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delegraph.errors import DelegraphError

if TYPE_CHECKING:
    from delegraph_testkit.session import Session

__all__ = ["conformance_session", "pytest_addoption", "pytest_generate_tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options for reports, and for scripts that show faults."""
    text = "write the reports of conformance classes there: .md, .json and .svg"
    parser.addoption("--conformance-report", type=Path, metavar="FOLDER", help=text)
    text = "write the smallest part of a model that shows a fault of a conformance class there, as a script"
    parser.addoption("--conformance-repro", type=Path, metavar="FOLDER", help=text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `test_conformance`."""
    if metafunc.cls is not None and "conformance_check" in metafunc.fixturenames:
        from delegraph_testkit.conformance import claimed_checks

        try:
            checks = claimed_checks(metafunc.cls)
        except DelegraphError as error:  # a fault of the claims or the installation, not of the kit
            raise pytest.Collector.CollectError(str(error)) from None
        metafunc.parametrize("conformance_check", checks, ids=[check.id for check in checks])


@pytest.fixture(scope="class")
def conformance_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The processes in which the checks of a test class run."""
    from delegraph_testkit.conformance import subject_of
    from delegraph_testkit.session import Session

    folder = request.config.getoption("--conformance-report")
    repros = request.config.getoption("--conformance-repro")
    with Session(subject_of(request.cls), request.cls.timeout, repros=repros) as session:
        yield session
        if folder is not None:
            session.report().write(folder)
