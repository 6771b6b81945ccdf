"""`rheostat quantize`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rheostat.cli.console import note, say, say_json, told

if TYPE_CHECKING:
    from rheostat.lab.outcomes import OutcomesTable
    from rheostat.pool.backend import Backend

_TIMED = 200


@told
def quantize(
    config: Annotated[str, typer.Argument(help="The config file.", metavar="CONFIG")],
    model: Annotated[str, typer.Argument(help="The model of backend `onnx` in it.", metavar="MODEL")],
    outcomes: Annotated[str, typer.Option(help="An outcomes table of this config, with inputs kept.")],
    out: Annotated[str | None, typer.Option(help="Where the 8-bit file goes (default: <path>-int8.onnx).")] = None,
    rows: Annotated[int, typer.Option(help="At most so many rows of dev, and of test.", min=50)] = 2000,
    force: Annotated[bool, typer.Option("--force", help="Write over the file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model with 8-bit weights, and say what that loses and gains.

    The 8-bit file answers rows of dev and test one at a time, as it must be served (`chunk: 1`), and is compared with the
    model it was made from: agreement, accuracy where labels are known, size, speed, and where it sits on the curve.

    Example: `rheostat quantize rheostat.yaml large --outcomes outcomes.parquet`
    """
    import msgspec
    import numpy as np

    from rheostat.backends.onnx import OnnxModel
    from rheostat.cli.smaller_lines import as_data, say_smaller
    from rheostat.config import load_config
    from rheostat.lab.outcomes_file import load
    from rheostat.lab.smaller import compare, quantize_file, with_model
    from rheostat.pool.prepared import in_call, preparation

    loaded = load_config(config)
    settings = loaded.config.models.get(model)
    if not isinstance(settings, OnnxModel):
        raise typer.BadParameter(
            f"{model!r} is no model of backend onnx in {config}; 8-bit weights are made from an ONNX file"
        )
    source = Path(loaded.base, settings.path)
    target = Path(out) if out is not None else source.with_name(f"{source.stem}-int8.onnx")
    if target.exists() and not force:
        raise typer.BadParameter(f"{target} is there already; name another --out, or add --force")
    table = load(outcomes)
    if model not in table.models or table.inputs is None:
        raise typer.BadParameter(f"{outcomes} needs the model {model!r} and the inputs; evaluate again with inputs kept")
    quantize_file(source, target)
    listed = source.with_name(source.name + ".json")
    if listed.is_file():
        shutil.copyfile(listed, target.with_name(target.name + ".json"))
    tried = (msgspec.structs.replace(settings, path=str(target.absolute()), chunk=1), settings)
    backends = [each.open(loaded.base) for each in tried]
    small, large = (in_call(preparation(settings, backend), backend, tried=True) for backend in backends)
    table = table.subset(np.concatenate([np.flatnonzero(table.split == code)[:rows] for code in (1, 2)]))
    scores, waits = _answers(small, table)
    _, before = _answers(large, table.subset(np.arange(min(_TIMED, len(table)))), warm=True)
    speed = float(waits.mean() / max(float(before.mean()), 1e-9))
    cost = float(table.model(model).cost.mean()) * min(1.0, speed)
    wide = with_model(table, f"{model}-int8", scores, cost=cost, latency_s=waits)
    found = compare(wide, model, f"{model}-int8", sizes=(_size(source), _size(target)), waits=(before, waits[:_TIMED]))
    if as_json:
        say_json({"out": str(target), "cost": cost, **as_data(found)})
    else:
        say_smaller(found)
        say()
        say(f"wrote {target}; serve it with `chunk: 1`")
    if found.sizes[1] > 0.9 * found.sizes[0]:
        note("note: hardly anything in this file could be made smaller; it has few or no matrix products")


def _answers(backend: Backend, table: OutcomesTable, warm: bool = False) -> tuple[Any, Any]:
    """Distributions over the table's labels, NaN where there is none, and seconds, one row at a time."""
    import msgspec
    import numpy as np

    place = {label: code for code, label in enumerate(table.labels)}
    scores, waits = np.full((len(table), len(table.labels)), np.nan), np.zeros(len(table))
    inputs = [msgspec.json.decode(each) for each in table.inputs] if table.inputs is not None else []
    for row, value in enumerate([*inputs[:5], *inputs] if warm else inputs):
        at = row - 5 if warm else row
        began = time.perf_counter()
        (reply,) = backend.predict([value])
        if at < 0:
            continue
        waits[at] = time.perf_counter() - began
        found = getattr(reply, "scores", None)
        if found is not None:
            scores[at] = [found.get(label, 0.0) for label in place]
    return scores, waits


def _size(path: Path) -> int:
    """Bytes of the file and of what lies beside it for it."""
    beside = path.with_name(path.name + "_data")
    return path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)
