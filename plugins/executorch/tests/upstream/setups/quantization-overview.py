"""What the page speaks of: a model, its inputs, data and ExecuTorch's quantizer for XNNPACK."""

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

model, sample_inputs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU()).eval(), (torch.randn(2, 4),)
quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
calibration_data = [torch.randn(2, 4)]
