"""Rows of any width; says the same of each, so that the model itself costs next to nothing."""

import os
import sys

sys.path.insert(0, os.environ["RHEOSTAT_SITE"])  # the backend looks nowhere else, and takes no NumPy 2

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        """Answer each request."""
        return [self._answer(len(pb_utils.get_input_tensor_by_name(request, "X").as_numpy())) for request in requests]

    def _answer(self, rows):
        return pb_utils.InferenceResponse([pb_utils.Tensor("P", np.tile(np.array([0.25, 0.75], np.float32), (rows, 1)))])
