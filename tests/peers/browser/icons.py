# Draws the icons of the page, src/page/icon-SIZE.png, from the bars of icon.svg: full-bleed, so that systems can cut them to
# their own shape. Run it in src/page after a change of icon.svg: python3 ../../tests/peers/browser/icons.py

import struct
import zlib

# Position of each bar of icon.svg, and where it begins and ends, on a square of 32.
BARS = [(7, 14, 18), (11.5, 10.5, 21.5), (16, 7, 25), (20.5, 11.5, 20.5), (25, 14, 18)]
RADIUS = 1.3
GREEN = (0x0B, 0x6E, 0x63)
# Samples per pixel, in each direction: ten shades, which fit into four bits.
SAMPLES = 3


def is_bar(x, y):
    return any((x - at) ** 2 + (y - min(max(y, top), bottom)) ** 2 <= RADIUS**2 for at, top, bottom in BARS)


def rows(size):
    scale = 32 / size
    steps = [(step + 0.5) / SAMPLES for step in range(SAMPLES)]
    for y in range(size):
        # Filter 0, then how many samples of each pixel are white: two pixels in a byte.
        row = [sum(is_bar((x + dx) * scale, (y + dy) * scale) for dx in steps for dy in steps) for x in range(size)]
        yield bytes([0] + [left << 4 | right for left, right in zip(row[::2], row[1::2])])


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size):
    levels = SAMPLES**2
    palette = bytes(round(low + (255 - low) * level / levels) for level in range(levels + 1) for low in GREEN)
    header = struct.pack(">IIBBBBB", size, size, 4, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(b"".join(rows(size)), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


for size in (192, 512):
    with open(f"icon-{size}.png", "wb") as file:
        file.write(png(size))
