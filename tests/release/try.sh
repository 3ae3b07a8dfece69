#!/usr/bin/env bash
# Installs what pip and npm take of a release for this machine, and has a call with each: tests/release/try.sh DIR
# In: DIR, made by boards/release; Python with venv, Node with npm. Out: exit code 0 if everything worked.
set -euo pipefail
release=$(realpath "${1:?which folder?}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wheels=("$release"/*.whl)
name=$(basename "${wheels[0]%%-*}" | tr _ -)
python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$release" "$name"
case $(uname -m) in
x86_64) processor=x64 ;;
aarch64) processor=arm64 ;;
*) processor=arm ;;
esac
version=$(sed -n 's/^edge-runner //p' "$release/BUILDINFO")
mkdir "$folder/project"
cd "$folder/project"
printf '{}\n' >package.json
npm install --offline --no-audit --cache "$folder/npm" "$release/$name-linux-$processor-$version.tgz" "$release/$name-$version.tgz"
for program in "$folder/environment/bin/edge-runner" "$folder/project/node_modules/.bin/edge-runner"; do
    "$program" --version
    rm -rf "$folder/bots" && mkdir "$folder/bots" && cd "$folder/bots"
    "$program" new python a-bot >/dev/null && "$program" new node b-bot >/dev/null
    (cd a-bot && EDGE_RUNNER=$program "$folder/environment/bin/python" test_bot.py)
    (cd b-bot && EDGE_RUNNER=$program node --test)
done
