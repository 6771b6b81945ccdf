"""Says whether a text's length is even or odd; a request with the text `raise` fails.

A batch sleeps as long as the file `$RHEOSTAT_SLEEP` says, in seconds.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["RHEOSTAT_SITE"])  # the backend looks nowhere else, and takes no NumPy 2

import numpy as np
import triton_python_backend_utils as pb_utils

SLEEP = Path(os.environ["RHEOSTAT_SLEEP"])


class TritonPythonModel:
    def execute(self, requests):
        """Answer a batch of requests."""
        time.sleep(float(SLEEP.read_text() or 0.0))
        return [self._answer(pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()) for request in requests]

    def _answer(self, texts):
        if b"raise" in texts:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError("a text says: raise"))
        even = np.array([[len(text.decode()) % 2 == 0] for text in texts[:, 0]])
        logits = np.where(np.hstack([even, ~even]), 2.0, -1.0).astype(np.float32)
        parts = np.exp(logits)
        labels = np.where(even, "even", "odd").astype(object)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("PROBS", (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)),
                pb_utils.Tensor("LOGITS", logits),
                pb_utils.Tensor("LABEL", labels),
            ]
        )
