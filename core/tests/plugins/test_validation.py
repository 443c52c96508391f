"""Plug-ins that do not fit their group are refused by name when they are loaded, both signatures shown."""

from __future__ import annotations

from typing import Any

import pytest

from delegraph.errors import PluginLoadError
from delegraph.interfaces import BackendDetails, BackendInterface
from delegraph.plugins import PluginRegistry, hookimpl
from delegraph.plugins.hookspecs import GROUPS, Form, PluginGroup, group_named
from delegraph.plugins.validation import violations

BACKENDS, LOWERINGS = group_named("backends"), group_named("lowerings")
PARTITIONERS, KERNELS = group_named("partitioners"), group_named("kernels")


class Sound(BackendInterface):
    """Fits, and has a helper of its own."""

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    def execute(self, context: Any, handle: Any, args: Any) -> None: ...

    def init_device(self) -> None: ...


def variant(**members: Any) -> BackendInterface:
    """A sound backend with other members."""
    return type("Variant", (Sound,), {"__module__": __name__, **members})()  # type: ignore[no-any-return]


def test_a_sound_one_has_no_violations() -> None:
    assert violations(BACKENDS, Sound()) == []


def test_one_that_inherits_nothing_needs_the_hooks_without_a_default() -> None:
    class Bare:
        def execute(self, context: Any, handle: Any, args: Any) -> None: ...

    faults = violations(BACKENDS, Bare())
    base = "delegraph.interfaces.BackendInterface"
    assert faults == [f"it has no init(context, processed, compile_specs); derive from {base} or write it"]


def test_an_abstract_hook_that_is_missing() -> None:
    class NoExecute(BackendInterface):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    with pytest.raises(PluginLoadError, match=r"it has no execute\(context, handle, args\); derive from") as raised:
        PluginRegistry().register("backends", "x", NoExecute)
    assert "its authors change it to fit delegraph.interfaces.BackendInterface" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("distroy", "destroy"), ("set_options", "set_option"), ("is_availible", "is_available"), ("chek", "check")],
)
def test_a_misspelt_hook(name: str, meant: str) -> None:
    plugin = variant(**{name: lambda self, x: None})
    assert violations(BACKENDS, plugin) == [
        f"it has {name}(), which is not a hook of delegraph.backends; did you mean {meant}()?"
    ]


def test_a_misspelt_hook_that_was_also_required() -> None:
    class Typo(BackendInterface):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

        def excute(self, context: Any, handle: Any, args: Any) -> None: ...

    with pytest.raises(
        PluginLoadError,
        match=r"it has excute\(\), which is not a hook .* did you mean execute\(\)\?; it has no execute",
    ):
        PluginRegistry().register("backends", "x", Typo)


def test_a_helper_beside_the_hook_it_resembles_is_fine() -> None:
    plugin = variant(destroy=lambda self, handle: None, destroys=lambda self: None, _chek=lambda self: None)
    assert violations(BACKENDS, plugin) == []


def test_a_marked_function_that_is_no_hook() -> None:
    (violation,) = violations(BACKENDS, variant(warm_up=hookimpl(lambda self: None)))
    assert violation.startswith(
        "it marks warm_up() with @hookimpl, which is not a hook of delegraph.backends: is_available"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda self, handle, args: None,
        lambda self, handle, context, args: None,
        lambda self, context, handle, args, stream: None,
        lambda self, args, context, handle: None,
        lambda self, context, args, handle: None,
        lambda self, context, *, handle, args: None,
        lambda self, context, handle, args, *, stream: None,
        lambda self: None,
    ],
)
def test_a_signature_that_does_not_fit(wrong: Any) -> None:
    (violation,) = violations(BACKENDS, variant(execute=wrong))
    assert violation.startswith("its signature is execute(")
    assert violation.endswith("; it has to be execute(context, handle, args)")


@pytest.mark.parametrize(
    "right",
    [
        lambda self, context, handle, args: None,
        lambda self, context, handle, args, stream=None: None,
        lambda self, context, handle, args, **options: None,
        lambda self, context, *rest: None,
        lambda self, *args: None,
        lambda self, context, handle, args, /: None,
        lambda self, _context, handle, arguments: None,
    ],
)
def test_a_signature_that_fits(right: Any) -> None:
    assert violations(BACKENDS, variant(execute=right)) == []


def test_annotations_and_defaults_are_shown_without_noise() -> None:
    def execute(self: Any, handle: list[int], n: int = 3) -> None: ...

    assert violations(BACKENDS, variant(execute=execute)) == [
        "its signature is execute(handle, n=3); it has to be execute(context, handle, args)"
    ]


def test_a_builtin_without_a_signature_cannot_be_judged() -> None:
    assert violations(BACKENDS, variant(get_option=staticmethod(min))) == []


# ---- the other forms -----------------------------------------------------------------------------------


def test_a_lowering_is_a_class_with_static_hooks() -> None:
    class Lowering:
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> Any: ...

        @classmethod
        def preprocess_multimethod(cls, edge_programs: Any, compile_specs: Any) -> Any: ...

    class Forgotten(Lowering):
        def preprocess(self, edge_program: Any, compile_specs: Any) -> Any: ...  # type: ignore[override]

    assert violations(LOWERINGS, Lowering) == []
    assert violations(LOWERINGS, Lowering()) == ["it is a Lowering; delegraph.lowerings takes a class, used as it is"]
    assert violations(LOWERINGS, Forgotten) == [
        "its signature is preprocess(self, edge_program, compile_specs);"
        " it has to be preprocess(edge_program, compile_specs)"
    ]


