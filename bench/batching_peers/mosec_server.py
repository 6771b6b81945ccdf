"""The net behind Mosec: `python mosec_server.py --address ADDRESS --port PORT`; rows and wait by the environment."""

import os
from typing import Any

from mosec import Server, Worker
from net import Net


class Model(Worker):
    def __init__(self) -> None:
        self.net = Net()

    def forward(self, data: list[Any]) -> list[Any]:
        """Answer a batch of requests."""
        return [{"label": label, "share": share} for label, share in self.net([each["text"] for each in data])]


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Model,
        num=1,
        max_batch_size=int(os.environ["RHEOSTAT_ROWS"]),
        max_wait_time=int(float(os.environ["RHEOSTAT_WAIT_MS"])),
    )
    server.run()
