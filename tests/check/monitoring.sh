#!/usr/bin/env bash
# Checks the alert rules, the scrape configuration and the dashboard of docs/monitoring by Prometheus' promtool. Where it is not
# installed, it is taken from Debian's package, which is not installed for that.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
. tests/check/cache.sh
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
    needs 'apt-get install prometheus, for its promtool' apt-get dpkg-deb || exit 0
    package() (cd "$1" && apt-get -qq download prometheus && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb)
    make_once promtool package
    promtool=$made/usr/bin/promtool
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp docs/monitoring/*.yml "$folder"
touch "$folder/edge-runner.key" "$folder/edge-runner-cloud.key"
python3 - docs/monitoring/dashboard.json >"$folder/dashboard.yml" <<'EOF'
import json, sys
targets = [target for panel in json.load(open(sys.argv[1]))['panels'] for target in panel['targets']]
expressions = [target['expr'].replace('$__rate_interval', '5m').replace('$instance', '.*') for target in targets]
rules = [{'record': f'panel:{at}', 'expr': expression} for at, expression in enumerate(expressions)]
print(json.dumps({'groups': [{'name': 'dashboard', 'rules': rules}]}))
EOF
cd "$folder"
"$promtool" check config prometheus.yml
"$promtool" check rules dashboard.yml
"$promtool" test rules alerts_test.yml cloud_alerts_test.yml
