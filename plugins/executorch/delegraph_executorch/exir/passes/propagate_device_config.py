"""Where device copies are left out: what `PropagateDevicePass` is configured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PropagateDeviceConfig"]


@dataclass
class PropagateDeviceConfig:
    """For all methods, or by method name.

    `skip_h2d_for_method_inputs`: a method's inputs that go to a delegate come on its device.
    `skip_d2h_for_method_outputs`: what a delegate gives and the method returns stays there.
    """

    skip_h2d_for_method_inputs: bool | Mapping[str, bool] = False
    skip_d2h_for_method_outputs: bool | Mapping[str, bool] = False
