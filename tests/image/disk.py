"""A disk with a write cache that a power cut empties: an NBD server over one image file.

    disk.py IMAGE SOCKET [--seed N]

Serves IMAGE to one client at a time on the unix socket SOCKET and prints "ready". A write reaches the file at once, and what stood
there is remembered until the client flushes. "cut" on standard input is the power cut: of the writes since the last flush each
one is kept or lost by a seeded throw of dice, as a card's own cache does it, and the program ends with a line of how many. The end of
standard input ends it in good order.
"""

import argparse
import os
import random
import socket
import struct
import sys
import threading

REQUEST_MAGIC, REPLY_MAGIC = 0x25609513, 0x67446698
READ, WRITE, LEAVE, FLUSH, TRIM, ZEROES = 0, 1, 2, 3, 4, 6
FUA = 1 << 0
# has flags, flush, FUA
FLAGS = 1 << 0 | 1 << 2 | 1 << 3


class Cache:
    """The file, and the writes since the last flush."""

    def __init__(self, path, seed):
        self.file = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.file).st_size
        self.dice = random.Random(seed)
        self.unsafe = []
        self.lock = threading.Lock()
        self.dead = False

    def read(self, offset, length):
        return os.pread(self.file, length, offset)

    def write(self, offset, data, safe):
        with self.lock:
            if self.dead:
                return
            if not safe:
                self.unsafe.append((offset, os.pread(self.file, len(data), offset), data))
            os.pwrite(self.file, data, offset)

    def flush(self):
        with self.lock:
            self.unsafe.clear()

    def cut(self):
        """The numbers of writes since the last flush: kept, and all."""
        with self.lock:
            self.dead = True
            for offset, before, _ in reversed(self.unsafe):
                os.pwrite(self.file, before, offset)
            kept = [write for write in self.unsafe if self.dice.random() < 0.5]
            for offset, _, data in kept:
                os.pwrite(self.file, data, offset)
            return len(kept), len(self.unsafe)


def receive(peer, length):
    data = bytearray()
    while len(data) < length:
        more = peer.recv(length - len(data))
        if not more:
            raise ConnectionError
        data += more
    return bytes(data)


def shake_hands(peer, cache):
    """The fixed newstyle handshake, for the one export."""
    peer.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    no_zeroes = struct.unpack(">I", receive(peer, 4))[0] & 2
    while True:
        _, option, length = struct.unpack(">QII", receive(peer, 16))
        data = receive(peer, length)
        reply = lambda kind, body=b"": peer.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(body)) + body)
        if option == 1:
            peer.sendall(struct.pack(">QH", cache.size, FLAGS) + (b"" if no_zeroes else bytes(124)))
            return
        if option == 7:
            reply(3, struct.pack(">HQH", 0, cache.size, FLAGS))
            reply(1)
            return
        if option == 2:
            reply(1)
            raise ConnectionError
        reply(2**31 + 1)


def serve(peer, cache):
    shake_hands(peer, cache)
    while True:
        magic, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", receive(peer, 28))
        if magic != REQUEST_MAGIC:
            raise ConnectionError
        data, error = b"", 0
        if kind == READ:
            data = cache.read(offset, length)
        elif kind == WRITE:
            cache.write(offset, receive(peer, length), flags & FUA)
        elif kind == FLUSH:
            cache.flush()
        elif kind == LEAVE:
            return
        else:
            error = 22
        peer.sendall(struct.pack(">IIQ", REPLY_MAGIC, error, handle) + data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("image")
    parser.add_argument("socket")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    cache = Cache(args.image, args.seed)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(args.socket)
    listener.listen(4)

    def accept():
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=talk, args=(peer,), daemon=True).start()

    def talk(peer):
        try:
            serve(peer, cache)
        except (ConnectionError, struct.error, OSError):
            pass
        finally:
            peer.close()

    threading.Thread(target=accept, daemon=True).start()
    print("ready", flush=True)
    if sys.stdin.readline().strip() == "cut":
        kept, there_were = cache.cut()
        print(f"of {there_were} writes since the last flush {kept} were kept", flush=True)
    os.unlink(args.socket)


main()
