# shellcheck shell=bash
# Shared by the stages of tests/check.sh: missing tools, the builds, lanes of stages, and their results.
# Sourced from the root of the repository.

logs=target/check
# shellcheck disable=SC2034
binary=target/release/edge-runner

say() { printf '\n== %s\n' "$*"; }

# --- What a stage needs.

# Skips a check whose tools or rights are missing. Under CI=true that is a failure: the gate installs what its stages need.
lacks() {
    printf 'SKIPPED: %s\n' "$*"
    [ "${CI:-}" != true ] || exit 1
}

# Checks that commands exist: needs HOW-TO-INSTALL COMMAND...
needs() {
    local how=$1 command
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || { lacks "$command is not installed: $how"; return 1; }
    done
}

# Checks that a path exists: needs_path HOW-TO-MAKE-IT PATH
needs_path() {
    [ -e "$2" ] || { lacks "$2 is missing: $1"; return 1; }
}

needs_namespaces() {
    [ "$(uname)" = Linux ] && unshare -n true 2>/dev/null && return
    lacks "$1. Network namespaces need root"
    return 1
}

# Sets `python` to the interpreter with the packages of the peers, or to the system's.
find_python() {
    python=target/venv/bin/python
    [ -x $python ] || python=python3
}

# Checks that Python has modules: needs_python MODULES
needs_python() {
    find_python
    $python -c "import $1" 2>/dev/null && return
    lacks "Python lacks $1: tests/check/python.sh"
    return 1
}

needs_node() {
    needs 'Node 20 of https://nodejs.org' node && needs_path tests/check/node.sh tests/peers/browser/node_modules
}

# --- Builds. Each is done once.

release() { [ -n "${built:-}" ] || cargo build --release --quiet; built=1; }

# Runs a command whose cargo compiles the crates of this workspace with Clippy as their compiler, so that one build is linted
# and tested. Third-party crates are compiled as always.
linted() {
    if command -v clippy-driver >/dev/null; then
        RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ "$@"
    else
        "$@"
    fi
}

# Every target of the workspace, among them the test binaries and the examples. One selection of packages everywhere, because
# another one would compile the crates again, with other features.
development() { linted cargo test --quiet --workspace --no-run; }

# --- Results.

# Prints the failed checks of a stage, as cargo test and the peers name them, and the reasons of panics.
failed_checks() { grep -aE -A 1 '^(---- .* stdout ----$|thread .* panicked at |FAIL |not ok )' "$logs/$1.log" | cut -c 1-400 || true; }

# Prints how many checks of a stage passed, failed and were skipped. A stage that counts nothing is one check.
counts() {
    awk -v stage_passed="$([ -e "$logs/$1.passed" ] && echo 1 || echo 0)" '
        /^test result: / { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) passed += $i; if ($(i + 1) ~ /^failed/) failed += $i } }
        /^Ran [0-9]+ tests? in / { passed += $2 }
        /^# pass [0-9]+$/ { passed += $3 }
        /^# fail [0-9]+$/ { failed += $3 }
        /^PASS / { passed++ }
        /^FAIL / { failed++ }
        /^SKIPPED: / { skipped++ }
        END {
            if (!stage_passed && !failed) failed = 1
            if (!passed && !failed && !skipped) passed = 1
            print passed + 0, failed + 0, skipped + 0
        }' "$logs/$1.log"
}

# Reads what `times` printed before a stage and after it, of the lane and its children each, and prints what the stage has used.
processor_time() {
    awk -F '[ms ]+' 'NR % 2 == 0 { before = now; now = $1 * 60 + $2 + $3 * 60 + $4 } END { printf "own cpu %.1f s", now - before }'
}

# Prints a line for a stage that ended, and where it failed the checks that failed and the end of its log.
conclude() {
    local stage=$1 seconds=$2 passed failed skipped verdict=passed busy= cpu
    [ -e "$logs/$stage.passed" ] || verdict=FAILED
    read -r passed failed skipped < <(counts "$stage")
    # How much of a core other processes took, other lanes among them: of the whole stage, and of the worst second.
    [ ! -s "$logs/$stage.busy" ] || busy=$(sed -E 's/.*"mean_others": ([-0-9.]+), "max_others": ([0-9.]+), "seconds_over": ([0-9.]+).*"cpu_s": ([0-9.]+).*/own cpu \4 s, others \1 cores, at most \2, too much for \3 s/' "$logs/$stage.busy")
    cpu=$busy
    [ -n "$busy" ] || ! [ -e "$logs/$stage.cpu" ] || cpu=$(processor_time <"$logs/$stage.cpu")
    printf '%-10s %s %4d s %5d passed, %d failed, %d skipped%s\n' "$stage" $verdict "$seconds" "$passed" "$failed" "$skipped" "${cpu:+; $cpu}"
    grep -a '^SKIPPED: ' "$logs/$stage.log" || true
    [ $verdict = FAILED ] || return 0
    # Checks of the peers say it each for themselves; tests in Rust have no such measure.
    case "$busy" in
    '' | *'too much for 0.0 s') ;;
    *) printf '%s: machine too busy to judge\n' "$stage" ;;
    esac
    printf 'the checks of %s that failed, and the end of %s:\n' "$stage" "$logs/$stage.log"
    failed_checks "$stage"
    tail -n 80 "$logs/$stage.log"
}

# The exit code of a process whose failed checks all have no verdict; `tests/peers/checks.py` and `run.mjs` have the same.
not_judged_code=3

# Runs one of several commands of a stage. `verdict` is the exit code of all.
part() {
    "$@" || case $? in
    "$not_judged_code") [ "${verdict:-0}" != 0 ] || verdict=$not_judged_code ;;
    *) verdict=1 ;;
    esac
}

