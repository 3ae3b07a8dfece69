"""Networks out of namespaces of the kernel: hosts, links, bridges, routers with NAT. Nothing leaves them.

Every namespace is named after this process, and all of them go when the world is closed, whatever happened inside; what an
earlier process left behind when it was killed goes first.
"""

import os
import pathlib
import signal
import subprocess
from contextlib import suppress

PREFIX = "ernet-"


def sh(*command, feed=None):
    done = subprocess.run([str(part) for part in command], input=feed, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One namespace."""

    def __init__(self, name):
        self.name = name
        # Commands that are to run in here begin with this.
        self.inside = ("ip", "netns", "exec", name)
        sh("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *args):
        return sh("ip", "-n", self.name, *args)

    def nft(self, rules):
        sh(*self.inside, "nft", "-f", "-", feed=rules)

    def sysctl(self, setting):
        sh(*self.inside, "sysctl", "-q", "-w", setting)

    def up(self, device, *addresses, mtu=1500):
        """Switches an interface on; IPv6 addresses are good at once."""
        for address in addresses:
            self.ip("address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))
        self.ip("link", "set", device, "mtu", mtu, "up")

    def bridge(self, device, *addresses, mtu=1500):
        self.ip("link", "add", device, "type", "bridge", "forward_delay", 0)
        self.up(device, *addresses, mtu=mtu)


class World:
    def __init__(self):
        self.prefix = f"{PREFIX}{os.getpid()}-"
        self.hosts = []
        for name in names():
            if name.startswith(PREFIX) and not pathlib.Path("/proc", name.split("-")[1]).exists():
                remove(name)

    def host(self, name):
        host = Host(self.prefix + name)
        self.hosts.append(host)
        return host

    def link(self, one, device, other, other_device):
        """A cable between two hosts, both ends still off."""
        sh("ip", "link", "add", device, "netns", one.name, "type", "veth",
           "peer", "name", other_device, "netns", other.name)

    def plug(self, host, device, switch, *addresses, mtu=1500):
        """A cable from a host to the bridge `br0` of another."""
        port = f"p{len(switch.ip('-o', 'link').splitlines())}"
        self.link(host, device, switch, port)
        switch.ip("link", "set", port, "master", "br0", "mtu", mtu, "up")
        host.up(device, *addresses, mtu=mtu)

    def router(self, name, switch, outside, inside, rules=""):
        """A home router with NAT: outgoing packets get its address and keep their port if it is free. Unsolicited packets
        are dropped, as routers do; otherwise an early check would take the port that its answer needs."""
        router = self.host(name)
        self.plug(router, "wan0", switch, f"{outside}/24")
        router.bridge("br0", f"{inside}/24")
        router.sysctl("net.ipv4.ip_forward=1")
        router.nft(f"""
            table ip home {{
                chain leaving {{
                    type nat hook postrouting priority srcnat; policy accept;
                    oifname "wan0" masquerade
                }}
                chain arriving {{
                    type filter hook input priority filter; policy accept;
                    iifname "wan0" ct state new drop
                }}
                {rules}
            }}""")
        return router

    def close(self):
        for name in names():
            if name.startswith(self.prefix):
                remove(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def names():
    return [line.split()[0] for line in sh("ip", "netns", "list").splitlines() if line]


def remove(name):
    """Kills what runs in a namespace and deletes it. Another process of the stage may do the same at that moment."""
    try:
        for pid in sh("ip", "netns", "pids", name).split():
            # Only what was started in here lives in here.
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        sh("ip", "netns", "del", name)
    except RuntimeError:
        if name in names():
            raise
