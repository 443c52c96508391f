"""Execution providers of onnxruntime, a row each: what to install, how it is registered, what was run of it.

A provider comes as a plug-in, a package that onnxruntime loads a library from, or built into an onnxruntime of its own,
which then takes the place of the usual one. Targets and options stand in tables of their own, `aot/targets.py` and
`options.py`, which a device need not import.
"""

from __future__ import annotations

from typing import Final

from delegraph.lazy_dataclass import dataclass, replace

__all__ = [
    "MIGRAPHX",
    "MLX",
    "OPENVINO_EP",
    "PROVIDER",
    "PROVIDERS",
    "QNN",
    "TENSORRT_RTX",
    "WEBGPU",
    "WINDOWSML",
    "Provider",
]


@dataclass(frozen=True, slots=True)
class Provider:
    """A row.

    name: what users write in `backends=[…]`; backend_id: of the delegates that it runs; drives: in words.
    ep_name: onnxruntime's name of it, under which it is registered, and which its compiled binaries say they are of.
    kinds: the devices that it drives, as onnxruntime calls them, the preferred one first; vendors: the makers of these,
        by their numbers in PCI (pcisig.com/membership/member-companies), or "Apple"; none: any maker's.
    package: the plug-in to import ("": there is none), `library` the function in it that gives the path of its library;
    distribution: what pip installs for it.
    built_into: the distribution of onnxruntime that has the provider inside ("": none has).
    compiles: whether a delegate is compiled at lowering, to a binary (`EPContext`); where not, it is an ONNX graph that
        the provider compiles at load.
    device_library: the function of the package that gives the library for its device, where the provider asks for one.
    memory: the name that `IOBinding` has for its memory, in which states may stay; "": it has no such memory, or nobody
        has tried.
    plans_memory: whether onnxruntime may plan the memory of a session (`SessionOptions.enable_mem_pattern`).
    run_on: on which machines it was run; "": its documentation was read, no more.
    promises: what its documentation says it needs and does.
    """

    name: str
    backend_id: str
    drives: str
    ep_name: str
    kinds: tuple[str, ...]
    vendors: tuple[str, ...] = ()
    package: str = ""
    library: str = "get_library_path"
    distribution: str = ""
    built_into: str = ""
    compiles: bool = False
    device_library: str = ""
    memory: str = ""
    plans_memory: bool = True
    run_on: str = ""
    promises: str = ""

    @property
    def install(self) -> str:
        """The command that brings it: the plug-in, where it is built in, too."""
        if self.distribution:
            return f"pip install '{self.distribution}'"
        if self.built_into:
            return f"pip uninstall --yes onnxruntime, then pip install {self.built_into}, which takes its place"
        return "install the package that the option `package` names"

    @property
    def caveat(self) -> str:
        """The warning that belongs to a row that was only read; "" for one that was run."""
        return "" if self.run_on else f"nobody has run {self.name} yet: its row was made by reading {self._source}"

    @property
    def _source(self) -> str:
        return f"the documentation of {self.distribution or self.built_into or self.package or 'other providers'}"

    def of_package(self, package: str) -> Provider:
        """The row for the plug-in `package`, of which no more is known."""
        return replace(self, package=package, distribution=package.replace("_", "-"))


QNN: Final = Provider(
    "qnn",
    "QnnProvider",
    "Qualcomm's NPU (Hexagon)",
    "QNNExecutionProvider",
    ("NPU",),
    ("17cb", "5143"),
    package="onnxruntime_qnn",
    distribution="delegraph-providers[qnn]",
    compiles=True,
    device_library="get_qnn_htp_path",
    run_on="x86-64 Linux, where its library emulates a Hexagon processor",
    promises="onnxruntime-qnn 2.7: NPU and GPU of Snapdragon chips; on x86-64 it compiles for every Hexagon processor",
)
"""onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html."""

