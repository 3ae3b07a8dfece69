#!/usr/bin/env bash
# Prints the folder of ALSA's plug-in for PipeWire. In Debian 12 its package takes the place of PulseAudio, with which the checks of
# Firefox have their sound, so that it is unpacked once into target/pipewire-alsa and not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
unpacked=target/pipewire-alsa
plugin() { find "$@" -name libasound_module_pcm_pipewire.so -printf '%h\n' 2>/dev/null | head -n 1; }
folder=$(plugin /usr/lib || true)
if [ -z "$folder" ]; then
    if [ ! -e $unpacked/usr ]; then
        rm -rf $unpacked $unpacked.part
        mkdir -p $unpacked.part
        (cd $unpacked.part && apt-get download -qq pipewire-alsa >&2 && dpkg -x pipewire-alsa_*.deb .)
        mv $unpacked.part $unpacked
    fi
    folder=$(plugin $unpacked)
fi
readlink -e "$folder"
