"""The clock of speech: how long to wait so that little of it is ahead of what the caller hears.

Times are seconds, of any clock that is passed in.
"""


class Lead:
    """Speech that was sent and has not been played."""

    def __init__(self, lead_s):
        self.lead_s = lead_s
        self._played_at = 0.0
        self._kept_until = 0.0

    def add(self, seconds, now, is_kept=False):
        """Adds speech that is sent now. Returns the time to wait before the next. An interruption
        does not drop speech that is kept."""
        self._played_at = max(self._played_at, now) + seconds
        if is_kept:
            self._kept_until = self._played_at
        return max(0.0, self.ahead(now) - self.lead_s)

    def ahead(self, now):
        """Returns the length of the speech that has not been played."""
        return max(0.0, self._played_at - now)

    def interrupt(self, now):
        """Forgets the speech that has not been played. Returns whether it may be dropped."""
        if now < self._kept_until:
            return False
        self._played_at = self._kept_until = 0.0
        return True


def to_stereo(pcm):
    """Returns 16-bit PCM with each sample twice."""
    stereo = bytearray(2 * len(pcm))
    for byte in range(2):
        stereo[byte::4] = stereo[byte + 2 :: 4] = pcm[byte::2]
    return bytes(stereo)
