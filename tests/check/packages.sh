#!/usr/bin/env bash
# Installs the packages of Debian that the gate needs, as root.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium chromium-headless-shell firefox-esr pulseaudio cmake make espeak-ng sox ffmpeg iproute2 nftables coturn haproxy nginx caddy bubblewrap postgresql docker-registry \
    alsa-utils dbus-daemon pipewire pipewire-bin wireplumber \
    libnss3-tools openssl faketime curl openssh-client python3-venv zsh fish qemu-user-static debian-archive-keyring \
    gstreamer1.0-plugins-bad gstreamer1.0-plugins-good gstreamer1.0-nice gstreamer1.0-tools gir1.2-gst-plugins-bad-1.0 python3-gi >/dev/null
