#!/bin/sh
# Compares the energy detector of src/proto/audio/vad.rs with the crate earshot on noisy speech.
# Speech is made by espeak-ng, noise by sox, both at 16 kHz. Prints two tables.
# Needs espeak-ng, sox and cargo: sh tests/peers/vad/run.sh
set -eu
cd "$(dirname "$0")"
sounds=$(mktemp -d)
trap 'rm -rf "$sounds"' EXIT
number=0
say() {
    number=$((number + 1))
    espeak-ng -v "$1" -s "$2" -p "$3" -w "$sounds/raw.wav" "$4"
    # Without the silence before and after the sentence.
    sox -D "$sounds/raw.wav" -r 16000 -c 1 -b 16 "$sounds/speech$(printf %02d $number).wav" \
        silence 1 0.01 0.2% reverse silence 1 0.01 0.2% reverse norm -6
    rm "$sounds/raw.wav"
}
say en-gb 160 40 "Good morning. I would like to book a table for four people on Friday evening."
say en-us+f3 175 55 "What is the weather going to be like tomorrow in the mountains?"
say de 160 35 "Schalte bitte das Licht in der Küche aus und stell den Wecker auf sieben Uhr."
say fr+f2 150 60 "Bonjour, je voudrais parler avec quelqu'un du service des ventes."
say es 170 45 "Sí, claro, mi número de cliente es cuatro siete uno dos."
say it+m2 155 30 "No, grazie, preferisco aspettare fino a domani mattina."
say en-us+f1 140 70 "Yes."
say en-gb+m4 190 50 "Stop, stop, that is not what I have asked for."
say sv 160 45 "Hej, kan du spela lite musik i vardagsrummet?"
say pl+f4 165 60 "Proszę powtórzyć ostatnie zdanie trochę wolniej."

sox -D -R -n -r 16000 -c 1 -b 16 "$sounds/noise-white.wav" synth 60 whitenoise gain -12
sox -D -R -n -r 16000 -c 1 -b 16 "$sounds/noise-fan.wav" synth 60 brownnoise gain -6
# Eight people who speak at once, in sentences that the callers do not speak.
babble=
for voice in en-gb en-us+f2 de+f4 fr+m3 es+f1 it+m5 sv+m7 pl+f2; do
    file="$sounds/babble-$(printf %s "$voice" | tr -c 'a-z0-9\n' _).wav"
    espeak-ng -v "$voice" -w "$sounds/raw.wav" "One two three four five six seven eight nine ten \
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty and so on until all are counted."
    sox -D "$sounds/raw.wav" -r 16000 -c 1 -b 16 "$file" repeat 9 trim 0 60
    babble="$babble $file"
done
# shellcheck disable=SC2086
sox -D -m $babble "$sounds/noise-babble.wav" trim 0 60
# A dish that falls every 1.7 s: a short burst that fades.
sox -D -R -n -r 16000 -c 1 -b 16 "$sounds/noise-clatter.wav" synth 0.12 whitenoise fade l 0 0.12 0.11 \
    highpass 1500 pad 0 1.58 repeat 35 trim 0 60
exec cargo run -q --manifest-path Cargo.toml -- "$sounds"
