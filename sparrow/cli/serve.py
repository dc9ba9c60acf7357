"""``sparrow serve``."""

from __future__ import annotations

import argparse
import sys

from sparrow.cli.command import CANDIDATES, NO_VERIFY, arg, at_least_one, command, number, seconds
from sparrow.cli.output import Mistake, note

_PORT = number("a port (0 to 65535)", int, 0, 65535)
_MILLISECONDS = number("a number of milliseconds from 0 to 60,000", float, 0, 60_000)


@command(
    "serve",
    arg("export", help="the folder that sparrow export wrote; a newer export in its place is loaded"),
    arg("--port", type=_PORT, default=8080, help="by default 8080; 0 chooses a free one"),
    arg("--host", default="127.0.0.1", help="address to listen on; by default this machine alone"),
    arg("--workers", type=at_least_one, default=1, help="processes that share the port and the tables; by default 1"),
    arg("--worker", action="store_true", help=argparse.SUPPRESS),
    arg("--approximate", action="store_true", help="search items by the FAISS index of the export, which is trusted"),
    arg("--ranker", metavar="EXPORT", help="another model, which orders the items of /v1/recommend"),
    CANDIDATES,
    arg("--user-seconds", type=seconds, default=0.0, help="time to keep the vectors of users with keys; by default 0"),
    arg("--page", metavar="FOLDER", help="a page for browsers, served below /page/"),
    arg("--max-rows", type=at_least_one, default=10_000, help="rows of a request; by default 10000"),
    arg(
        "--max-values",
        type=at_least_one,
        default=1_000_000,
        help="values in the lists of a request; by default 1000000",
    ),
    arg("--max-body", type=at_least_one, default=8 << 20, help="bytes of a request; by default 8 MiB"),
    arg("--batch-rows", type=at_least_one, default=1024, help="rows computed at a time; by default 1024"),
    arg(
        "--gather-ms",
        type=_MILLISECONDS,
        default=2.0,
        help="time that a batch waits for requests that are being received; by default 2",
    ),
    arg("--timeout", type=seconds, default=30.0, help="seconds until an answer; by default 30"),
    arg(
        "--reload", type=seconds, default=1.0, metavar="SECONDS", help="between looks for a newer export; by default 1"
    ),
    NO_VERIFY,
    modules=("sparrow.serving",),
)
def serve(options: argparse.Namespace) -> None:
    """Serve an export over HTTP, in JSON and Arrow."""
    try:
        import aiohttp  # noqa: F401
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise Mistake(f'serving needs {error.name}: pip install "sparrow-rec[serve]"') from None
    from sparrow import processes, server

    if options.workers > 1 and not options.worker:
        given = [text for text in options.arguments if text != "--quiet"]  # their lines show when they are ready
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
    same = ("host", "port", "verify", "approximate", "ranker", "candidates", "page")
    server.serve(
        options.export,
        **{name: getattr(options, name) for name in same},
        limits=limits,
        reload_seconds=options.reload,
        reuse_port=options.worker,
        log=note,
    )
