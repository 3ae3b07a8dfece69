"""Tests of the kit in examples/bots/edge_bot.py. Standard library alone: `python3 tests/bots/test_edge_bot.py`."""

import math
import pathlib
import random
import struct
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/bots"))
sys.dont_write_bytecode = True

import edge_bot  # noqa: E402

SPEECH = (ROOT / "tests/data/audio/speech.raw").read_bytes()
"""Two sentences at 16 kHz; see tests/data/audio/README.md."""
PACKET = 640


def events(detector, pcm, **state):
    """Returns the events of PCM in packets of 20 ms, with the time of each in milliseconds."""
    found = []
    for at in range(0, len(pcm), PACKET):
        event = detector.handle_audio(pcm[at : at + PACKET], **state)
        if event:
            found.append((event, (at + PACKET) // 32))
    return found


def silence(ms):
    """Returns a quiet room: digital silence is a muted microphone, which has no background."""
    hiss = random.Random(7)
    return edge_bot.pcm_of(hiss.uniform(-20, 20) for _ in range(16 * ms))


def voice(ms):
    return edge_bot.tones([(ms / 1000, 1000)])


class Turns(unittest.TestCase):
    def test_speech_is_one_turn_with_its_lead(self):
        turns = edge_bot.TurnDetector()
        found = events(turns, silence(1000) + voice(500) + silence(2000))
        self.assertEqual([event for event, _ in found], ["started", "ended"])
        self.assertEqual(found, [("started", 1100), ("ended", 2200)])
        self.assertEqual(len(turns.audio) // 32, 300 + 500 + 700)

    def test_recorded_sentences_are_heard(self):
        turns = edge_bot.TurnDetector()
        found = events(turns, silence(500) + SPEECH + silence(1000))
        self.assertEqual(found[0][0], "started")
        self.assertEqual(found[-1][0], "ended")

    def test_a_click_and_a_muted_microphone_are_no_turn(self):
        self.assertEqual(events(edge_bot.TurnDetector(), silence(500) + voice(60) + silence(1000)), [])
        turns = edge_bot.TurnDetector()
        found = events(turns, silence(500) + voice(500) + bytes(32 * 1000) + voice(500))
        self.assertEqual([event for event, _ in found], ["started", "ended", "started"])

    def test_barge_in_needs_more_speech(self):
        quiet = edge_bot.TurnDetector()
        self.assertEqual(events(quiet, silence(500) + voice(200) + silence(800), bot_is_heard=True), [])
        loud = edge_bot.TurnDetector()
        self.assertEqual(events(loud, silence(500) + voice(400), bot_is_heard=True), [("started", 800)])

    def test_a_long_turn_is_cut_and_its_rest_is_skipped(self):
        turns = edge_bot.TurnDetector(longest_s=1)
        sentence = b"".join(voice(150) + silence(40) for _ in range(10))
        found = events(turns, silence(500) + sentence + silence(1000))
        self.assertEqual([event for event, _ in found[:2]], ["started", "cut"])
        self.assertLessEqual(len(turns.before), turns.lead_bytes + turns.barge_in_bytes)

    def test_what_is_kept_before_a_turn_is_bounded(self):
        turns = edge_bot.TurnDetector(longest_s=1)
        events(turns, silence(10_000))
        self.assertLessEqual(len(turns.before), turns.lead_bytes + PACKET)


class Sentences(unittest.TestCase):
    def test_sentences_end_at_their_marks_however_they_arrive(self):
        for text, expected in [
            ("Hello! How are you? Fine.", ["Hello!", "How are you?", "Fine."]),
            ("One\n\ntwo\nthree", ["One", "two", "three"]),
            ('He said: "Go." Then (at last.) he went.', ["He said:", '"Go."', "Then (at last.)", "he went."]),
            ("Wait… what?  Yes", ["Wait…", "what?", "Yes"]),
            ("你好。再见！", ["你好。", "再见！"]),
            ("كيف حالك؟ بخير", ["كيف حالك؟", "بخير"]),
            ("Pi is 3.14 and v1.2.3 is out.", ["Pi is 3.14 and v1.2.3 is out."]),
            ("Dr. A. Weiss, e.g. on 3. Mai, z.B. here.", ["Dr. A. Weiss, e.g. on 3. Mai, z.B. here."]),
            ("It was 1984. It rained.", ["It was 1984.", "It rained."]),
            ("", []),
            (" \n \n", []),
        ]:
            for piece in (1, 3, 1000):
                splitter, found = edge_bot.SentenceSplitter(), []
                for at in range(0, len(text), piece):
                    found += splitter.push(text[at : at + piece])
                found += [rest for rest in [splitter.finish()] if rest]
                self.assertEqual(found, expected, f"in pieces of {piece}")

    def test_a_long_sentence_is_split_between_words(self):
        splitter = edge_bot.SentenceSplitter()
        found = splitter.push("word " * 500) + [splitter.finish()]
        self.assertGreater(len(found), 4)
        self.assertTrue(all(len(part) <= splitter.BYTES_MAX and part.endswith("word") for part in found))
        self.assertEqual(" ".join(found), ("word " * 500).strip())
        dense = "ä" * 1000
        self.assertEqual("".join(splitter.push(dense) + [splitter.finish()]), dense)


class Digits(unittest.TestCase):
    def test_three_keys_or_the_terminator_end_a_collection(self):
        digits = edge_bot.DigitCollector(3, 5, now=0)
        self.assertIsNone(digits.handle_key("4", 1))
        self.assertIsNone(digits.handle_key("*", 2))
        self.assertEqual(digits.handle_key("7", 3), "4*7")
        self.assertIsNone(digits.handle_key("8", 4))
        digits = edge_bot.DigitCollector(3, 5, now=0)
        digits.handle_key("4", 1)
        self.assertEqual(digits.handle_key("#", 2), "4")

    def test_a_late_key_ends_a_collection(self):
        digits = edge_bot.DigitCollector(3, 5, now=0)
        self.assertIsNone(digits.handle_timeout(4.9))
        digits.handle_key("1", 4.9)
        self.assertEqual(digits.deadline, 9.9)
        self.assertIsNone(digits.handle_timeout(9.8))
        self.assertEqual(digits.handle_timeout(9.9), "1")
        self.assertIsNone(digits.handle_timeout(99))


class Sounds(unittest.TestCase):
    def test_a_wav_file_is_read_as_it_was_written(self):
        pcm = edge_bot.pcm_of([0, 1, -1, 40000, -40000])
        self.assertEqual(edge_bot.samples_of(pcm).tolist(), [0, 1, -1, 32767, -32768])
        self.assertEqual(edge_bot.read_wav(edge_bot.write_wav(pcm, 8000)), (pcm, 8000))

    def test_channels_are_averaged_and_other_chunks_skipped(self):
        form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 2, 44100, 0, 4, 16)
        data = b"data" + struct.pack("<I4h", 8, 100, 200, -100, -300)
        file = b"RIFF\0\0\0\0WAVE" + form + b"LIST" + struct.pack("<I", 3) + b"abc\0" + data
        self.assertEqual(edge_bot.read_wav(file), (edge_bot.pcm_of([150, -200]), 44100))
        for length in (0, 0xFFFFFFFF):
            piped = edge_bot.write_wav(b"\1\0\2\0")[:-8] + struct.pack("<I", length) + b"\1\0\2\0"
            self.assertEqual(edge_bot.read_wav(piped)[0], b"\1\0\2\0")

    def test_other_files_are_refused(self):
        good = edge_bot.write_wav(b"\0\0")
        for bad in (b"", b"RIFF", b"OggS" + good[4:], good[:30], good[:34] + b"\x08\0" + good[36:]):
            with self.assertRaises(ValueError):
                edge_bot.read_wav(bad)

    def test_keys_have_their_two_frequencies(self):
        def level(samples, hz):
            turn = [2 * math.pi * hz * at / 8000 for at in range(len(samples))]
            return math.hypot(
                sum(sample * math.cos(angle) for sample, angle in zip(samples, turn)),
                sum(sample * math.sin(angle) for sample, angle in zip(samples, turn)),
            ) / len(samples)

        frequencies = (697, 770, 852, 941, 1209, 1336, 1477, 1633)
        for key, loud in (("1", (697, 1209)), ("0", (941, 1336)), ("#", (941, 1477)), ("D", (941, 1633))):
            pcm = edge_bot.dtmf_tones(key, 8000)
            self.assertEqual(len(pcm), 2 * 1600)
            samples = edge_bot.samples_of(pcm[:1600])
            found = sorted(frequencies, key=lambda hz: -level(samples, hz))[:2]
            self.assertEqual(tuple(sorted(found)), loud, key)
        self.assertEqual(edge_bot.dtmf_tones("x y"), b"")


if __name__ == "__main__":
    unittest.main()
