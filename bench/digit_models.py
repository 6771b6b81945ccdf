"""Models of handwritten digits: logistic regression, a convolutional net, and a small net that learned from its answers.

MNIST (LeCun, Cortes and Burges 1998): 6,000 images to fit, 1,000 to choose, 3,000 for figures, dealt out of the official
10,000 test images (the file of 60,000 is not shipped). `mnist10k.npz` is looked for where `bench.labelled` looks for sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench.embeddings import CACHE
from bench.labelled import SPLITS, data_folder
from rheostat.lab.outcomes import TrainingCard

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tell = Callable[[str], None]
Digits = Mapping[str, tuple["NDArray[np.uint8]", "NDArray[np.int64]"]]
LABELS = tuple(str(digit) for digit in range(10))
FOLDER = CACHE / "digits"
_STEPS, _EPOCHS, _BATCH, _WARM = 400, 20, 100, 4.0  # _WARM: temperature of the answers that the student learns from


def why_absent() -> str | None:
    """Return what to do when the images are not there, or None."""
    path = _file()
    if path.is_file():
        return None
    return f"digits skipped: put x_train, y_train, x_dev ... (28 x 28, uint8) of MNIST into {path}, or set RHEOSTAT_DATA"


def read_digits() -> Digits:
    """Return images (n, 28, 28) and digits by split."""
    with np.load(_file()) as found:
        return {split: (found[f"x_{split}"], found[f"y_{split}"].astype(np.int64)) for split in SPLITS}


def digit_models(tell: Tell) -> Path:
    """Return a folder with `small.onnx`, `large.onnx`, `student.onnx` and a card beside each, trained the first time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "student.onnx.card.json").is_file():
        digits = read_digits()
        _logistic(digits, FOLDER / "small.onnx", tell)
        _nets(digits, FOLDER, tell)
    return FOLDER


def _file() -> Path:
    return data_folder() / "datasets" / "mnist10k" / "mnist10k.npz"


def _logistic(digits: Digits, path: Path, tell: Tell) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    x = {split: (images / 255).astype(np.float32).reshape(len(images), -1) for split, (images, _) in digits.items()}
    best = max(
        (LogisticRegression(C=c, max_iter=_STEPS).fit(x["train"], digits["train"][1]) for c in (0.01, 0.1, 1.0)),
        key=lambda model: model.score(x["dev"], digits["dev"][1]),
    )
    content = to_onnx(best, x["train"][:1], options={"zipmap": False}).SerializeToString()
    steps = int(max(best.n_iter_))
    train, dev = (float(best.score(x[split], digits[split][1])) for split in ("train", "dev"))
    card = TrainingCard(
        train_accuracy=train, dev_accuracy=dev, converged=steps < _STEPS, iterations=steps, max_iterations=_STEPS
    )
    tell(f"small: {card}")
    _write(path, content, card)


def _nets(digits: Digits, folder: Path, tell: Tell) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = {split: torch.from_numpy(images).float()[:, None] / 255 for split, (images, _) in digits.items()}
    y = {split: torch.from_numpy(truth) for split, (_, truth) in digits.items()}
    large = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10),
    )  # fmt: skip
    card = _fit(large, x, y, None, tell, "large")
    _write(folder / "large.onnx", _as_onnx(large), card)
    student = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
    card = _fit(student, x, y, large, tell, "student")
    _write(folder / "student.onnx", _as_onnx(student), card)


