"""Images and tokens through a whole router: which configs can be, and what a client's bad image does."""

from __future__ import annotations

import asyncio
import io
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from rheostat.config import load_config
from rheostat.engine.engine import Served
from rheostat.errors import ConfigError, http_status
from rheostat.router import Router
from tests.prepare import arrays

LABELS = "labels: [dark, light]"
SHADE = f"backend: python, callable: 'tests.prepare.arrays:shade', {LABELS}"
IMAGE = "prepare: {image: {size: [4, 4], colour: grey}}"


def png(shade: int, size: int = 6) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(np.full((size, size), shade, np.uint8)).save(file, "PNG")
    return {"image": b64encode(file.getvalue()).decode()}


def served(
    folder: Path, models: str, scene: Callable[[Router], Awaitable[None]], route: str = "{policy: m}", more: str = ""
) -> None:
    (folder / "rheostat.yaml").write_text(f"models: {{{models}}}\nroutes: {{default: {route}}}\n{more}\n")

    async def main() -> None:
        router = await Router.open(str(folder / "rheostat.yaml"))
        try:
            await scene(router)
        finally:
            await router.aclose()

    asyncio.run(main())


async def answers(router: Router, rows: list[Any]) -> list[Served]:
    return list(await asyncio.gather(*[router.serve(router.request(row)) for row in rows]))


@pytest.mark.parametrize("batch", ["", ", batch: {max_rows: 4}", ", batch: {max_rows: 4}, resident: false"])
@pytest.mark.parametrize("threads", ["", ", threads: 0"])
def test_everybody_gets_his_images_answer_and_bad_ones_fail_alone(tmp_path: Path, batch: str, threads: str) -> None:
    async def scene(router: Router) -> None:
        rows = [png(shade) for shade in range(0, 250, 10)]
        rows[7] = {"image": "iVBORw0KGgo="}
        rows[11] = png(0, size=100)
        found = await answers(router, rows)
        for number, each in enumerate(found):
            if number in (7, 11):
                assert each.error is not None
                assert (http_status(each.error), each.record.status) == ((400, 413)[number == 11], "rejected")
            else:
                assert each.error is None
                assert each.record.label == ("light" if number * 10 / 255 > 0.5 else "dark")
        model = router.plan.pool["m"]
        status = model.status(router.clock.monotonic())
        assert (model.in_flight, status["breaker"], status["error_rate"]) == (0, "closed", 0.0)
        assert (status["prepare"] is not None) == (bool(batch) and not threads)

    image = f"prepare: {{image: {{size: [4, 4], colour: grey, max_pixels: 900}}{threads}}}"
    served(tmp_path, f"m: {{{SHADE}, {image}{batch}}}", scene)


def test_records_keep_kind_bytes_and_hash_of_an_image_and_never_the_image(tmp_path: Path) -> None:
    async def scene(router: Router) -> None:
        row = png(10)
        raw = {**row, "note": "from the till"}
        found = await answers(router, [row, raw, png(20)])
        inputs = [each.record.input for each in found]
        for summary in inputs:
            assert summary is not None
            assert (summary.kind, summary.length) == ("image/png", len(arrays.decoded(row["image"])))
        assert len({summary.hash for summary in inputs if summary is not None}) == 3
        assert row["image"] not in msgspec.json.encode([each.record for each in found]).decode()
        assert inputs[1] is not None
        assert inputs[1].text == '{"note":"from the till"}'

    served(tmp_path, f"m: {{{SHADE}, {IMAGE}}}", scene, more="records: {jsonl: r.jsonl, input: raw}")
    assert png(10)["image"] not in (tmp_path / "r.jsonl").read_text()


def test_library_users_may_give_bytes(tmp_path: Path) -> None:
    async def scene(router: Router) -> None:
        (found,) = await answers(router, [{"image": arrays.decoded(png(200)["image"])}])
        assert found.record.label == "light"
        assert found.record.input is not None
        assert found.record.input.kind == "image/png"

    served(tmp_path, f"m: {{{SHADE}, {IMAGE}}}", scene)


def test_too_large_for_one_model_is_answered_by_another_that_takes_it(tmp_path: Path) -> None:
    async def scene(router: Router) -> None:
        (found,) = await answers(router, [png(200, size=50)])
        assert (found.record.label, found.record.selected_model) == ("light", "big")

    tight = "prepare: {image: {size: [4, 4], colour: grey, max_pixels: 100}}"
    models = f"m: {{{SHADE}, {tight}, peers: [big]}}, big: {{{SHADE}, {IMAGE}}}"
    served(tmp_path, models, scene, "{policy: m}")


