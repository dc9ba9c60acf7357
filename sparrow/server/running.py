"""`serve`: the server from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from aiohttp import web

from sparrow.data import DataError
from sparrow.files import AnyPath
from sparrow.retrieval import CANDIDATES
from sparrow.server.connections import Connection
from sparrow.server.limits import Limits
from sparrow.server.reading import settle
from sparrow.server.reloading import Reloading
from sparrow.server.service import Service
from sparrow.serving import ExportedModel

LINGER_SECONDS: Final = 2.0
"""The time that the rest of a refused body is read and dropped, so that its client sees the answer."""

SWITCH_SECONDS: Final = 0.0005
"""The time that a thread of Python goes on while another waits: by default 5 ms, several times that of an answer."""
OTHER_DESCRIPTORS: Final = 256
"""File descriptors that are no connections: files of exports, libraries, the log."""

Log = Callable[[str], None]


class Options(NamedTuple):
    """The options of `serve` besides limits.

    Attributes:
      host: the address to listen on; by default this machine alone.
      port: the port; 0 chooses a free one, which is logged.
      reload_seconds: the time between two looks for a newer export.
      verify: whether to compare the checksum of the export's tables.
      approximate: whether to search items by the FAISS index of the export, which is trusted.
      ranker: an export that orders the items of recommendations again.
      candidates: how many items of each row it orders.
      page: a folder whose files are served below ``/page/``, first of all its ``index.html``.
      reuse_port: whether other processes may listen on the same port, which share the connections.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    reload_seconds: float = 1.0
    verify: bool = True
    approximate: bool = False
    ranker: str | AnyPath | None = None
    candidates: int = CANDIDATES
    page: str | Path | None = None
    reuse_port: bool = False


def serve(folder: str | AnyPath, *, limits: Limits | None = None, log: Log = print, **options: Any) -> None:
    """Serve an export over HTTP until SIGINT or SIGTERM, which let open requests end.

    Args:
      folder: the export. A newer export that takes its place is loaded, and no request is lost.
      limits: bounds on requests.
      log: receives lines about the server.
      options: the fields of `sparrow.server.Options`, such as ``port=8080``.
    """
    chosen = Options(**options)
    sys.setswitchinterval(SWITCH_SECONDS)

    async def until_stopped() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
                stack.callback(loop.remove_signal_handler, number)
            bounds = _with_descriptors(limits or Limits())
            async with running(folder, bounds, chosen, log):
                settle()
                await stop.wait()
                log("stopping: open requests end first")

    asyncio.run(until_stopped())


@contextlib.asynccontextmanager
async def running(folder: str | AnyPath, limits: Limits, options: Options, log: Log) -> AsyncIterator[str]:
    """Serve an export in this event loop, and yield the address. Open requests end before this does."""
    service: Service | None = None

    def used(model: ExportedModel, is_ranker: bool = False) -> None:
        assert service is not None
        try:
            (service.use_ranker if is_ranker else service.use)(model)
        except DataError as error:  # ranker and items do not fit together
            failed(str(error))
            return
        service.metrics.count_reload(True)
        log(f"reloaded: {_named(model)}")

    def failed(why: str) -> None:
        if service is not None:
            service.metrics.count_reload(False)
            log(f"the newer export cannot be loaded, the older one stays in use: {why}")

    def compiled(model: ExportedModel) -> None:
        if service is None:
            log(f"loaded {_named(model)}, compiling for batches of up to {limits.batch_rows} rows")
        model.compile(limits.batch_rows, lambda: reloading.is_stopped)

    def apply(model: ExportedModel, change: Callable[[], None], is_ranker: bool = False) -> None:
        if service is not None:
            service.apply(model, change, is_ranker)

    def delta_failed(why: str) -> None:
        if service is not None:
            service.metrics.count_delta(False)
            log(why)

    looks: Any = {"prepare": compiled, "delta_failed": delta_failed}
    looks |= {"every_seconds": options.reload_seconds, "verify": options.verify}
    reloading = Reloading(folder, used, failed, apply=apply, approximate=options.approximate, **looks)
    both = [reloading]
    began = time.monotonic()
    model, ranker = reloading.load(), None
    if options.ranker is not None:
        second: Any = {
            "use": functools.partial(used, is_ranker=True),
            "apply": functools.partial(apply, is_ranker=True),
        }
        both.append(Reloading(options.ranker, failed=failed, **second, **looks))
        ranker = both[1].load()
    page = None if options.page is None else Path(options.page)
    service = Service(model, limits, ranker, options.candidates, page)
    runner = web.AppRunner(service.app(), shutdown_timeout=limits.stop_seconds)
    await runner.setup()
    listening = await _listen(service, runner, options, limits)
    try:
        host, port = listening.sockets[0].getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log(f"serving {_named(model)} on {url} (ready in {time.monotonic() - began:.1f} s; Ctrl-C stops)")
        for each in both:
            each.start()
        del model, ranker  # they are replaced while this waits
        yield url
    finally:
        service.is_stopping = True
        listening.close()
        await runner.cleanup()
        for each in both:
            await asyncio.to_thread(each.stop)
        service.stop()


def _with_descriptors(limits: Limits) -> Limits:
    """Return limits that the file descriptors of this process allow, of which as many are asked for as are needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    most = limits.connections if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_DESCRIPTORS)
    return dataclasses.replace(limits, connections=min(limits.connections, most))


async def _listen(service: Service, runner: web.AppRunner, options: Options, limits: Limits) -> asyncio.Server:
    given = {
        "access_log": None,
        "keepalive_timeout": limits.idle_seconds,
        "lingering_time": LINGER_SECONDS,
        "auto_decompress": False,
    }
    server = cast("web.Server", runner.server)

    def connected() -> Connection:
        return Connection(server, service.connections, service.count_malformed, **given)

    try:
        return await asyncio.get_running_loop().create_server(
            connected, options.host, options.port, backlog=1024, reuse_port=options.reuse_port or None
        )
    except OSError as error:
        await runner.cleanup()
        service.stop()
        raise DataError(f"cannot listen there: {error.strerror or error}", f"{options.host}:{options.port}") from None


def _named(model: ExportedModel) -> str:
    return f"{model.description.model} of step {model.description.step}"
