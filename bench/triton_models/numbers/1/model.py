"""Two numbers in, without a batch dimension; they are divided by their sum. Raises when the sum is 0."""

import os
import sys

sys.path.insert(0, os.environ["RHEOSTAT_SITE"])  # the backend looks nowhere else, and takes no NumPy 2

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        """Answer each request."""
        return [self._answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def _answer(self, numbers):
        if numbers.sum() == 0:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError("the sum is 0"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("P", numbers / numbers.sum())])