def _fit(net: Any, x: Mapping[str, Any], y: Mapping[str, Any], teacher: Any, tell: Tell, name: str) -> TrainingCard:
    """Fit a net on moved and turned images; with a `teacher` on its warmed answers alone. The epoch best on dev is kept."""
    import torch
    from torch.nn import functional

    epochs = _EPOCHS if teacher is None else 2 * _EPOCHS
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs=epochs, steps_per_epoch=len(y["train"]) // _BATCH)
    best, kept, history = -1.0, None, []
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(y["train"])).split(_BATCH):
            images = _moved(x["train"][rows])
            said = net(images)
            if teacher is None:
                loss = functional.cross_entropy(said, y["train"][rows])
            else:
                with torch.no_grad():
                    warm = functional.softmax(teacher(images) / _WARM, dim=1)
                loss = functional.kl_div(functional.log_softmax(said / _WARM, dim=1), warm, reduction="batchmean") * _WARM**2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            plan.step()
        net.eval()
        history.append(_score(net, x["dev"], y["dev"]))
        if history[-1] > best:
            best, kept = history[-1], {key: value.clone() for key, value in net.state_dict().items()}
        tell(f"{name}: epoch {epoch + 1} of {epochs}, dev {history[-1]:.3%}")
    net.load_state_dict(kept)
    quarter = epochs // 4
    brought = max(history[-quarter:]) - max(history[:-quarter])  # half a point is the standard error of dev
    train = _score(net, x["train"], y["train"])
    return TrainingCard(train_accuracy=train, dev_accuracy=best, converged=brought < 0.005, iterations=epochs)


def _moved(images: Any) -> Any:
    """Turn by up to 10 degrees, move by up to 2 pixels, scale by up to 10 %."""
    import torch
    from torch.nn import functional

    count = len(images)
    angle = (torch.rand(count) - 0.5) * 0.35
    scale = 1 + (torch.rand(count) - 0.5) * 0.2
    shift = (torch.rand(count, 2) - 0.5) * (4 / 14)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    places = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = functional.affine_grid(places, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def _score(net: Any, x: Any, y: Any) -> float:
    import torch

    with torch.inference_mode():
        return float((torch.cat([net(part).argmax(1) for part in x.split(500)]) == y).float().mean())


def _as_onnx(net: Any) -> bytes:
    """Write the layers as ONNX by hand: image in [n, 1, 28, 28], logits out; exporters want further packages."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, weights, at = [], [], "image"
    for number, layer in enumerate(net):
        kind, out, more = type(layer).__name__, f"t{number}", {}
        names = [f"{each}{number}" for each, _ in layer.named_parameters()]
        for name, (_, value) in zip(names, layer.named_parameters(), strict=True):
            array = value.detach().numpy()
            weights.append(numpy_helper.from_array(array.T.copy() if kind == "Linear" and array.ndim == 2 else array, name))
        if kind == "Dropout":
            continue
        if kind == "Linear":  # as MatMul and Add, which is what 8-bit quantisation knows
            nodes.append(helper.make_node("MatMul", [at, names[0]], [f"{out}m"]))
            nodes.append(helper.make_node("Add", [f"{out}m", names[1]], [out]))
        else:
            more = {"Conv2d": {"pads": [1, 1, 1, 1]}, "MaxPool2d": {"kernel_shape": [2, 2], "strides": [2, 2]}}.get(kind, {})
            operator = {"Conv2d": "Conv", "MaxPool2d": "MaxPool", "ReLU": "Relu", "Flatten": "Flatten"}[kind]
            nodes.append(helper.make_node(operator, [at, *names], [out], **more))
        at = out
    nodes[-1].output[0] = "logits"
    put = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "digits", [put("image", TensorProto.FLOAT, ["n", 1, 28, 28])],
        [put("logits", TensorProto.FLOAT, ["n", 10])], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return bytes(model.SerializeToString())


def _write(path: Path, content: bytes, card: TrainingCard) -> None:
    path.write_bytes(content)
    path.with_name(path.name + ".card.json").write_bytes(msgspec.json.encode(card))
    path.with_name(path.name + ".json").write_bytes(msgspec.json.encode({"labels": LABELS}))


def png_files(images: Sequence[Any], folder: Path) -> list[str]:
    """Write the images as PNG files; return their names."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, image in enumerate(images):
        name = f"{number:05}.png"
        Image.fromarray(image).save(folder / name)
        names.append(name)
    return names
