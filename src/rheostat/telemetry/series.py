"""Numbers for Prometheus: cheap to raise, rendered when somebody asks."""

from __future__ import annotations

import math
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_LARGEST: Final = 1e12  # a duration or cost above this is a mistake and would spoil the sum for good


class Histogram:
    """Counts values by upper bounds (`le`, the last is infinity); 0.3 us an observation."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value >= 0; what is no such number (NaN, negative, infinite) counts as 0."""
        if not 0.0 <= value < _LARGEST:
            value = 0.0
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Sample(NamedTuple):
    """One line of the page: the suffix of the family's name, label names and values, the number."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """All samples of one name; `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def counter_samples(names: Sequence[str], counts: Mapping[tuple[str, ...], float]) -> list[Sample]:
    """Return the samples of a counter or gauge; `names` are the label names, the keys of `counts` their values."""
    return [Sample("", tuple(zip(names, values, strict=True)), count) for values, count in list(counts.items())]


def histogram_samples(names: Sequence[str], cells: Mapping[tuple[str, ...], Histogram]) -> list[Sample]:
    """Return the samples of a histogram: running totals by `le`, sum and count, which always agree with each other."""
    samples = []
    for values, cell in list(cells.items()):
        labels = tuple(zip(names, values, strict=True))
        counts, total = list(cell.counts), 0
        for bound, count in zip((*cell.bounds, math.inf), counts, strict=True):
            total += count
            samples.append(Sample("_bucket", (*labels, ("le", _number(bound))), total))
        samples.append(Sample("_sum", labels, cell.sum))
        samples.append(Sample("_count", labels, total))
    return samples


def counter(name: str, text: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], float]) -> Family:
    """Return a counter's family; see `counter_samples`."""
    return Family(name, "counter", text, counter_samples(labels, counts))


def histogram(name: str, text: str, labels: tuple[str, ...], cells: Mapping[tuple[str, ...], Histogram]) -> Family:
    """Return a histogram's family; see `histogram_samples`."""
    return Family(name, "histogram", text, histogram_samples(labels, cells))


def render(families: Iterable[Family]) -> bytes:
    """Write families in the Prometheus text format 0.0.4."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped(family.help, quote=False)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            inside = ",".join([f'{name}="{_escaped(text)}"' for name, text in labels])
            lines.append(f"{family.name}{suffix}{{{inside}}} {_number(value)}" if inside else
                         f"{family.name}{suffix} {_number(value)}")  # fmt: skip
    lines.append("")
    return "\n".join(lines).encode()


def process_families() -> Iterator[Family]:
    """Yield cpu time, memory and open files of this process, as far as the system tells."""
    yield _single("process_cpu_seconds_total", "counter", "CPU time of this process in seconds.", time.process_time())
    memory = _resident_bytes()
    if memory:
        yield _single("process_resident_memory_bytes", "gauge", "Memory of this process in bytes.", memory)
    try:
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        return
    yield _single("process_open_fds", "gauge", "Files and sockets this process has open.", files)


def _single(name: str, kind: str, text: str, value: float) -> Family:
    return Family(name, kind, text, [Sample("", (), value)])


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource  # the largest so far: the best that is known where there is no /proc

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _escaped(text: str, *, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
