"""Reference outputs and a run's -> how far apart they are: SNR in dB, mean squared error, cosine similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

__all__ = [
    "calculate_cosine_similarity",
    "calculate_mse",
    "calculate_snr",
    "compare_results",
    "plot_metric",
    "signal_to_noise",
    "squared_error",
]

Metric = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
DIGITS: Final = 2


def squared_error(reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The mean of the squared differences."""
    return (reference - value).square().mean()


def signal_to_noise(reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Ten times the logarithm of the signal's power over the difference's, in dB: inf where nothing differs."""
    return 10 * torch.log10(reference.square().mean() / squared_error(reference, value))


def calculate_mse(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The mean squared error of each output; None for what is no tensor."""
    return _each(squared_error, ref_values, values)


def calculate_snr(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The signal-to-noise ratio of each output, in dB; None for what is no tensor."""
    return _each(signal_to_noise, ref_values, values)


def calculate_cosine_similarity(ref_values: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    """The cosine of the angle between each two outputs; None for what is no tensor. Raises `ValueError` for shapes."""
    return _each(_cosine, ref_values, values)


def _cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.shape != b.shape:
        raise ValueError("Input tensors must have the same shape")
    cosine: torch.Tensor = (a * b).sum() / (a.norm() * b.norm())
    return cosine


def _each(metric: Metric, references: Sequence[Any], values: Sequence[Any]) -> list[float | None]:
    return [
        round(metric(one.to(torch.float32), other.to(torch.float32)).item(), DIGITS)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        else None
        for one, other in zip(references, values, strict=False)
    ]


_METRICS: Final = {"snr": calculate_snr, "mse": calculate_mse, "cosine_similarity": calculate_cosine_similarity}


def compare_results(
    reference_output: Sequence[Any], run_output: Sequence[Any], metrics: Sequence[str] | None = None, plot: bool = False
) -> dict[str, list[float | None]]:
    """Each metric (None: all) of each output; printed, or with `plot` drawn by matplotlib.

    Raises `ValueError` for a metric that there is not.
    """
    if unknown := set(metrics or ()) - set(_METRICS):
        raise ValueError(f"no metric {', '.join(sorted(unknown))}; there are {', '.join(_METRICS)}")
    results = {
        name: metric(reference_output, run_output)
        for name, metric in _METRICS.items()
        if metrics is None or name in metrics
    }
    for name, values in results.items():
        if plot:
            plot_metric(values, name)
        else:
            rows = "".join(
                f"{index:<5}{'none' if value is None else f'{value:.5f}':>8}\n" for index, value in enumerate(values)
            )
            print(f"{name}\n{'-' * 20}\n{rows}\n")
    return results


def plot_metric(result: Sequence[float | None], metric_name: str) -> None:
    """Draw a bar for each output, into `<metric>_output_plot.png` as well. Raises `ImportError` without matplotlib."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 6))
    bars = axes.bar(range(len(result)), [value or 0.0 for value in result], width=0.5)
    axes.bar_label(bars)
    axes.set(xlabel="Output value index", ylabel=metric_name, title=f"Metric {metric_name}")
    axes.grid(axis="y")
    figure.savefig(f"{metric_name}_output_plot.png")
    plt.show()
