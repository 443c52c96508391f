"""`.github` and `.pre-commit-config.yaml`: they run tasks that there are, on what the distributions say they support.

GitHub's own grammar is for `make workflows`.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tests.numerics.subjects import PLUGINS
from tools.distributions import DISTRIBUTIONS, ROOT
from tools.environments import SETTINGS
from tools.runner import TASKS, When
from tools.tasks import CHECKS

WORKFLOWS = ROOT / ".github" / "workflows"
TASK = "./.github/workflows/task.yml"

PROJECTS = [tomllib.loads((one.folder / "pyproject.toml").read_text("utf-8"))["project"] for one in DISTRIBUTIONS]


def workflow(name: str) -> Any:
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text("utf-8"))


def rows(job: dict[str, Any]) -> list[dict[str, str]]:
    """The matrix's rows, as GitHub makes them where no row of `include` fits one that is there; one if it has none."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    included = matrix.pop("include", [])
    return [dict(zip(matrix, row, strict=True)) for row in itertools.product(*matrix.values())] + included


def words(name: str) -> list[list[str]]:
    """What each job of a workflow hands to `python -m tools.tasks`."""
    jobs = [job for job in workflow(name)["jobs"].values() if job.get("uses") == TASK]
    return [filled(job["with"]["tasks"], row).split() for job in jobs for row in rows(job)]


def filled(text: str, row: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: row[match[1]], text)


def names(name: str) -> set[str]:
    return {word for job in words(name) for word in job if "=" not in word}


def of_kind(when: When) -> set[str]:
    return {task.name for task in TASKS.values() if task.when is when}


MATRIX = workflow("ci")["jobs"]["test"]["strategy"]["matrix"]
MAY_FAIL = workflow("ci")["jobs"]["test"]["with"]["may-fail"]


@pytest.mark.parametrize("name", [file.stem for file in WORKFLOWS.glob("*.yml") if file.stem != "task"])
def test_workflows_name_tasks_settings_and_inputs_that_there_are(name: str) -> None:
    inputs = workflow("task")[True]["workflow_call"]["inputs"]  # YAML 1.1 reads `on` as true
    for job in workflow(name)["jobs"].values():
        if "uses" in job:
            assert job["uses"] == TASK
            assert set(job["with"]) <= set(inputs)
    for word in itertools.chain(*words(name)):
        assert word in TASKS or word.partition("=")[0] in SETTINGS


def test_the_reusable_workflow_runs_tasks_and_nothing_else() -> None:
    (job,) = workflow("task")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["python -m tools.tasks $TASKS"]


def test_ci_runs_on_github_what_it_runs_here() -> None:
    here = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert names("ci") | {"setup"} == set(here) == of_kind(When.CHANGE)  # every task sets up what it needs


def test_the_night_has_every_task_for_it_and_sweeps_every_plug_in() -> None:
    assert names("nightly") == of_kind(When.NIGHT)
    swept = [word.partition("=")[2] for job in words("nightly") for word in job if word.startswith("NUMERICS=")]
    assert sorted(swept) == sorted(PLUGINS)


def test_the_matrix_has_the_pythons_that_distributions_claim_and_those_that_they_do_not_may_fail() -> None:
    pythons = MATRIX["python"]
    for project in PROJECTS:
        claimed = re.findall(r":: (3\.\d+)", "\n".join(project["classifiers"]))
        assert claimed == [python for python in pythons if f"matrix.python == '{python}'" not in MAY_FAIL]
        allowed = SpecifierSet(project["requires-python"])
        assert all(Version(python) in allowed for python in pythons)
        assert SpecifierSet(f">={pythons[0]}") == allowed


def test_the_matrix_has_the_lowest_torch_that_is_declared_and_the_newest() -> None:
    declared = [
        requirement.specifier
        for project in PROJECTS
        for text in itertools.chain(project["dependencies"], *project.get("optional-dependencies", {}).values())
        if (requirement := Requirement(text)).name == "torch"
    ]
    (newest,) = (row["torch"] for row in MATRIX["include"])
    assert MATRIX["torch"] == [SETTINGS["TORCH"]]
    assert f"matrix.torch == '{newest}'" in MAY_FAIL
    (version,) = (Version(one.version) for one in Requirement(SETTINGS["TORCH"]).specifier)
    assert {Version(one.version) for specifiers in declared for one in specifiers if one.operator == ">="} == {
        Version(f"{version.major}.{version.minor}")
    }
    assert newest == "torch"


def test_a_release_publishes_every_distribution() -> None:
    job = workflow("release")["jobs"]["publish"]
    assert sorted(row["distribution"] for row in rows(job)) == sorted(one.name for one in DISTRIBUTIONS)


def test_commits_are_checked_by_what_check_runs_in_the_same_versions() -> None:
    """By tasks, and so by what `.venv` has, while hooks name nothing else and what judges the sources is pinned."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    checks = [check.__name__ for check in CHECKS]
    assert local["repo"] == "local"
    assert [hook["entry"] for hook in local["hooks"]] == [f"python -m tools.tasks {check}" for check in checks]
    assert not any("additional_dependencies" in hook for hook in local["hooks"])
    pinned = re.findall(r"^([a-z-]+)==", (ROOT / "requirements-dev.txt").read_text("utf-8"), re.MULTILINE)
    assert {*pinned} - {"flatc"} == {"check-jsonschema", "import-linter", "mypy", "ruff", "zizmor"}


def test_every_file_that_github_is_told_of_is_there() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / ".github").rglob("*") if path.is_file()]
    named = set(re.findall(r"[\w./-]+\.(?:py|md|toml)\b", "\n".join(texts)))
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert "CONTRIBUTING.md" in named
