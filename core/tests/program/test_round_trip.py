"""Any sound program reads back as it was written, for any alignments, and any damage to it is refused or harmless."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegraph.program import SerializationConfig, deserialize_program, nbytes, serialize_program, to_text
from delegraph.program.flat_tensor import (
    ExternalData,
    FlatTensor,
    TensorLayout,
    deserialize_flat_tensor,
    serialize_flat_tensor,
)
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    DeviceType,
    Double,
    DoubleList,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FreeCall,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
    TensorShapeDynamism,
    Value,
)

int64s = st.integers(-(2**63), 2**63 - 1)
int8s = st.integers(-128, 127)
texts = st.text(max_size=200)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
blobs = st.binary(max_size=300)
doubles = st.floats(allow_nan=False)
alignments = st.sampled_from([1, 2, 16, 64, 512])
configs = st.builds(
    SerializationConfig,
    segment_alignment=alignments,
    constant_tensor_alignment=alignments,
    delegate_alignment=st.none() | alignments,
    extract_delegate_segments=st.booleans(),
)


@st.composite
def dense_layouts(draw: st.DrawFn) -> tuple[ScalarType, tuple[int, ...], tuple[int, ...]]:
    sizes = draw(st.lists(st.integers(0, 4), max_size=4))
    return draw(st.sampled_from(ScalarType)), tuple(sizes), tuple(draw(st.permutations(range(len(sizes)))))


@st.composite
def tensors(draw: st.DrawFn, constants: list[bytes], mutable_data: list[bytes]) -> Tensor:
    """A tensor in any place; constants and initial data are made for it."""
    scalar_type, sizes, dim_order = draw(dense_layouts())
    fields: dict[str, Any] = {
        "shape_dynamism": draw(st.sampled_from(TensorShapeDynamism)),
        "requires_grad": draw(st.booleans()),
    }
    place = draw(st.sampled_from(["run time", "constant", "planned", "initialised", "external"]))
    if place in ("planned", "initialised"):
        fields["allocation_info"] = AllocationDetails(1, draw(st.integers(0, 2**40)))
    if place == "external":
        fields["extra_tensor_info"] = ExtraTensorInfo(0, draw(names), TensorDataLocation.EXTERNAL)
    elif draw(st.booleans()):
        fields["extra_tensor_info"] = ExtraTensorInfo(
            draw(st.integers(0, 2**64 - 1)),
            draw(st.none() | texts),
            device_type=DeviceType.CUDA,
            device_index=draw(int8s),
        )
    if place in ("constant", "initialised"):
        data = constants if place == "constant" else mutable_data
        fields["data_buffer_idx"] = len(data)
        size = nbytes(scalar_type, sizes)
        data.append((draw(st.binary(min_size=1, max_size=16)) * size)[:size])
    return Tensor(scalar_type, sizes, dim_order, **fields)


@st.composite
def values(draw: st.DrawFn, constants: list[bytes], mutable_data: list[bytes]) -> tuple[Value, ...]:
    scalars = st.one_of(
        st.just(Null()),
        st.builds(Int, int64s),
        st.builds(Bool, st.booleans()),
        st.builds(Double, doubles),
        st.builds(String, texts),
        st.builds(DoubleList, st.lists(doubles, max_size=20).map(tuple)),
        st.builds(BoolList, st.lists(st.booleans(), max_size=200).map(tuple)),
        tensors(constants, mutable_data),
    )
    drawn: list[Value] = [Int(0), Tensor(ScalarType.BYTE, (), ()), *draw(st.lists(scalars, max_size=8))]
    ints = st.sampled_from([i for i, value in enumerate(drawn) if type(value) is Int])
    tensor_indices = st.sampled_from([i for i, value in enumerate(drawn) if type(value) is Tensor])
    drawn.append(IntList(tuple(draw(st.lists(ints, max_size=20)))))
    drawn.append(TensorList(tuple(draw(st.lists(tensor_indices, max_size=20)))))
    drawn.append(OptionalTensorList(tuple(draw(st.lists(st.just(-1) | tensor_indices, max_size=5)))))
    return tuple(drawn)


@st.composite
def chains(draw: st.DrawFn, count: int) -> Chain:
    """Instructions on `count` values, of which 0 is an Int, 1 a Tensor; with two operators and two delegates."""
    indices = st.integers(0, count - 1)
    args = st.lists(indices, max_size=6).map(tuple)
    length = draw(st.integers(0, 6))
    kinds = st.one_of(
        st.builds(KernelCall, st.integers(0, 1), args),
        st.builds(DelegateCall, st.integers(0, 1), args),
        st.builds(MoveCall, indices, indices),
        st.builds(JumpFalseCall, st.just(1), st.integers(0, length)),
        st.builds(FreeCall, st.just(1)),
    )
    frames = st.lists(st.builds(Frame, texts, st.integers(-(2**31), 2**31 - 1), texts, texts), max_size=2).map(tuple)
    stacktrace = st.none() | st.lists(frames, min_size=length, max_size=length).map(tuple)
    instructions = draw(st.lists(kinds, min_size=length, max_size=length))
    return Chain(tuple(instructions), draw(args), draw(args), draw(stacktrace))


@st.composite
def plans(draw: st.DrawFn, name: str, constants: list[bytes], mutable_data: list[bytes]) -> ExecutionPlan:
    drawn = draw(values(constants, mutable_data))
    indices = st.lists(st.integers(0, len(drawn) - 1), max_size=4).map(tuple)
    specs = st.lists(st.builds(CompileSpec, texts, blobs), max_size=2).map(tuple)
    return ExecutionPlan(
        name=name,
        values=drawn,
        inputs=draw(indices),
        outputs=draw(indices),
        chains=tuple(draw(st.lists(chains(len(drawn)), min_size=1, max_size=2))),
        operators=(Operator(draw(names), draw(texts)), Operator("aten::add", "out")),
        delegates=(BackendDelegate(draw(names), 0, draw(specs)), BackendDelegate("B", draw(st.sampled_from([0, 1])))),
        non_const_buffer_sizes=(0, 2**41, *draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=2))),
        container_meta_type=ContainerMetadata(draw(texts), draw(texts)),
        non_const_buffer_device=draw(
            st.none() | st.just((NonConstBufferDevice(2, DeviceType.CUDA, draw(int8s)),)) | st.just(())
        ),
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    constants: list[bytes] = [b""]
    mutable_data: list[bytes] = [b""]
    methods = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    execution_plan = tuple(draw(plans(name, constants, mutable_data)) for name in methods)
    used = {delegate.processed for plan in execution_plan for delegate in plan.delegates}
    distinct = draw(st.lists(blobs, min_size=len(used), max_size=len(used), unique=True))
    return Program(
        execution_plan=execution_plan,
        constants=tuple(constants),
        mutable_data=tuple(mutable_data) if len(mutable_data) > 1 else (),
        delegate_data=tuple(distinct),
        named_data={key: NamedData(data) for key, data in draw(st.dictionaries(names, blobs, max_size=3)).items()},
        version=draw(st.integers(0, 2**32 - 1)),
    )


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), configs)
def test_programs_read_back_as_they_were_written(program: Program, config: SerializationConfig) -> None:
    data = serialize_program(program, config)
    read = deserialize_program(data)
    assert read == program
    assert serialize_program(read, config) == data
    assert to_text(read) == to_text(program)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        names,
        st.tuples(dense_layouts(), st.binary(min_size=1, max_size=8), st.booleans(), alignments),
        max_size=4,
    ),
    alignments,
)
def test_flat_tensors_read_back_as_they_were_written(entries: dict[str, Any], segment_alignment: int) -> None:
    named = {}
    for key, (layout, filling, is_tensor, _) in entries.items():
        data = (filling * nbytes(*layout[:2]))[: nbytes(*layout[:2])] if is_tensor else filling
        named[key] = ExternalData(data, TensorLayout(*layout) if is_tensor else None)
    flat_tensor = FlatTensor(named)
    assert deserialize_flat_tensor(serialize_flat_tensor(flat_tensor, segment_alignment)) == flat_tensor
