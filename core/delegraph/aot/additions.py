"""Stages and dialect rules that a user named -> those of the pipeline; an error in one names its plug-in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeGuard, TypeVar

from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.arguments import made_by_name, read_plugins
from delegraph.aot.edge.dialects import DIALECTS, AddedRule, Dialect
from delegraph.aot.stage import Lowering, Stage
from delegraph.errors import LoweringError, foreign_code
from delegraph.interfaces.pipeline import DialectRule, PipelineStage
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.plugin_spec import PluginName, PluginSpec
from delegraph.plugins.registry import PluginRegistry

__all__ = ["added_rules", "added_stages"]

_T = TypeVar("_T")


def added_stages(
    chosen: Iterable[PipelineStage[Lowering] | PluginName], stages: Iterable[Stage], plugins: PluginRegistry
) -> tuple[Stage, ...]:
    """The stages that `LoweringConfig.stages` names, to be put among `stages`.

    Raises `LoweringError` for one whose place or name is none of its own, `PluginError` for what cannot be made.
    """
    known = [stage.name for stage in stages]
    added = []
    for name, title, stage in _made("stages", chosen, _is_stage, plugins):
        place = stage.after or stage.before
        if name in known:
            raise LoweringError(f"{title}: there is a stage of this name already")
        if bool(stage.after) == bool(stage.before) or place not in known:
            raise LoweringError(
                f"{title}: its place is after={stage.after!r}, before={stage.before!r}; it says one of them, a stage"
                f" among {', '.join(known)}{did_you_mean(place, known)}"
            )
        requires: Dialect | None = getattr(stage, "required_dialect", None)
        ensures: Dialect | None = getattr(stage, "ensured_dialect", None)
        run = _run_of(title, stage)
        added.append(Stage(name, run, False, requires, ensures, True, after=stage.after, before=stage.before))
        known.append(name)
    return tuple(added)


def _run_of(title: str, stage: PipelineStage[Lowering]) -> Callable[[Lowering, Sequence[str]], Lowering]:
    def run(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
        done = _guarded(title, lambda: stage.run(lowering))
        if not isinstance(done, Lowering):
            raise LoweringError(f"{title} returned {type(done).__name__}; a stage returns a Lowering")
        return done

    return run


def added_rules(chosen: Iterable[DialectRule | PluginName], plugins: PluginRegistry) -> tuple[AddedRule, ...]:
    """The rules that `EdgeCompileConfig.dialect_rules` names.

    Raises `LoweringError` for one of no dialect, `PluginError` for what cannot be made.
    """
    known = {dialect.name: dialect for dialect in DIALECTS}
    added = []
    for _, title, rule in _made("dialect_rules", chosen, _is_rule, plugins):
        if rule.dialect not in known:
            raise LoweringError(
                f"{title}: there is no dialect {rule.dialect!r}; the dialects are {', '.join(known)}"
                f"{did_you_mean(rule.dialect, known)}"
            )
        added.append(AddedRule(title, known[rule.dialect], _check_of(title, rule)))
    return tuple(added)


def _check_of(title: str, rule: DialectRule) -> Callable[[Node, Collection[OpOverload]], str | None]:
    def check(node: Node, kept: Collection[OpOverload]) -> str | None:
        violation = _guarded(f"{title}, at {node.name},", lambda: rule.check(node, kept))
        if violation is not None and not isinstance(violation, str):
            raise LoweringError(f"{title} returned {violation!r:.60}; a rule returns None, or what is wrong")
        return violation

    return check


def _made(
    group: str, chosen: Iterable[PluginName | _T], fits: Callable[[object], TypeGuard[_T]], plugins: PluginRegistry
) -> Iterator[tuple[str, str, _T]]:
    """Name, title for messages and object of each."""
    specs = read_plugins(group, chosen)
    made = made_by_name(group, specs, group, fits, plugins)
    for (name, each), named in zip(made.items(), specs, strict=True):
        of = f" of {plugins.find(group, named.name).distribution}" if isinstance(named, PluginSpec) else ""
        yield name, f"{group.replace('_', ' ').removesuffix('s')} {name}{of}", each


def _is_stage(value: object) -> TypeGuard[PipelineStage[Lowering]]:
    return isinstance(value, PipelineStage)


def _is_rule(value: object) -> TypeGuard[DialectRule]:
    return isinstance(value, DialectRule)


def _guarded(title: str, call: Callable[[], _T]) -> _T:
    with foreign_code(f"{title} failed:"):
        return call()
