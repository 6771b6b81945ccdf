"""How much memory there is, as different systems tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rheostat.pool import memory
from rheostat.resilience.residency import MemorySettings

GIB = 2**30


def system(root: Path, files: dict[str, str]) -> Path:
    meminfo = f"MemTotal:       {16 * GIB // 1024} kB\nMemFree: 1 kB\nMemAvailable:   {10 * GIB // 1024} kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_container_of_version_2(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/one\n",
            "sys/fs/cgroup/pods/one/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/pods/one/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/pods/one/memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file 5\n",
        },
    )
    (found,) = memory.ceilings(MemorySettings(limit="50%"), root)
    assert found.source == "container"
    assert found.limit == 2 * GIB
    assert found.used() == 2 * GIB  # cached files that nobody touched lately do not count
    free = memory.room((found,), MemorySettings(limit="50%", high=0.8, low=0.5))
    assert free == pytest.approx((0.0, -0.4 * GIB, -1.0 * GIB))


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/pods/one\n"}
    for group, limit in (("", "max"), ("pods/", str(GIB)), ("pods/one/", str(4 * GIB))):
        files[f"sys/fs/cgroup/{group}memory.max"] = limit
        files[f"sys/fs/cgroup/{group}memory.current"] = "5"
        files[f"sys/fs/cgroup/{group}memory.stat"] = "inactive_file 0\n"
    found = memory.container(system(tmp_path, files))
    assert found is not None
    assert found.limit == GIB


def test_a_container_of_version_1_and_its_number_for_no_limit(tmp_path: Path) -> None:
    lines = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"
    files = {
        "proc/self/cgroup": lines,  # the path is the host's: inside, the group lies at the mount itself
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
        "sys/fs/cgroup/memory/memory.stat": f"cache 7\ntotal_inactive_file {GIB // 2}\n",
    }
    found = memory.container(system(tmp_path, files))
    assert found is not None
    assert (found.limit, found.used()) == (2 * GIB, GIB // 2)
    (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712")
    assert memory.container(tmp_path) is None


def test_a_machine_without_containers(tmp_path: Path) -> None:
    (found,) = memory.ceilings(MemorySettings(), system(tmp_path, {}))
    assert (found.source, found.limit, found.used()) == ("machine", 16 * GIB, 6 * GIB)


def test_a_size_bounds_this_process_and_the_machine_still_bounds_both(tmp_path: Path) -> None:
    own, around = memory.ceilings(MemorySettings(limit="1GiB"), system(tmp_path, {}))
    assert (own.source, own.limit) == ("process", GIB)
    assert 10 * 2**20 < own.used() < 8 * GIB
    assert around.source == "machine"


def test_a_limit_of_the_container_above_the_machine_does_not_count(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(64 * GIB), "sys/fs/cgroup/memory.current": "1"}
    (found,) = memory.ceilings(MemorySettings(), system(tmp_path, files))
    assert found.source == "machine"


def test_a_share_of_nobody_knows_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`limit` must be a size such as 4GiB here"):
        memory.ceilings(MemorySettings(), tmp_path)
    (own,) = memory.ceilings(MemorySettings(limit="1GiB"), tmp_path)
    assert own.source == "process"
