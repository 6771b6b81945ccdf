"""The net behind MLServer."""

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from net import Net


class Runtime(MLModel):
    async def load(self) -> bool:
        self.net = Net()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a batch, which the server has made of several requests."""
        answers = self.net(StringCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                StringCodec.encode_output("label", [label for label, _ in answers], use_bytes=False),
                ResponseOutput(name="share", shape=[len(answers), 1], datatype="FP32", data=[share for _, share in answers]),
            ],
        )