WEBGPU: Final = Provider(
    "webgpu",
    "WebGpuProvider",
    "any GPU, through WebGPU (Dawn on Vulkan, Direct3D 12, Metal)",
    "WebGpuExecutionProvider",
    ("GPU",),
    package="onnxruntime_ep_webgpu",
    distribution="delegraph-providers[webgpu]",
    built_into="onnxruntime-webgpu",
    memory="webgpu",
    run_on="SwiftShader, a Vulkan on the CPU, x86-64 Linux, with onnxruntime-webgpu 1.27.0; no GPU yet",
    promises="onnxruntime-ep-webgpu 0.4: Windows and Linux on x64 and arm64, macOS on arm64; on Linux, libvulkan.so.1",
)
"""onnxruntime.ai/docs/execution-providers/WebGPU-ExecutionProvider.html."""

TENSORRT_RTX: Final = Provider(
    "tensorrt_rtx",
    "TensorRtRtxProvider",
    "NVIDIA's RTX GPUs, through TensorRT for RTX",
    "NvTensorRTRTXExecutionProvider",
    ("GPU",),
    ("10de",),
    package="onnxruntime_ep_nv_tensorrt_rtx",
    distribution="onnxruntime-ep-nv-tensorrt-rtx",
    promises="onnxruntime-ep-nv-tensorrt-rtx 0.5: RTX 30xx and later, Windows and Linux, a driver with CUDA 13 (or 12,"
    " with the distribution that ends in -cu12)",
)
"""github.com/NVIDIA/TensorRT-RTX-EP-ABI."""

MLX: Final = Provider(
    "mlx",
    "MlxProvider",
    "Apple silicon's GPU, through MLX",
    "MLXExecutionProvider",
    ("GPU",),
    ("Apple",),
    package="onnxruntime_ep_mlx",
    library="library_path",
    distribution="onnxruntime-ep-mlx",
    promises="onnxruntime-ep-mlx 0.31: macOS 14 and later on Apple silicon, onnxruntime 1.31",
)
"""github.com/onnxruntime/onnxruntime-ep-mlx."""

MIGRAPHX: Final = Provider(
    "migraphx",
    "MiGraphXProvider",
    "AMD's GPUs, through MIGraphX",
    "MIGraphXExecutionProvider",
    ("GPU",),
    ("1002",),
    built_into="onnxruntime-migraphx",
    promises="onnxruntime-migraphx 1.27: Linux with ROCm and MIGraphX installed",
)
"""onnxruntime.ai/docs/execution-providers/MIGraphX-ExecutionProvider.html."""

WINDOWSML: Final = Provider(
    "windowsml",
    "WindowsMlProvider",
    "any GPU of Windows, through DirectML",
    "DmlExecutionProvider",
    ("GPU",),
    built_into="onnxruntime-windowsml",
    plans_memory=False,
    promises="onnxruntime-windowsml 1.30: Windows, a GPU with Direct3D 12; one thread at a time in a session",
)
"""onnxruntime.ai/docs/execution-providers/DirectML-ExecutionProvider.html."""

OPENVINO_EP: Final = Provider(
    "openvino_ep",
    "OpenVinoProvider",
    "Intel's CPU, GPU and NPU, through OpenVINO",
    "OpenVINOExecutionProvider",
    ("NPU", "GPU", "CPU"),
    ("8086",),
    package="onnxruntime_ep_openvino",
    distribution="onnxruntime-ep-openvino",
    promises="onnxruntime-ep-openvino 1.8: Windows and Linux on x64, OpenVINO inside; delegraph-openvino drives the"
    " same devices without onnxruntime",
)
"""Registers on x86-64 Linux, and offers no device there unless Intel made one."""

PROVIDER: Final = Provider("provider", "AnyProvider", "the device of a provider that has no row", "", ())
"""For a plug-in that nobody here knows: its package is an option."""

PROVIDERS: Final = (QNN, WEBGPU, TENSORRT_RTX, MLX, MIGRAPHX, WINDOWSML, OPENVINO_EP)
"""Those that have a row."""
