"""`Links`: the rates of a cluster, and the time of an exchange at them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Links:
    """Rates of a cluster.

    Attributes:
      link: bytes per second that a device sends to devices of its own process.
      network: bytes per second that a process sends to others.
      latency: seconds that a collective takes besides its bytes.
      memory: bytes per second that a device reads and writes; None: as measured on this machine.
    """

    link: float = 50e9
    network: float = 12.5e9
    latency: float = 50e-6
    memory: float | None = None

    def shared(self, sent: float, devices: int, processes: int) -> tuple[int, int]:
        """Return the bytes of ``sent`` that go to devices of the same process, and to others.

        >>> Links().shared(7000, devices=8, processes=2)
        (3000, 4000)
        """
        inside = round(sent * (devices // processes - 1) / max(devices - 1, 1))
        return inside, round(sent) - inside

    def seconds(self, sent: float, devices: int, processes: int) -> float:
        """Return the time in which every device sends as many bytes to all others, evenly."""
        inside, between = self.shared(sent, devices, processes)
        return max(inside / self.link, between * (devices // processes) / self.network)
