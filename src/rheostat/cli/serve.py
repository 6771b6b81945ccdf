"""`rheostat serve`."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Annotated

import typer

from rheostat.cli.console import FAILED, note, told


@told
def serve(
    config: Annotated[str, typer.Argument(help="The config file.", metavar="CONFIG")] = "rheostat.yaml",
    host: Annotated[str | None, typer.Option(help="Where to listen, instead of `server.host`.")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port, instead of `server.port`; 0 takes a free one.", min=0, max=65535)
    ] = None,
    watch: Annotated[bool, typer.Option(help="Take up changes of the config file while serving.")] = True,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_form: Annotated[str, typer.Option(help="json (ECS), plain, or auto: plain on a terminal.")] = "auto",
) -> None:
    """Serve a config over HTTP until SIGTERM or Ctrl-C; SIGHUP or a change of the file reloads it.

    With `server.grpc_port` the Open Inference Protocol is served over gRPC too.
    Requests in flight finish before it stops. A bad change keeps the old config in force, and the log says why.

    Example: `rheostat serve rheostat.yaml --port 8080`, then
    `curl -H 'content-type: application/json' -d '{"data": "hello"}' http://127.0.0.1:8080/v1/predict`
    """
    import uvloop

    from rheostat.config import load_config
    from rheostat.gateway.server import run
    from rheostat.pool.processors import processors
    from rheostat.pool.worker.limits import THREAD_VARIABLES
    from rheostat.telemetry import Masker
    from rheostat.telemetry.service_log import configure

    for variable in THREAD_VARIABLES:  # libraries count the machine's processors, not those of the container
        os.environ.setdefault(variable, str(processors()))
    loaded = load_config(config)
    masker = Masker(loaded.secrets)
    try:
        restore = configure(level=log_level, form=log_form, masker=masker)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(config, host=host, port=port, watch=watch, masker=masker))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            raise
        admin = loaded.config.admin
        other = "--host or --port (0 takes a free port)"
        if error.filename == f"{admin.host}:{admin.port}":
            other = "`admin.host` or `admin.port`"
        elif error.filename == f"{host or loaded.config.server.host}:{loaded.config.server.grpc_port}":
            other = "`server.grpc_port` (0 takes a free port)"
        note(f"cannot listen on {error.filename}: {error.strerror}; choose another address with {other}")
        raise typer.Exit(FAILED) from None
    finally:
        restore()
