"""A UDP relay between a peer and the runner that drops datagrams by a seeded generator, and delays the others or some of them.

WebRTC: the peer's answer is rewritten so that the relay is the only candidate, and its offer so that it has none: then all
media passes here. Loss is decided for each direction by its own generator, so a run can be repeated.
"""

import asyncio
import random
import re

CANDIDATE = re.compile(r"a=candidate:(\S+) 1 udp (\d+) (\S+) (\d+) typ host.*", re.IGNORECASE)


def without_candidates(sdp):
    """Returns the offer without candidates."""
    lines = [line for line in sdp.splitlines() if not line.startswith(("a=candidate:", "a=end-of-candidates"))]
    return "\r\n".join(lines) + "\r\n"


def is_media(data):
    """Whether it is RTP by its first byte, and not RTCP by its second (RFC 7983, RFC 5761 section 4)."""
    return 128 <= data[0] < 192 and not 192 <= data[1] < 224


class Relay:
    """The path of one peer. `loss` is a share, 0 to 1; `delay` is in seconds, each way; `late` is the share of datagrams that
    take three times as long, so that others overtake them; `silent` drops everything."""

    def __init__(self, loss=0.0, seed=1, delay=0.0, late=0.0):
        self.loss, self.delay, self.late = loss, delay, late
        self.silent = False
        self.passed = {"up": 0, "down": 0}
        self.lost = {"up": 0, "down": 0}
        # Of each packet of media in order, whether it was lost.
        self.fates = {"up": [], "down": []}
        self._dice = {"up": random.Random(seed), "down": random.Random(seed + 1)}
        self._peer = None
        self._front = self._back = None

    async def answer(self, sdp):
        """Opens the relay towards the first usable candidate of `sdp` and returns the SDP for the peer."""
        found = [match for line in sdp.splitlines() if (match := CANDIDATE.match(line))]
        target = next(((m[3], int(m[4])) for m in found if m[3] == "127.0.0.1"), None)
        if target is None:
            raise ValueError("the answer has no candidate on loopback")
        port = await self.open(target)
        own = f"a=candidate:1 1 udp 2130706431 127.0.0.1 {port} typ host"
        lines, section_has = [], False
        for line in sdp.splitlines():
            section_has = section_has and not line.startswith("m=")
            if line.startswith("a=candidate:"):
                if section_has:
                    continue
                line, section_has = own, True
            lines.append(line)
        return "\r\n".join(lines) + "\r\n"

    async def open(self, target):
        """Opens the relay towards an address. Returns its port on loopback."""
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(lambda: Side(self, "up"), local_addr=("127.0.0.1", 0))
        self._back, _ = await loop.create_datagram_endpoint(lambda: Side(self, "down"), remote_addr=target)
        return self._front.get_extra_info("sockname")[1]

    async def rebind(self):
        """Another port towards the target, as a router gives that forgot the old one."""
        old, target = self._back, self._back.get_extra_info("peername")
        loop = asyncio.get_running_loop()
        self._back, _ = await loop.create_datagram_endpoint(lambda: Side(self, "down"), remote_addr=target)
        old.close()

    def forward(self, way, data, sender):
        is_lost = self.silent or self._dice[way].random() < self.loss
        if is_media(data):
            self.fates[way].append(is_lost)
        if is_lost:
            self.lost[way] += 1
            return
        self.passed[way] += 1
        if way == "up":
            self._peer = sender
        if self.delay:
            late = self.late and self._dice[way].random() < self.late
            delay = self.delay * 3 if late else self.delay
            asyncio.get_running_loop().call_later(delay, self.send, way, data)
        else:
            self.send(way, data)

    def send(self, way, data):
        side = self._back if way == "up" else self._front
        if side.is_closing():
            return
        if way == "up":
            side.sendto(data)
        elif self._peer:
            side.sendto(data, self._peer)

    def lost_share(self):
        """Of all datagrams, both ways."""
        lost = sum(self.lost.values())
        return lost / (lost + sum(self.passed.values()))

    def close(self):
        for side in (self._front, self._back):
            if side:
                side.close()


class Side(asyncio.DatagramProtocol):
    def __init__(self, relay, way):
        self.relay, self.way = relay, way

    def datagram_received(self, data, addr):
        self.relay.forward(self.way, data, addr)

    def error_received(self, error):
        """An earlier datagram met a closed port, which counts as loss."""
