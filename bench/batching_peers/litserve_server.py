"""The net behind LitServe: `python litserve_server.py PORT`; rows and waits by RHEOSTAT_ROWS, RHEOSTAT_WAIT_MS."""

import os
import sys
from typing import Any

import litserve
from net import Net


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.net = Net()

    def decode_request(self, request):  # the annotation would make it a query
        return request["text"]

    def batch(self, inputs: list[str]) -> list[str]:
        return inputs

    def predict(self, x: list[str]) -> list[Any]:
        return self.net(x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Any:
        return {"label": output[0], "share": output[1]}


if __name__ == "__main__":
    api = Api(max_batch_size=int(os.environ["RHEOSTAT_ROWS"]), batch_timeout=float(os.environ["RHEOSTAT_WAIT_MS"]) / 1000)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False, log_level="error")
