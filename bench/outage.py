"""Real servers die, hang and slow down, one after another, under load: does every request get an answer in time?

    python -m bench.outage            # two minutes
    python -m bench.outage --short    # one server, about 20 seconds

A gateway and three model servers as processes: two plain HTTP ones and a Triton. 200 requests a second come on time whatever
is answered. There is no cache and no preset: every answer is a model's. The picture is `bench-out/outage.png`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import triton
from bench.outage_load import Sample, load, scrape, share
from bench.outage_plot import plot
from bench.outage_process import Process, free_port, gateway

MODELS = ("large", "twin", "small")
USUAL_S = {"large": 0.02, "twin": 0.005, "small": 0.003}
SLOW = 20
DEADLINE_S = 1.0
GRACE_S = 0.05
CONFIG = """
models:
  large: {{backend: http, url: "http://127.0.0.1:{large}/predict", cost: 20, peers: [twin], lighter: small,
          labels: [even, odd], timeout: 200ms, breaker: *breaker, ramp: *ramp,
          health: {{interval: 1s, timeout: 300ms, url: "http://127.0.0.1:{large}/health"}}}}
  twin: {{backend: inference_protocol, base_url: "http://127.0.0.1:{twin}", model: texts, input: {{name: TEXT}},
         output: PROBS, labels: [even, odd], cost: 20, peers: [large], lighter: small, timeout: 200ms,
         breaker: *breaker, ramp: *ramp,
         health: {{interval: 1s, timeout: 300ms, url: "http://127.0.0.1:{twin}/v2/health/ready"}}}}
  small: {{backend: http, url: "http://127.0.0.1:{small}/predict", cost: 1, labels: [even, odd], timeout: 200ms,
          breaker: *breaker, ramp: *ramp, health: {{interval: 1s, timeout: 300ms, url: "http://127.0.0.1:{small}/health"}}}}
routes:
  default:
    policy:
      split: {{key: request, arms: [{{use: large, share: .5}}, {{use: twin, share: .3}}, {{use: small, share: .2}}]}}
    deadline: 1s
    fallback: {{retry: 1, peer: true, lighter: true}}
""".replace("*breaker", "{{failureThreshold: 5, successThreshold: 3, timeoutSeconds: 1}}").replace(
    "*ramp", "{{start: .05, seconds: 4}}"
)


class Scene:
    """The processes, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        ports = {name: free_port() for name in MODELS}
        self.sleeps = {name: folder / f"{name}.sleep" for name in MODELS}
        self.servers: dict[str, Process] = {}
        for name in MODELS:
            self.slow(name, 1)
            command = [sys.executable, "-m", "bench.outage_server", str(ports[name]), str(self.sleeps[name]), "64"]
            self.servers[name] = Process(name, command, f"http://127.0.0.1:{ports[name]}/health", folder)
        self.servers["twin"] = triton.triton(folder, ports["twin"], self.sleeps["twin"])
        self.gateway, self.url = gateway(folder, CONFIG.format(**ports))
        self.phases: list[tuple[float, float, str]] = []
        self._twin = ports["twin"]

    async def __aenter__(self) -> Scene:
        for server in (*self.servers.values(), self.gateway):
            server.start()
        for server in (*self.servers.values(), self.gateway):
            await server.until_ready()
        return self

    async def __aexit__(self, *ended: object) -> None:
        for server in (*self.servers.values(), self.gateway):
            server.kill()
        triton.sweep(self._twin)

    def slow(self, name: str, times: int) -> None:
        """Make a server take `times` as long as usual."""
        self.sleeps[name].write_text(str(USUAL_S[name] * times))

    async def play(self, names: tuple[str, ...], hurt_s: float, calm_s: float) -> None:
        """Kill and restart, stop and continue, slow down and let go each server in turn."""
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(calm_s / 2)
        for name in names:
            server = self.servers[name]
            for what in ("kill -9", "SIGSTOP", f"{SLOW}x slower"):
                hurt = asyncio.get_running_loop().time() - began
                if what == "kill -9":
                    server.kill()
                elif what == "SIGSTOP":
                    server.signal(signal.SIGSTOP)
                else:
                    self.slow(name, SLOW)
                await asyncio.sleep(hurt_s)
                if what == "kill -9":
                    server.start()
                elif what == "SIGSTOP":
                    server.signal(signal.SIGCONT)
                else:
                    self.slow(name, 1)
                self.phases.append((hurt, asyncio.get_running_loop().time() - began, f"{name}: {what}"))
                await asyncio.sleep(calm_s)


async def outage(names: tuple[str, ...], rate: float, hurt_s: float, calm_s: float, picture: Path) -> list[Sample]:
    """Play the outage, print the figures and draw the picture; returns every request."""
    seconds = calm_s / 2 + len(names) * 3 * (hurt_s + calm_s)
    seen: list[tuple[float, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="rheostat-outage-") as name:
        async with Scene(Path(name)) as scene:
            await load(scene.url, 50, 1.0)  # connections and code are warm
            scraper = asyncio.create_task(scrape(scene.url, 0.5, seen))
            samples, _ = await asyncio.gather(load(scene.url, rate, seconds), scene.play(names, hurt_s, calm_s))
            scraper.cancel()
            phases = scene.phases
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {rate:.0f} requests/s for {seconds:.0f} s")
    _tell(samples, phases)
    plot(picture, samples, seen, phases, MODELS)
    print(f"picture: {picture}")
    return samples


def late(samples: list[Sample]) -> list[Sample]:
    """Return the requests that took longer than the deadline and the grace."""
    return [sample for sample in samples if sample.latency > DEADLINE_S + GRACE_S]


def _tell(samples: list[Sample], phases: list[tuple[float, float, str]]) -> None:
    wrong = [sample for sample in samples if not sample.right]
    print(f"requests {len(samples)}, answered rightly {len(samples) - len(wrong)} "
          f"({100 * (1 - len(wrong) / len(samples)):.3f} %), over deadline + 50 ms: {len(late(samples))}")  # fmt: skip
    print(f"answers by level: {dict(sorted(Counter(sample.level for sample in samples).items()))}")
    for sample in wrong[:5]:
        print(f"  at {sample.due:.2f} s: {sample.said[:300]}")
    print(f"\n{'phase':<22}{'seconds':>14}{'requests':>9}{'P50 ms':>8}{'P99 ms':>8}{'max ms':>8}")
    edges = [0.0]
    rows: list[tuple[float, float, str]] = []
    for begin, end, what in phases:
        rows += [(edges[-1], begin, "all well" if not rows else "recovery"), (begin, end, what)]
        edges.append(end)
    for begin, end, what in (*rows, (edges[-1], samples[-1].due + 1.0, "recovery")):
        part = [sample for sample in samples if begin <= sample.due < end]
        print(f"{what:<22}{f'{begin:.1f}-{end:.1f}':>14}{len(part):>9}"
              f"{share(part, 50):>8.1f}{share(part, 99):>8.1f}{share(part, 100):>8.1f}")  # fmt: skip


def main() -> None:
    """Run the bench; the exit status says whether every request was answered in time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one server, about 20 seconds")
    chosen = parser.parse_args()
    names, hurt, calm = (("large",), 2.0, 4.0) if chosen.short else (MODELS, 4.5, 8.0)
    samples = asyncio.run(outage(names, 200.0, hurt, calm, Path("bench-out/outage.png")))
    sys.exit(0 if all(sample.right for sample in samples) and not late(samples) else 1)


if __name__ == "__main__":
    main()
