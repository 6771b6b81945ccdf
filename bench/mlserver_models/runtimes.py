"""The models of `bench/triton_models` behind MLServer. `texts` sleeps as long as the file `$RHEOSTAT_SLEEP` says."""

import asyncio
import os
from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse


class Texts(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Say whether each text's length is even or odd."""
        await asyncio.sleep(float(Path(os.environ["RHEOSTAT_SLEEP"]).read_text() or 0.0))
        texts = StringCodec.decode_input(payload.inputs[0])
        even = np.array([[len(text) % 2 == 0] for text in texts])
        logits = np.where(np.hstack([even, ~even]), 2.0, -1.0).astype(np.float32)
        parts = np.exp(logits)
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("PROBS", (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)),
                NumpyCodec.encode_output("LOGITS", logits),
                StringCodec.encode_output("LABEL", list(np.where(even[:, 0], "even", "odd"))),
            ],
        )


class Numbers(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Divide numbers by their sum, row by row; fails when one is 0."""
        numbers = NumpyCodec.decode_input(payload.inputs[0])
        sums = numbers.sum(axis=1, keepdims=True)
        if not sums.all():
            raise InferenceError("the sum is 0")
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("P", numbers / sums)])
