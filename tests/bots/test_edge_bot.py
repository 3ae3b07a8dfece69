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

    def test_recorded_sentences_are_recognised(self):
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


class Functions(unittest.TestCase):
    def test_every_call_has_one_output(self):
        calls = edge_bot.FunctionCalls(within_s=10)
        self.assertEqual(calls.start("a", "weather", '{"city": "Linz"}', 0), {"city": "Linz"})
        self.assertEqual(calls.start("b", "time", "", 1), {})
        self.assertIsNone(calls.start("a", "weather", "{}", 1), "it is known")
        for bad in ("{", "[]"):
            self.assertIsNone(calls.start("bad" + bad, "f", bad, 1))
        calls.finish("a", {"degrees": 21})
        calls.finish("a", "again")
        calls.finish("unknown", "x")
        self.assertFalse(calls.all_answered())
        self.assertEqual(calls.deadline(), 11)
        calls.handle_timeout(10.9)
        self.assertFalse(calls.all_answered())
        calls.handle_timeout(11)
        self.assertTrue(calls.all_answered())
        error = '{"error": "the arguments are no JSON object"}'
        self.assertEqual(
            calls.take(),
            [
                ("bad{", "f", error),
                ("bad[]", "f", error),
                ("a", "weather", '{"degrees": 21}'),
                ("b", "time", '{"error": "no result in time"}'),
            ],
        )
        self.assertFalse(calls.all_answered())

    def test_calls_and_outputs_are_bounded(self):
        calls = edge_bot.FunctionCalls()
        for number in range(calls.CALLS_MAX):
            self.assertIsNotNone(calls.start(str(number), "f", "{}", 0))
        self.assertIsNone(calls.start("one more", "f", "{}", 0))
        calls.finish("0", "ä" * calls.OUTPUT_BYTES_MAX)
        outputs = dict((call_id, output) for call_id, _, output in calls.take())
        self.assertIn("too many", outputs["one more"])
        self.assertIn("too long", outputs["0"])


class Transcripts(unittest.TestCase):
    def test_the_last_texts_and_the_turn_are_kept(self):
        transcript = edge_bot.Transcript(texts_max=2)
        transcript.add("bot", " Good day. ")
        transcript.add("bot", "  ")
        self.assertEqual(transcript.push_piece(1, "I need"), "I need")
        self.assertEqual(transcript.push_piece(1, " help"), "I need help")
        transcript.complete(1, "I need help. ")
        self.assertEqual(str(transcript), "bot: Good day.\ncaller: I need help.\n")
        self.assertEqual(transcript.push_piece(2, "x"), "x")
        transcript.add("bot", "ä" * 4000)
        self.assertEqual([len(text.encode()) for _, text in transcript.texts], [12, 4096])
        self.assertEqual(len(transcript.push_piece(2, "y" * 40000)), 1)


class Sounds(unittest.TestCase):
    def test_a_stream_is_resampled_in_pieces_of_any_length(self):
        hz, from_hz, to_hz = 440, 24000, 16000
        pcm = edge_bot.tones([(0.5, hz)], from_hz)
        whole = edge_bot.Resampler(from_hz, to_hz).convert(pcm)
        self.assertAlmostEqual(len(whole) / 2, 8000, delta=30)
        pieces = edge_bot.Resampler(from_hz, to_hz)
        joined = b"".join(pieces.convert(pcm[at : at + 334]) for at in range(0, len(pcm), 334))
        self.assertEqual(joined, whole)
        # The tone keeps its frequency and its level, in the middle.
        samples = edge_bot.samples_of(whole)[2000:6000]
        turn = [2 * math.pi * hz * at / to_hz for at in range(len(samples))]
        level = math.hypot(
            sum(sample * math.cos(angle) for sample, angle in zip(samples, turn)),
            sum(sample * math.sin(angle) for sample, angle in zip(samples, turn)),
        ) / len(samples)
        power = sum(sample * sample for sample in samples) / len(samples)
        self.assertAlmostEqual(level * 2, 8000, delta=80)
        self.assertAlmostEqual(power, level * level * 2, delta=power * 0.001)
        self.assertEqual(edge_bot.Resampler(8000, 8000).convert(b"\1\0"), b"\1\0")

    def test_what_is_above_the_lower_rate_is_removed(self):
        high = edge_bot.Resampler(24000, 8000).convert(edge_bot.tones([(0.2, 6000)], 24000))
        self.assertLess(max(abs(sample) for sample in edge_bot.samples_of(high)[200:1400]), 100)

    def test_a_recording_has_both_sides_in_the_time_of_the_caller(self):
        recorder = edge_bot.Recorder(rate_hz=8000, longest_s=1)
        self.assertTrue(recorder.handle_caller(edge_bot.pcm_of([5] * 4)))
        recorder.handle_bot_speech(edge_bot.pcm_of([10, 20, 30]), 8000)
        recorder.handle_caller(edge_bot.pcm_of([1, 1]))
        recorder.handle_caller(edge_bot.pcm_of([32767, 1]))
        recorder.handle_bot_speech(edge_bot.pcm_of([9] * 9), 8000)
        recorder.handle_interruption()
        recorder.handle_caller(edge_bot.pcm_of([0]))
        pcm, rate_hz = edge_bot.read_wav(recorder.to_wav())
        self.assertEqual(edge_bot.samples_of(pcm).tolist(), [5, 5, 5, 5, 11, 21, 32767, 1, 0])
        self.assertEqual(rate_hz, 8000)
        recorder.handle_bot_speech(bytes(2 * 20000), 8000)
        self.assertFalse(recorder.handle_caller(bytes(2 * 9000)))
        self.assertEqual(len(recorder.track), 2 * 8000)
        self.assertLessEqual(len(recorder.speech), 2 * 8000)

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


class Requests(unittest.TestCase):
    def test_requests_to_the_runner_are_messages_without_a_label(self):
        sent = []
        bot = edge_bot.Bot({}, None)
        bot.send = sent.append
        bot.hang_up("done")
        bot.speak("Press 1.")
        bot.transfer("+15550001111")
        bot.transfer("+15550001111", after_speech=False)
        bot.send_keys("12#")
        self.assertEqual(
            sent,
            [
                {"type": "hang-up", "reason": "done"},
                {"type": "speak", "text": "Press 1."},
                {"type": "transfer", "to": "+15550001111"},
                {"type": "transfer", "to": "+15550001111", "after_speech": False},
                {"type": "keys", "keys": "12#"},
            ],
        )


if __name__ == "__main__":
    unittest.main()
