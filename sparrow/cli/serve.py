"""``sparrow serve``."""

from __future__ import annotations

import argparse
import sys

from sparrow.cli.command import Command, at_least_one, seconds
from sparrow.cli.output import Mistake, note


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("export", help="the folder that sparrow export wrote; a newer export in its place is loaded")
    parser.add_argument("--port", type=_port, default=8080, help="by default 8080; 0 chooses a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; by default this machine alone")
    parser.add_argument(
        "--workers", type=at_least_one, default=1, help="processes that share the port and the tables; by default 1"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--approximate", action="store_true", help="search items by the FAISS index of the export, which is trusted"
    )
    parser.add_argument("--ranker", metavar="EXPORT", help="another model, which orders the items of /v1/recommend")
    parser.add_argument("--candidates", type=at_least_one, default=100, help="items that --ranker orders; default 100")
    parser.add_argument(
        "--user-seconds", type=seconds, default=0.0, help="time to keep the vectors of users with keys; by default 0"
    )
    parser.add_argument("--page", metavar="FOLDER", help="a page for browsers, served below /page/")
    parser.add_argument("--max-rows", type=at_least_one, default=10_000, help="rows of a request; by default 10000")
    parser.add_argument(
        "--max-values",
        type=at_least_one,
        default=1_000_000,
        help="values in the lists of a request; by default 1000000",
    )
    parser.add_argument("--max-body", type=at_least_one, default=8 << 20, help="bytes of a request; by default 8 MiB")
    parser.add_argument(
        "--batch-rows", type=at_least_one, default=1024, help="rows computed at a time; by default 1024"
    )
    parser.add_argument(
        "--gather-ms",
        type=_milliseconds,
        default=2.0,
        help="time that a batch waits for requests that are being received; by default 2",
    )
    parser.add_argument("--timeout", type=seconds, default=30.0, help="seconds until an answer; by default 30")
    parser.add_argument(
        "--reload", type=seconds, default=1.0, metavar="SECONDS", help="between looks for a newer export; by default 1"
    )
    parser.add_argument(
        "--no-verify", dest="verify", action="store_false", help="do not compare the checksum of an export's tables"
    )


def run(options: argparse.Namespace) -> None:
    """Serve an export over HTTP."""
    try:
        import aiohttp  # noqa: F401
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise Mistake(f'serving needs {error.name}: pip install "sparrow-rec[serve]"') from None
    from sparrow import processes, server

    if options.workers > 1 and not options.worker:
        given = [text for text in options.arguments if text != "--quiet"]  # they log when they are ready
        worker = [sys.executable, "-m", "sparrow.cli", *given, "--worker", "--port"]
        how = options.workers, options.host, options.port, lambda port: [*worker, str(port)]
        if code := server.supervised(*how, note):
            raise SystemExit(code)
        return
    if options.worker:
        processes.end_with_parent()
    limits = server.Limits(
        body_bytes=options.max_body,
        rows=options.max_rows,
        values=options.max_values,
        batch_rows=options.batch_rows,
        gather_seconds=options.gather_ms / 1000,
        answer_seconds=options.timeout,
        user_seconds=options.user_seconds,
        workers=options.workers,
    )
    server.serve(
        options.export,
        host=options.host,
        port=options.port,
        limits=limits,
        reload_seconds=options.reload,
        verify=options.verify,
        approximate=options.approximate,
        ranker=options.ranker,
        candidates=options.candidates,
        reuse_port=options.worker,
        page=options.page,
        log=note,
    )


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 16:
        raise ValueError(text)
    return value


_port.__name__ = "port (0 to 65535)"


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 60_000:
        raise ValueError(text)
    return value


_milliseconds.__name__ = "number of milliseconds"

COMMAND = Command("serve", "Serve an export over HTTP, in JSON and Arrow.", arguments, run, compiles=True)
