"""The server: an export over HTTP. ``sparrow serve exported`` is the command line of it.

It needs ``pip install "sparrow-rec[serve]"``.
"""

from sparrow.server.limits import Limits
from sparrow.server.running import Options, serve
from sparrow.server.workers import supervised