# Runs commands side by side, which are the values of these arrays: beside ARRAY... Each measures what the others take of the machine
# as that of another lane. Checks without a verdict have no other process beside them.
beside() {
    local array command pid processes=()
    for array in "$@"; do
        command=$array[@]
        if [ -n "${CHECKS_ONLY:-}" ]; then
            part "${!command}"
        else
            "${!command}" &
            processes+=($!)
        fi
    done
    for pid in ${processes[@]+"${processes[@]}"}; do part wait "$pid"; done
}

# Runs a command as two processes, each of which takes the next check that is left (`left` of tests/peers/checks.py), for most checks
# wait for the greater part of their time: shared COMMAND...
shared() {
    # shellcheck disable=SC2034
    local process=("$@")
    if [ -n "${CHECKS_ONLY:-}" ]; then
        beside process
        return
    fi
    local -x CHECKS_SHARED
    CHECKS_SHARED=$(mktemp -d)
    beside process process
    rm -rf "$CHECKS_SHARED"
}

# Runs stages in sequence, each as a process with its own log. A failure does not stop the lane.
lane() {
    local stage began pid code
    for stage in "$@"; do
        began=$SECONDS
        times >"$logs/$stage.cpu"
        tests/check.sh "$stage" >>"$logs/$stage.log" 2>&1 &
        pid=$!
        case " $real_time " in *" $stage "*) python3 tests/peers/busy.py --pid $pid --out "$logs/$stage.busy" & ;; esac
        code=0
        wait $pid || code=$?
        case $code in
        0) touch "$logs/$stage.passed" ;;
        "$not_judged_code") touch "$logs/$stage.open" ;;
        esac
        # Of the lane's processes that have ended, as a second pair of lines.
        times >>"$logs/$stage.cpu"
        wait
        conclude "$stage" $((SECONDS - began))
    done
}

# Prints the names of a stage's failed checks that a busy machine left without a verdict. Fails when there are others.
not_judged() {
    local log=$logs/$1.log
    [ ! -e "$logs/$1.passed" ] && [ -e "$log" ] || return 1
    if [ -e "$logs/$1.open" ]; then
        sed -nE 's/^FAIL (.*): not judged: .*/\1/p' "$log"
        return
    fi
    # Tests in Rust have no measure of their own; the stage has one.
    grep -q '"seconds_over": [0-9.]*[1-9]' "$logs/$1.busy" 2>/dev/null && grep -qa '^test result: FAILED' "$log" || return 1
    sed -nE 's/^---- (.*) stdout ----$/\1/p' "$log"
}

# Judges these checks with nothing beside them. The log of the stage then has both runs. There is no third one.
judge_alone() {
    local stage names count judged log
    for stage in $planned; do
        names=$(not_judged "$stage") && [ -n "$names" ] || continue
        log=$logs/$stage.log count=$(grep -c . <<<"$names")
        sed -i -E 's/^FAIL (.*: not judged: )/NOT JUDGED \1/; s/^(test result: FAILED\. [0-9]+ passed); [0-9]+ failed/\1; 0 failed/; s/^(---- .* stdout) ----$/\1/' "$log"
        mv "$log" "$log.first"
        CHECKS_ONLY=$names lane "$stage"
        # A name that fits no check must not count as passed. Tests in Rust are counted together.
        judged=$(awk 'NR == FNR { wanted[$0]; next }
            /^PASS / { for (name in wanted) if (index($0, "PASS " name) == 1) { judged++; delete wanted[name] } }
            /^test result: / { for (i = 2; i < NF; i++) if ($(i + 1) ~ /^passed/) judged += $i }
            END { print judged + 0 }' <(printf '%s\n' "$names") "$log")
        [ "$judged" -ge "$count" ] || rm -f "$logs/$stage.passed"
        printf '%s: %d checks judged with nothing beside them, after the machine was too busy: %s\n' "$stage" "$count" "$(tr '\n' ';' <<<"$names")"
        cat "$log" >>"$log.first"
        mv "$log.first" "$log"
    done
}

# Runs lanes in parallel: together 'STAGE...' 'STAGE...'
together() {
    local stages
    for stages in "$@"; do
        # shellcheck disable=SC2086
        lane $stages &
        planned+=" $stages"
    done
    wait
}

# Prepares for lanes.
begin_lanes() {
    # The shell lets its background jobs outlive Ctrl-C.
    trap 'trap - INT TERM; kill 0' INT TERM
    mkdir -p $logs
    rm -f $logs/*.passed $logs/*.open $logs/*.log $logs/*.busy $logs/*.cpu
    planned=
}

# Prints the planned stages without a pass. A killed lane leaves stages without a result.
not_passed() {
    local stage
    for stage in $planned; do
        [ -e "$logs/$stage.passed" ] || printf ' %s' "$stage"
    done
}

# Fails unless every stage of every lane passed. The last line counts the checks of all.
end_lanes() {
    local stage missing all_passed=0 all_failed=0 all_skipped=0 passed failed skipped
    missing=$(not_passed)
    if [ -n "$missing" ]; then
        say "not passed:$missing"
        # Once more at the end, which is what a shortened output keeps.
        for stage in $missing; do
            [ ! -e "$logs/$stage.log" ] || failed_checks "$stage"
        done
    fi
    for stage in $planned; do
        read -r passed failed skipped < <([ -e "$logs/$stage.log" ] && counts "$stage" || echo 0 1 0)
        all_passed=$((all_passed + passed)) all_failed=$((all_failed + failed)) all_skipped=$((all_skipped + skipped))
    done
    printf '\n%d passed, %d failed, %d skipped\n' $all_passed $all_failed $all_skipped
    [ -z "$missing" ]
}
