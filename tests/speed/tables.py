"""The tables of boards/SPEED.md, from counts of instructions and from what is assumed of the boards.

In: for each machine, component -> [instructions per frame of 20 ms, of them scalar floating point]. Out: Markdown. What is counted
and what is assumed are kept apart: everything in BOARDS is a fact of a data sheet or an assumption, and is printed beside its result.
"""

BEGIN = "<!-- counted: tests/check.sh speed writes what follows -->"
END = "<!-- until here -->"
FRAMES_PER_SECOND = 50

COLUMNS = [("x86_64", "x86-64"), ("aarch64", "aarch64"), ("aarch64-soft", "aarch64 without AES"), ("armv7", "armv7")]

# Board, what its code is counted as, core, cores, MHz, instructions per cycle from and to, and cycles per scalar floating-point
# instruction where those are not as fast as the others.
BOARDS = [
    ("Raspberry Pi Zero 2 W", "aarch64-soft", "Cortex-A53", 4, 1000, (0.6, 1.0), None),
    ("Raspberry Pi 3 B", "aarch64-soft", "Cortex-A53", 4, 1200, (0.6, 1.0), None),
    ("Raspberry Pi 3 B+", "aarch64-soft", "Cortex-A53", 4, 1400, (0.6, 1.0), None),
    ("Raspberry Pi 4", "aarch64-soft", "Cortex-A72", 4, 1500, (1.2, 1.8), None),
    ("Raspberry Pi 5", "aarch64", "Cortex-A76", 4, 2400, (1.8, 2.6), None),
    ("Orange Pi Zero 3", "aarch64", "Cortex-A53", 4, 1500, (0.6, 1.0), None),
    ("BeagleBone Black", "armv7", "Cortex-A8", 1, 1000, (0.5, 0.8), (20, 9)),
]
# Share of the time that goes to sockets, tasks and the kernel, beside what is counted; measured on x86-64, see the page.
SOCKETS = 0.45


def all(counts):
    for name, _ in COLUMNS:
        counts.setdefault(name, {})
    return "\n".join([parts(counts), encoders(counts), calls(counts), boards(counts)])


class Missing(Exception):
    """A component that was not counted for a machine."""


def shown(make):
    """Returns what is made, or a dash where it was not counted."""
    try:
        return make()
    except Missing:
        return "-"


def thousand(number):
    """Three digits that mean something."""
    number /= 1000
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells):
    return row(*cells) + "\n" + row(*("---" for _ in cells))


def frame(counts, machine, name, which=0):
    if name not in counts[machine]:
        raise Missing
    return counts[machine][name][which]


PARTS = [
    ("Opus decode to 16 kHz, a browser's packet (48 kHz, 32 kb/s)", "decode-16"),
    ("Opus decode to 24 kHz, the same", "decode-24"),
    ("Opus decode to 16 kHz, a microcontroller's packet", "decode-device"),
    ("resample 48 to 16 kHz", "resample-48-16"),
    ("resample 48 to 24 kHz", "resample-48-24"),
    ("resample 8 to 16 kHz", "resample-8-16"),
    ("resample 16 to 8 kHz", "resample-16-8"),
    ("SRTP, AES-128-GCM, a packet out and one in", "srtp-gcm"),
    ("SRTP, AES-128-CM and HMAC-SHA1, a packet out and one in", "srtp-cm"),
    ("RTP, RTCP, ICE and SRTP in str0m, a packet out and one in", ("clients", 0.5)),
    ("jitter buffer", "jitter"),
    ("pacer", "pacer"),
    ("the parrot's voice detection", "vad"),
    ("G.711, a frame out and one in", "g711"),
    ("WebSocket, a telephone's message out and one in", "websocket"),
]


def parts(counts):
    lines = [
        "### Per frame of 20 ms, in thousands of instructions",
        "",
        head("what", *(title for _, title in COLUMNS)),
    ]
    for title, name in PARTS:
        name, share = name if isinstance(name, tuple) else (name, 1)
        cells = [shown(lambda m=m: thousand(share * frame(counts, m, name))) for m, _ in COLUMNS]
        lines.append(row(title, *cells))
    return "\n".join(lines) + "\n"


def encoders(counts):
    lines = [
        "### Opus encode per frame of 20 ms, in thousands of instructions",
        "",
        "28 kb/s, in-band FEC, speech without a pause; by complexity and the rate of the bot's sound in kHz.",
        "",
        head("complexity", *(f"{title}: 8, 16, 24" for machine, title in COLUMNS if machine != "aarch64-soft")),
    ]
    for complexity in range(11):
        cells = []
        for machine, _ in COLUMNS:
            if machine != "aarch64-soft":
                names = [f"encode-{khz}-{complexity}" for khz in (8, 16, 24)]
                cells.append(", ".join(shown(lambda n=n, m=machine: thousand(frame(counts, m, n))) for n in names))
        lines.append(row(complexity, *cells))
    return "\n".join(lines) + "\n"