@pytest.mark.parametrize(("model", "told"), [
    (f"{SHADE}, prepare: {{}}", "prepare: `image` or `tokens` says what is prepared"),
    (f"{SHADE}, prepare: {{tokens: true, image: {{size: [4, 4]}}}}", "set exactly one of them"),
    (f"{SHADE}, prepare: {{image: {{size: [4, 4]}}, threads: 1}}", "prepare.threads: rows are prepared while the batch"),
    (f"{SHADE}, batch: {{}}, prepare: {{tokens: true}}", "prepare.tokens: this model cuts no texts into tokens"),
    (f"{SHADE}, batch: {{}}, prepare: {{tokens: true, threads: 0}}", "prepare.threads: `threads` 0 is how"),
    (f"{SHADE}, prepare: {{image: {{size: [4]}}}}", "prepare.image.size: expected a list of 2 items"),
    (f"{SHADE}, prepare: {{image: {{size: [4, 4], color: grey}}}}", "did you mean `colour`"),
    (f"{SHADE}, prepare: {{image: {{size: [4, 4], max_pixels: 900000000}}}}", "prepare.image.max_pixels: must be"),
    (f"backend: openai, base_url: 'http://127.0.0.1:1', model: m, {LABELS}, {IMAGE}",
     "prepare.image: this backend takes no arrays"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_the_field_and_what_to_do(tmp_path: Path, model: str, told: str) -> None:
    async def scene(_: Router) -> None:
        raise AssertionError("it opened")

    with pytest.raises(ConfigError) as error:
        served(tmp_path, f"m: {{{model}}}", scene)
    assert told in str(error.value)


def test_a_model_that_answers_nonsense_about_an_image_takes_no_traffic(tmp_path: Path) -> None:
    async def scene(_: Router) -> None:
        raise AssertionError("it opened")

    with pytest.raises(ConfigError, match="breaks the contract"):
        served(tmp_path, f"m: {{backend: python, callable: 'tests.prepare.arrays:nonsense', {LABELS}, {IMAGE}}}", scene)


@pytest.mark.parametrize("batch", ["", ", batch: {max_rows: 8}"])
def test_an_onnx_net_over_pixels_says_the_same_however_its_rows_are_prepared(tmp_path: Path, batch: str) -> None:
    arrays.write_net(tmp_path / "net.onnx")
    expected = arrays.net_answers([shade / 255 for shade in range(0, 250, 25)])

    async def scene(router: Router) -> None:
        found = await answers(router, [png(shade) for shade in range(0, 250, 25)])
        assert [each.record.confidence for each in found] == pytest.approx(expected, abs=1e-5)

    image = "prepare: {image: {size: [6, 6], colour: grey}}"
    served(tmp_path, f"m: {{backend: onnx, path: net.onnx, output: logits, {LABELS}, {image}{batch}}}", scene)


def test_texts_cut_beside_the_model_get_the_same_answers(tmp_path: Path) -> None:
    arrays.write_text_net(tmp_path)
    texts = ["good good bad", "bad", "", "good", "unknown words only", "good bad good bad good"] * 5
    model = f"backend: onnx, path: text.onnx, tokenizer: tokenizer.json, output: logits, {LABELS}, batch: {{max_rows: 4}}"
    said: list[list[Any]] = []

    async def scene(router: Router) -> None:
        found = await answers(router, texts)
        said.append([(each.record.label, pytest.approx(each.record.confidence, abs=1e-6)) for each in found])
        bad = await router.serve(router.request({"no": "text"}))
        assert bad.record.status == "rejected"

    served(tmp_path, f"m: {{{model}}}", scene)
    served(tmp_path, f"m: {{{model}, prepare: {{tokens: true, threads: 2}}}}", scene)
    assert said[0] == said[1]
    with pytest.raises(ConfigError, match=r"prepare.tokens: `tokens` keeps a model in memory"):
        served(tmp_path, f"m: {{{model}, resident: false, prepare: {{tokens: true}}}}", scene)


def test_the_config_says_where_a_mistake_is(tmp_path: Path) -> None:
    (tmp_path / "rheostat.yaml").write_text(
        "models:\n  m:\n    backend: onnx\n    path: m.onnx\n    prepare:\n      image:\n        size: [0, 0]\n"
        "routes: {default: {policy: m}}\n"
    )
    (tmp_path / "m.onnx").touch()
    with pytest.raises(ConfigError, match=r"line 7: models.m.prepare.image.size: `size` is \[width, height\]"):
        load_config(str(tmp_path / "rheostat.yaml"))


@pytest.mark.parametrize("batch", ["", ", batch: {max_rows: 4}"])
def test_a_torch_module_gets_the_arrays_of_images(tmp_path: Path, batch: str) -> None:
    pytest.importorskip("torch")
    arrays.write_torch_weights(tmp_path / "w.safetensors")
    model = f"backend: torch, module: 'tests.prepare.arrays:torch_net', weights: w.safetensors, {LABELS}, {IMAGE}{batch}"

    async def scene(router: Router) -> None:
        found = await answers(router, [png(shade) for shade in range(0, 250, 25)])
        expected = arrays.net_answers([shade / 255 for shade in range(0, 250, 25)])
        assert [each.record.confidence for each in found] == pytest.approx(expected, abs=1e-5)

    served(tmp_path, f"m: {{{model}}}", scene)
    with pytest.raises(ConfigError, match="set exactly one of them"):
        served(tmp_path, f"m: {{{model}, features: [a]}}", scene)


def test_a_scikit_learn_model_gets_flat_arrays(tmp_path: Path) -> None:
    digest = arrays.write_sklearn(tmp_path / "m.joblib")
    flat = "prepare: {image: {size: [2, 2], colour: grey, layout: flat}}"
    model = f"backend: sklearn, path: m.joblib, trusted: true, sha256: {digest}, {flat}"

    async def scene(router: Router) -> None:
        found = await answers(router, [png(0), png(255)])
        assert [each.record.label for each in found] == ["dark", "light"]

    served(tmp_path, f"m: {{{model}}}", scene)


@pytest.mark.parametrize("batch", ["", ", batch: {max_rows: 4}"])
def test_images_are_prepared_in_the_processes_of_a_model_that_has_some(tmp_path: Path, batch: str) -> None:
    async def scene(router: Router) -> None:
        found = await answers(router, [png(0), {"image": "AAAA"}, png(255)])
        assert [each.record.label for each in found] == ["dark", None, "light"]
        assert found[1].record.status == "rejected"
        assert router.plan.pool["m"].runs == "process"

    served(tmp_path, f"m: {{{SHADE}, {IMAGE}, workers: 1{batch}}}", scene)