def test_a_factory_is_called_with_options() -> None:
    assert violations(PARTITIONERS, lambda options: None) == []
    assert violations(PARTITIONERS, type("P", (), {"__init__": lambda self, options=None: None})) == []
    assert violations(PARTITIONERS, lambda a, b: None) == ["its signature is (a, b); it has to be (options)"]
    assert violations(PARTITIONERS, lambda *, optimize=1: None) == []
    assert violations(PARTITIONERS, lambda: None) == []
    assert violations(PARTITIONERS, 3) == [
        "it is a int; delegraph.partitioners takes a callable that makes something of options: (options)"
    ]


def test_what_a_partitioner_factory_makes_must_be_one() -> None:
    registry = PluginRegistry()
    registry.register("partitioners", "nothing", lambda options: None)
    with pytest.raises(PluginLoadError) as caught:
        registry.create("partitioners", "nothing")
    assert (
        "its factory made None: it has no partition(exported_program); derive from delegraph.interfaces.Partitioner"
        in str(caught.value)
    )


def test_a_preprocess_with_other_parameter_names_is_fine() -> None:
    """ExecuTorch's delegates do not agree on them."""

    class Lowering:
        @staticmethod
        def preprocess(program: Any, module_compile_spec: Any) -> Any: ...

        @staticmethod
        def preprocess_multimethod(edge_programs: Any, compile_specs: Any) -> Any: ...

    assert violations(LOWERINGS, Lowering) == []


def test_an_instance_where_a_class_was_forgotten() -> None:
    assert violations(KERNELS, lambda: None)[0].startswith(
        "it has no lookup(op, key); derive from delegraph.interfaces.KernelLibrary"
    )


def test_every_hook_is_documented_by_its_interface() -> None:
    for group in GROUPS.values():
        assert group.interface.__doc__
        assert group.hook_names
        for hook in group.hook_names:
            assert getattr(group.interface, hook).__doc__, (group.name, hook)


def test_hooks_and_attributes_are_read_off_the_interfaces() -> None:
    assert KERNELS.hook_names == ("lookup", "operator_names")
    assert KERNELS.attributes == {"name": "", "on_request": False}
    assert BACKENDS.hook_names == (
        *(
            "is_available",
            "check",
            "init",
            "fork",
            "execute",
            "bind",
            "submits",
            "submit",
            "bind_submit",
            "device_allocator",
            "host_memory",
            "num_outputs",
            "cancel",
            "engine_files",
            "devices",
            "describe",
            "destroy",
            "set_option",
            "get_option",
        ),
    )
    assert BACKENDS.parameters("init") == ("context", "processed", "compile_specs")
    assert LOWERINGS.parameters("preprocess") == ("edge_program", "compile_specs")
    assert LOWERINGS.parameters("preprocess_multimethod") == ("edge_programs", "compile_specs")
    assert LOWERINGS.attributes == {"blob_version": 1, "shares_state": False, "takes_external_weights": False}
    assert PARTITIONERS.hook_names == ("__call__",)
    assert PARTITIONERS.product is not None
    assert PARTITIONERS.product.hook_names == (
        "partition",
        "ops_to_not_decompose",
        "transform_for_pre_decomposition",
    )


def test_a_parameter_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interface is the only definition: what plug-ins are held to follows it."""

    class Wider(BackendInterface):
        def destroy(self, handle: Any, reason: Any) -> None:  # type: ignore[override]
            """Release."""

    group = PluginGroup("delegraph.backends", "backend", "Wider", Form.INSTANCE, torch_free=True)
    monkeypatch.setattr("delegraph.interfaces.backend.Wider", Wider, raising=False)
    assert violations(group, variant()) == ["its signature is destroy(handle); it has to be destroy(handle, reason)"]


# ---- attributes ----------------------------------------------------------------------------------------


class BareLibrary:
    """Has the hooks of a kernel library, and nothing else."""

    def lookup(self, op: Any, key: Any) -> Any:
        return None

    def operator_names(self) -> Any:
        return frozenset()


def test_attributes_that_a_plugin_lacks_have_the_interfaces_values() -> None:
    registry = PluginRegistry()
    registry.register("kernels", "bare", BareLibrary)
    library = registry.load("kernels", "bare")
    assert (library.name, library.on_request) == ("bare", False)


def test_an_attribute_of_another_type() -> None:
    library = BareLibrary()
    library.on_request = "no"  # type: ignore[attr-defined]
    assert violations(KERNELS, library) == ["its on_request is 'no'; it has to be True or False"]

    class Lowering(BackendDetails):
        blob_version = "1.0"  # type: ignore[assignment]

        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> Any: ...

    assert violations(LOWERINGS, Lowering) == ["its blob_version is '1.0'; it has to be an int"]


def test_an_attribute_that_cannot_be_given() -> None:
    class Slotted:
        __slots__ = ()
        lookup = BareLibrary.lookup
        operator_names = BareLibrary.operator_names

    with pytest.raises(PluginLoadError, match="it has no name and cannot be given one"):
        PluginRegistry().register("kernels", "x", Slotted())


def test_a_missing_hook_is_told_alone() -> None:
    """The class is judged as its object would be: no complaint about hooks that are there."""

    class NoExecute(BackendInterface):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    assert violations(BACKENDS, NoExecute) == [
        "it has no execute(context, handle, args); derive from delegraph.interfaces.BackendInterface or write it"
    ]