def call(counts, machine, kind, complexity=3, which=0):
    """Instructions per frame of a call: all of them, or those of scalar floating point."""

    def of(name):
        return frame(counts, machine, name, which)

    if kind == "telephone":
        return of("telephone")
    khz = {"16 kHz": 16, "24 kHz": 24}[kind]
    whole = of(f"session-{khz}") - of("clients") / 2
    return whole - of(f"encode-{khz}-3") + of(f"encode-{khz}-{complexity}")


def calls(counts):
    lines = [
        "### Per second of a call, in millions of instructions",
        "",
        "What the runner computes, both directions busy; without sockets and tasks.",
        "",
        head("call", *(title for _, title in COLUMNS)),
    ]

    def million(of):
        return [shown(lambda m=m: f"{FRAMES_PER_SECOND * of(m) / 1e6:.1f}") for m, _ in COLUMNS]

    for kind in ("16 kHz", "24 kHz"):
        for complexity in (0, 3, 5, 10):
            cells = million(lambda machine: call(counts, machine, kind, complexity))
            lines.append(row(f"WebRTC, the bot at {kind}, complexity {complexity}", *cells))
    for title, of in [
        ("of it, at 16 kHz and complexity 3: Opus encode", lambda m: frame(counts, m, "encode-16-3")),
        ("Opus decode", lambda m: frame(counts, m, "decode-16")),
        ("SRTP (AES-128-GCM)", lambda m: frame(counts, m, "srtp-gcm")),
        ("str0m without SRTP", lambda m: frame(counts, m, "clients") / 2 - frame(counts, m, "srtp-gcm")),
        ("jitter buffer and pacer", lambda m: frame(counts, m, "jitter") + frame(counts, m, "pacer")),
        ("rest", lambda m: rest(counts, m)),
    ]:
        lines.append(row(title, *million(of)))
    lines.append(row("telephone, the bot at 16 kHz, without WebSocket framing", *million(lambda machine: call(counts, machine, "telephone"))))
    lines.append(row("plain WebSocket client, 16 kHz, without framing", *million(lambda machine: frame(counts, machine, "client"))))
    return "\n".join(lines) + "\n"


def rest(counts, machine):
    known = sum(frame(counts, machine, name) for name in ("encode-16-3", "decode-16", "jitter", "pacer"))
    return call(counts, machine, "16 kHz") - known - frame(counts, machine, "clients") / 2


def cycles(counts, board, kind, complexity):
    """Cycles per second of a call, at most and at least."""
    _, machine, _, _, _, per_cycle, floating_cycles = board
    whole = call(counts, machine, kind, complexity)
    floating = call(counts, machine, kind, complexity, 1) if floating_cycles else 0
    found = []
    for at in (0, 1):
        cost = (whole - floating) / per_cycle[at] + floating * (floating_cycles[at] if floating_cycles else 0)
        found.append(FRAMES_PER_SECOND * cost / (1 - SOCKETS))
    return found


def boards(counts):
    lines = [
        "### Boards: estimated, not measured on them",
        "",
        "Share of one core per call, from and to, and how many WebRTC calls at 16 kHz half of all cores carry.",
        "",
        head(
            "board",
            "cores",
            "instructions per cycle, assumed",
            "WebRTC, complexity 0",
            "3",
            "5",
            "10",
            "telephone",
            "calls on half of it, complexity 3",
        ),
    ]
    for board in BOARDS:
        name, _, core, cores, mhz, per_cycle, floating_cycles = board

        def share(kind, complexity=3, board=board, mhz=mhz):
            return [cost / (mhz * 1e6) for cost in cycles(counts, board, kind, complexity)]

        def percent(kind, complexity=3, share=share):
            most, least = (100 * part for part in share(kind, complexity))
            digits = 1 if most < 10 else 0
            return f"{least:.{digits}f} to {most:.{digits}f} %"

        def fit(share=share, cores=cores):
            most, least = share("16 kHz")
            return f"{int(cores / 2 / most)} to {int(cores / 2 / least)}"

        assumed = f"{per_cycle[0]} to {per_cycle[1]}"
        if floating_cycles:
            assumed += f"; {floating_cycles[1]} to {floating_cycles[0]} cycles per scalar floating-point instruction"
        cells = [shown(lambda c=c, percent=percent: percent("16 kHz", c)) for c in (0, 3, 5, 10)]
        cells += [shown(lambda percent=percent: percent("telephone")), shown(fit)]
        lines.append(row(name, f"{cores} {core}, {mhz / 1000:g} GHz", assumed, *cells))
    return "\n".join(lines) + "\n"
