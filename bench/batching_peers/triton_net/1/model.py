"""The net behind Triton's Python backend."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, os.environ["RHEOSTAT_SITE"])  # the backend looks nowhere else

import numpy as np
import triton_python_backend_utils as pb_utils
from net import Net


class TritonPythonModel:
    def initialize(self, args):  # noqa: ARG002
        self.net = Net()

    def execute(self, requests):
        """Answer a batch of requests in one call."""
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0, 0].decode() for request in requests]
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("label", np.array([[label]], object)),
                    pb_utils.Tensor("share", np.array([[share]], np.float32)),
                ]
            )
            for label, share in self.net(texts)
        ]
