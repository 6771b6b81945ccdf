"""Images through a gateway over a socket: whatever is sent, never a 500 and never a silence."""

from __future__ import annotations

import http.client
import io
import json
import random
import resource
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from rheostat.gateway.handle import ServerHandle

CONFIG = """
models:
  shade:
    backend: python
    callable: tests.prepare.arrays:shade
    labels: [dark, light]
    batch: {max_rows: 8, max_wait: 2ms}
    prepare: {image: {size: [4, 4], colour: grey, max_pixels: 200000}, threads: 2}
routes: {default: {policy: shade, deadline: 20s, fallback: {retry: 0}}}
server: {max_body: 200000}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    path = tmp_path_factory.mktemp("images") / "rheostat.yaml"
    path.write_text(CONFIG)
    with ServerHandle(str(path)) as handle:
        yield handle


class Client:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=30)

    def ask(self, body: Any) -> tuple[int, Any]:
        self._connection.request("POST", "/v1/predict", json.dumps(body), {"content-type": "application/json"})
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


def file_of(shade: int, form: str = "PNG", size: int = 40) -> bytes:
    noise = np.random.default_rng(shade).integers(0, 20, (size, size), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray((noise + shade).astype(np.uint8)).save(file, form)
    return file.getvalue()


def plain(size: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (size, size)).save(file, "PNG")
    return file.getvalue()


def row(raw: bytes) -> dict[str, Any]:
    return {"data": {"image": b64encode(raw).decode()}}


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_an_image_of_every_format_is_answered(gateway: ServerHandle, form: str) -> None:
    client = Client(gateway.url)
    for shade, label in ((10, "dark"), (220, "light")):
        status, answer = client.ask(row(file_of(shade, form)))
        assert (status, answer["data"]["final_label"]) == (200, label)


def test_in_a_list_each_row_has_its_own_answer_or_error(gateway: ServerHandle) -> None:
    items = [row(file_of(10)), row(b"nothing"), row(file_of(220)), {"data": "a text"}, row(plain(600))]
    status, answer = Client(gateway.url).ask({"items": items})
    assert status == 200
    said = [each.get("data", {}).get("final_label") or each["error"]["type"] for each in answer["items"]]
    assert said == ["dark", "input_refused", "light", "input_refused", "input_too_large"]


@pytest.mark.parametrize(("image", "status"), [
    ("https://example.org/cat.png", 400), ("file:///etc/passwd", 400), ("/etc/passwd", 400), ("", 400), (7, 400),
    (None, 400), (["iVBORw0KGgo="], 400), ("x" * 300_000, 413),
])  # fmt: skip
def test_what_is_no_image_is_the_clients_error(gateway: ServerHandle, image: Any, status: int) -> None:
    found, answer = Client(gateway.url).ask({"data": {"image": image}})
    assert found == status, answer


def test_hundreds_of_broken_files_are_answered_and_harm_nobody(gateway: ServerHandle) -> None:
    random_ = random.Random(1)
    good = [file_of(30 * number, form) for number, form in enumerate(["PNG", "JPEG", "WEBP", "GIF", "BMP"])]
    bodies = []
    for _ in range(400):
        body = bytearray(random_.choice(good))
        for _ in range(random_.choice((1, 3, 20))):
            at = random_.randrange(len(body))
            body[at : at + random_.choice((0, 1, 4))] = random_.randbytes(random_.choice((0, 1, 4)))
        bodies.append(bytes(body[: random_.choice((len(body), random_.randrange(1, len(body))))]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def some(part: list[bytes]) -> list[tuple[int, Any]]:
        client = Client(gateway.url)
        return [client.ask(row(body)) for body in part]

    with ThreadPoolExecutor(8) as pool:
        found = [each for part in pool.map(some, [bodies[at::8] for at in range(8)]) for each in part]
    assert {status for status, _ in found} == {200, 400} | {status for status, _ in found if status == 413}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    status, answer = Client(gateway.url).ask(row(file_of(10)))
    assert (status, answer["data"]["final_label"]) == (200, "dark")
    shade = gateway.server.router.plan.pool["shade"]
    assert (shade.in_flight, shade.breaker.name, shade.error_rate(0.0)) == (0, "closed", 0.0)
    assert shade.prepared is not None
    assert (shade.prepared.waiting, shade.prepared.preparing, shade.prepared.ahead) == (0, 0, 0)
    assert shade.prepared.refused > 50
